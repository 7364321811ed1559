"""A chart of a page. Each of its views is a Plotly figure, and a table of the same numbers. Pure.

A figure is a plain dict in the form of Plotly's JSON (`data`, `layout`) with two additions. Colours are names of the theme
(`colours`). On a phone, the values in `narrow` replace the usual values: `ticktext`, the `range` of the x axis, and the `words`
next to bars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import Show, metric
from orchestrator.report.page.charts import colours
from orchestrator.report.page.texts import for_plotly, rounded

Figure = dict[str, Any]
Trace = dict[str, Any]

# The `meta` of a trace whose texts are written into the chart.
LABELS = "labels"

# The `meta` of a trace that is left out on a phone.
WIDE = "wide"


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One drawing of a chart.

    A reader chooses a value of each facet, such as the model. The page shows this view if the chosen values are `at`.

    `summary` describes the drawing in a sentence. `columns` and `rows` are its numbers as a table.
    """

    at: tuple[str, ...]
    figure: Figure
    summary: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A chart. `reading` is a text that explains it, `facets` are the names of its choices, and `notes` describe omissions.

    `together`: the page shows the views of all values of the first facet side by side, if there are few.
    """

    id: str
    title: str
    reading: str
    facets: tuple[str, ...]
    views: tuple[View, ...]
    notes: tuple[str, ...] = ()
    together: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Absent:
    """A chart without numbers, and the reason."""

    title: str
    why: str


def layout(
    *, height: int, x_title: str, y_title: str = "", legend: bool = False, above: int = 10, **more: Any
) -> dict[str, Any]:
    """Return the layout that all charts share. `more` overrides parts of this layout.

    `height` is in pixels, without the legend: charts.js adds the height of the legend, which depends on the width. `above` is the
    space for words between the legend and the plot, in pixels.
    """
    axis = {
        "gridcolor": colours.GRID,
        "linecolor": colours.GRID,
        "zerolinecolor": colours.GRID,
        "automargin": True,
        "ticks": "",
    }
    shared: dict[str, Any] = {
        "height": height,
        "margin": {"l": 12, "r": 12, "t": above, "b": 12},
        "minreducedheight": 16,  # without this, the title of the axis covers the ticks if there is only one bar
        "showlegend": legend,
        "legend": {
            **{"orientation": "h", "x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"},
            "maxheight": 1,  # without this, a legend that is higher than half of the drawing gets a scroll bar
        },
        "hovermode": "closest",
        "xaxis": {**axis, "title": axis_title(x_title)},
        "yaxis": {**axis, "title": axis_title(y_title)},
    }
    for name in ("xaxis", "yaxis"):
        shared[name] |= more.pop(name, {})
    return {**shared, **more}


def figure(traces: Sequence[Trace], *, narrow: dict[str, Any] | None = None, **of_layout: Any) -> Figure:
    """Return a figure. `narrow` has the values for a phone. The other arguments are passed to `layout`."""
    return {"data": [*traces], "layout": layout(**of_layout), "narrow": narrow or {}}


def scale_of(name: str, largest: float) -> tuple[float, str]:
    """Return the factor of an axis for values of a metric, and its unit. Times and energies below 1 are drawn in ms and mJ."""
    known = metric(name)
    unit = known.unit or known.label
    small = largest < 1 and known.show in (Show.SECONDS, Show.JOULES)
    return (1000.0, f"m{unit}") if small else (1.0, unit)


def axis_title(text: str) -> dict[str, Any]:
    return {"text": text, "standoff": 10, "font": {"size": 12, "color": colours.MUTED}}


def scatter(mode: str, name: str, points: Iterable[tuple[float, float]], **more: Any) -> Trace:
    """Return a trace of points, lines or texts, as `mode` says."""
    x, y = zip(*points, strict=True) if (points := [*points]) else ((), ())
    return {
        **{"type": "scatter", "mode": mode, "name": for_plotly(name, width=46)},
        **{"x": [*map(rounded, x)], "y": [*map(rounded, y)]},
        **more,
    }


def marker(place: int, *, size: int, **more: Any) -> dict[str, Any]:
    """Return the marker of a series; `place` is the number of the series."""
    return {"color": colours.colour(place), "symbol": colours.symbol(place), "size": size, **more}


def note(x: object, y: object, text: str, *, colour: str = colours.INK, **more: Any) -> dict[str, Any]:
    """Return words at a place of a drawing."""
    font = {"color": colour, "size": 12}
    return {"x": x, "y": y, "text": for_plotly(text), "showarrow": False, "font": font, **more}


def upright(x: object, line: dict[str, Any]) -> dict[str, Any]:
    """Return a line at `x` over the whole height of a drawing."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def level(y: object, line: dict[str, Any]) -> dict[str, Any]:
    """Return a line at `y` over the whole width of a drawing."""
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def band(begin: float | None, end: float | None) -> dict[str, Any]:
    """Return a shaded band between two values of x, behind the drawing."""
    return {
        **{"type": "rect", "x0": begin, "x1": end, "y0": 0, "y1": 1, "yref": "paper", "layer": "below"},
        **{"fillcolor": colours.SHADE, "line": {"width": 0}},
    }


def error_bars(
    values: Iterable[float], intervals: Iterable[Interval | None], *, factor: float = 1.0, **style: object
) -> dict[str, Any]:
    """Return the whiskers of a trace. They go from each value to the ends of its interval, if it has an interval.

    `factor` is the factor of the axis (`scale_of`).
    """
    both = list(zip(values, intervals, strict=True))
    return {
        **{"type": "data", "symmetric": False, "color": colours.INK, **style},
        "array": [rounded((interval.high - value) * factor) if interval else None for value, interval in both],
        "arrayminus": [rounded((value - interval.low) * factor) if interval else None for value, interval in both],
    }


def chart_or_absent(chart: Chart, why: str) -> Chart | Absent:
    """Return the chart, or the reason `why` if it has no view."""
    return chart if chart.views else Absent(title=chart.title, why=why)


def as_data(chart: Chart) -> dict[str, Any]:
    """Return the chart as JSON values for the page."""
    names = [field.name for field in fields(View)]
    views = [{name: getattr(view, name) for name in names} for view in chart.views]
    return {"title": chart.title, "facets": chart.facets, "together": chart.together, "views": views}


def in_stretches(items: Sequence[Any], length: int) -> list[tuple[str, Sequence[Any]]]:
    """Return the items in stretches of at most `length`, each with its name, such as "1–40"."""
    if len(items) <= length:
        return [("all", items)]
    starts = range(0, len(items), length)
    return [(f"{at + 1}–{min(at + length, len(items))}", items[at : at + length]) for at in starts]
