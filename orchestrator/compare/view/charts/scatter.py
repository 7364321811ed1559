"""Draw base against new, with a point for each experiment. Pure.

The diagonal means no change. Changes inside the band around the diagonal do not count. Both axes are logarithmic with the same
range, so that equal ratios are equally far from the diagonal. (Plotly can tie two scales, but then draws nothing after the user
chooses another metric.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.compare.comparison import Comparison, Pair, Row, Verdict
from orchestrator.compare.rules import Rules
from orchestrator.compare.view import marks, wording
from orchestrator.compare.view.charts.axes import log_range, value_ticks
from orchestrator.compare.view.charts.forest import COLUMNS, LABEL, cells, hover
from orchestrator.compare.view.marks import MARKS
from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import Direction
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Figure, Trace, View, layout
from orchestrator.report.page.texts import for_plotly, one_line, rounded

HEIGHT_PX = 520
# The axes extend beyond the outermost values by at least this factor.
_ROOM = 1.12


def scatter(
    comparison: Comparison, of_metric: Mapping[str, Sequence[Row]], headings: Mapping[str, str], *, most: int
) -> Chart:
    """Return the chart, with at most `most` points per metric. `of_metric` has the rows with a ratio, worst first."""
    by, pairs = marks.judged_by(comparison), {pair.label: pair for pair in comparison.pairs}
    cut = any(len(rows) > most for rows in of_metric.values())
    return Chart(
        id="scatter",
        title="Base against new",
        reading=(
            "Each point is an experiment, with its value on base on the horizontal axis and its value on the new side on the "
            "vertical axis; both are logarithmic. On the diagonal nothing changed. A change inside the shaded band is too small "
            "to count."
        ),
        facets=("Metric",),
        views=tuple(_view(headings[name], rows[:most], by=by, pairs=pairs) for name, rows in of_metric.items() if rows),
        notes=(f"The chart shows the {most:,} worst rows of each metric; the table has all rows.",) if cut else (),
    )


def _view(name: str, rows: Sequence[Row], *, by: Rules | None, pairs: Mapping[str, Pair]) -> View:
    low, high = _reach(rows)
    effects = marks.effects(rows, by)
    metric = rows[0].metric
    ticks, words = value_ticks(metric, low, high)
    axis = {"type": "log", "range": log_range(low, high), "tickvals": ticks, "ticktext": words}
    figure: Figure = {
        "data": [*(_band(effect, low, high) for effect in effects), _diagonal(low, high), *_points(rows, pairs)],
        "layout": layout(
            height=HEIGHT_PX,
            x_title=for_plotly(f"base: {name}", width=60),
            y_title=for_plotly(f"new: {name}", width=60),
            legend=True,
            xaxis=axis,
            yaxis=axis,
            annotations=_sides(metric, by),
        ),
        "narrow": {},
    }
    return View(
        at=(name,),
        figure=figure,
        summary=_summary(rows),
        columns=COLUMNS,
        rows=tuple((one_line(row.label, width=LABEL), *cells(row)) for row in rows),
    )


def _reach(rows: Sequence[Row]) -> tuple[float, float]:
    values = [value for row in rows for value in (row.base, row.new) if value is not None and value > 0]
    low, high = min(values), max(values)
    room = max(_ROOM, (high / low) ** 0.06)
    return low / room, high * room


def _points(rows: Sequence[Row], pairs: Mapping[str, Pair]) -> list[Trace]:
    """Return a trace for each verdict. Unchanged rows are drawn first, below the other rows.

    In the legend, the worst verdict is first.
    """
    traces = []
    for rank, verdict in reversed([*enumerate(wording.WORST_FIRST)]):
        alike, mark = [row for row in rows if row.verdict is verdict], MARKS[verdict]
        if alike:
            traces.append(
                {
                    **{"type": "scatter", "mode": "markers", "name": for_plotly(wording.words(verdict))},
                    **{"x": [rounded(row.base) for row in alike], "y": [rounded(row.new) for row in alike]},
                    "legendrank": rank,
                    "marker": {"color": mark.colour, "symbol": mark.symbol, "size": 9, "opacity": 0.85},
                    **{"hovertext": [hover(row, pairs.get(row.label)) for row in alike], "hoverinfo": "text"},
                }
            )
    return traces


def _diagonal(low: float, high: float) -> Trace:
    ends = [rounded(low), rounded(high)]
    line = {"color": colours.MUTED, "width": 1.2, "dash": "dash"}
    return _without_hover("no change") | {"mode": "lines", "x": ends, "y": ends, "line": line}


def _band(effect: float, low: float, high: float) -> Trace:
    """Return the band between ÷(1 + effect) and ×(1 + effect) along the diagonal. It ends outside of the drawing."""
    low, high, factor = low / 2, high * 2, 1 + effect
    x = [low, high, high, low]
    y = [low * factor, high * factor, high / factor, low / factor]
    corners = {"x": [rounded(value) for value in x], "y": [rounded(value) for value in y]}
    fill = {"fill": "toself", "fillcolor": colours.SHADE, "line": {"width": 0}}
    return _without_hover("band") | {"mode": "lines", **corners, **fill}


def _without_hover(name: str) -> Trace:
    return {"type": "scatter", "name": name, "hoverinfo": "skip", "showlegend": False}


def _sides(metric: str, by: Rules | None) -> list[dict[str, Any]]:
    """Return annotations that name the better side of the diagonal, if that side is known."""
    known = marks.rule(metric, by)
    if known is None:
        return []
    above, below = ("better", "worse") if known.direction is Direction.HIGHER else ("worse", "better")
    return [
        _note(f"above: {above}", 0, 1, xanchor="left", yanchor="top"),
        _note(f"below: {below}", 1, 0, xanchor="right", yanchor="bottom"),
    ]


def _note(text: str, x: float, y: float, **anchors: str) -> dict[str, Any]:
    place = {"x": x, "y": y, "xref": "x domain", "yref": "y domain", **anchors, "showarrow": False, "borderpad": 6}
    return {"text": text, **place, "font": {"color": colours.MUTED, "size": 12}}


def _summary(rows: Sequence[Row]) -> str:
    worse = sum(row.verdict is Verdict.REGRESSED for row in rows)
    better = sum(row.verdict is Verdict.IMPROVED for row in rows)
    return f"{counted(len(rows), 'experiment')}: {worse:,} regressed, {better:,} improved, {len(rows) - worse - better:,} neither."
