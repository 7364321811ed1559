"""Draw the forest plot of a comparison: the ratio of each row with its interval, worst first, one metric at a time. Pure.

The axis is logarithmic. The ratio 1 (no change) is in its middle. Changes inside the shaded band do not count. The first row is the
mean over all pairs. Colour and symbol show the verdict, and text next to the row repeats the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.compare.comparison import Comparison, Fleet, Pair, Row
from orchestrator.compare.rules import Rules
from orchestrator.compare.view import marks, wording
from orchestrator.compare.view.charts.axes import ratio_ticks
from orchestrator.compare.view.marks import MARKS
from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval, Ratio
from orchestrator.measure.metrics import DASH
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    WIDE,
    Chart,
    Figure,
    Trace,
    View,
    band,
    error_bars,
    in_stretches,
    layout,
    upright,
)
from orchestrator.report.page.charts.row_axis import narrow_names, row_axis, texts
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded

ROWS, ROW_PX, FRAME_PX = 40, 25, 66
# The most characters of an experiment's name: LABEL in a text, NAME next to its row. A longer name is cut in its middle.
LABEL, NAME = 160, 50
COLUMNS = ("experiment", "verdict", "base", "new", "change", "95 % interval", "remarks")

# The separator in a label.
BETWEEN = " · "

MOST_DIFFERENCES = 4
_LEAST_REACH, _BEYOND_POINTS = math.log(1.03), 2.5
# The largest float is about e^709.
_MOST_EXPONENT = 700.0

# Shares of the drawing's width: the end of the plot, and the beginnings of the two columns of text.
_FIELD, _CHANGE_AT, _INTERVAL_AT = 0.62, 0.64, 0.75
# The end of the plot on a phone.
_NARROW_FIELD = 0.7


def forest(
    comparison: Comparison, of_metric: Mapping[str, Sequence[Row]], headings: Mapping[str, str], *, most: int
) -> Chart:
    """Return the chart, with at most `most` rows per metric. `of_metric` has the rows with a ratio, worst first."""
    by, pairs = marks.judged_by(comparison), {pair.label: pair for pair in comparison.pairs}
    fleet = {line.metric: line for line in comparison.fleet}
    views = [
        _view((headings[name], stretch), part, fleet.get(name) if at == 0 else None, by=by, pairs=pairs)
        for name, rows in of_metric.items()
        for at, (stretch, part) in enumerate(in_stretches(rows[:most], ROWS))
        if part
    ]
    cut = [f"{len(rows):,} of {headings[name]}" for name, rows in of_metric.items() if len(rows) > most]
    note = f"The chart shows the {most} worst rows of each metric (there are {', '.join(cut[:8])}); the table has all rows."
    return Chart(
        id="forest",
        title="Ratios with their intervals",
        reading=(
            "Each row is an experiment: new ÷ base with its 95 % interval, on a logarithmic axis. The worst row is first. A change "
            "inside the shaded band is too small to count. An arrow at the edge means that the interval goes on. A row without an "
            "interval has one run on one side, or is judged by a tolerance. A wide diamond is the geometric mean over all pairs."
        ),
        facets=("Metric", "Rows"),
        views=tuple(views),
        notes=(note,) if cut else (),
    )


def _view(
    at: tuple[str, str], rows: Sequence[Row], line: Fleet | None, *, by: Rules | None, pairs: Mapping[str, Pair]
) -> View:
    names = [*([_together(line)] if line else []), *short([row.label for row in rows])]
    ratios = [*([line.ratio] if line else []), *(row.ratio for row in rows if row.ratio is not None)]
    first = len(names) - len(rows)
    effects = marks.effects(rows, by)
    reach = _reach(ratios, effects)
    figure: Figure = {
        "data": [
            *([_fleet_trace(line, reach)] if line else []),
            *_traces(rows, first, pairs, reach),
            *_arrows(ratios, reach),
            *_texts(ratios, reach),
        ],
        "layout": layout(
            height=len(names) * ROW_PX + FRAME_PX,
            x_title="change from base to new",
            legend=True,
            xaxis=_axis(reach),
            yaxis=row_axis(names) | {"ticktext": [for_plotly(name, width=NAME) + " " for name in names]},
            shapes=[
                *(band(rounded(1 / (1 + effect)), rounded(1 + effect)) for effect in effects),
                upright(1, {"color": colours.MUTED, "width": 1.2}) | {"layer": "below"},
            ],
        ),
        "narrow": {"ticktext": narrow_names(names), "range": _range(reach, _NARROW_FIELD)},
    }
    return View(
        at=at,
        figure=figure,
        summary=_summary(rows, line, effects),
        columns=COLUMNS,
        rows=(
            *([_fleet_cells(line)] if line else []),
            *((one_line(row.label, width=LABEL), *cells(row)) for row in rows),
        ),
    )


def short(labels: Sequence[str]) -> list[str]:
    """Return short labels: without their common parts, and with `model` instead of `owner/model`. Labels stay distinct."""
    parts = [label.split(BETWEEN) for label in labels]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    own = [[part for part in label if part not in common] for label in parts]
    own = own if all(own) else parts
    without_owner = [BETWEEN.join(part.rpartition("/")[2] or part for part in label) for label in own]
    with_owner = [BETWEEN.join(label) for label in own]
    return next((names for names in (without_owner, with_owner) if len({*names}) == len({*labels})), list(labels))


def _together(line: Fleet) -> str:
    return f"all {line.pairs:,} pairs together"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row with a ratio as text: verdict, both values, change, interval, remarks."""
    base, _, new = wording.values(row).partition(" → ")
    change, interval = wording.change(row.ratio), wording.interval(row.ratio) or DASH
    return tuple(map(one_line, (marks.signed(row.verdict), base, new, change, interval, wording.note(row))))


def hover(row: Row, pair: Pair | None) -> str:
    """Return the hover text of a row, for any chart."""
    verdict, _, _, change, interval, note = cells(row)
    between = f"{change} ({interval})" if interval != DASH else change
    differences = pair.arguments[:MOST_DIFFERENCES] if pair else ()
    differs = [f"differs in {wording.difference(difference)}" for difference in differences]
    values = f"{wording.heading(row.metric)} {wording.values(row)}"
    lines = [row.label, f"{verdict}: {between}", values, note, *differs]
    return lines_for_plotly([one_line(line, width=LABEL) for line in lines if line])


def _fleet_cells(line: Fleet) -> tuple[str, ...]:
    change, interval = wording.change(line.ratio), wording.interval(line.ratio) or DASH
    return _together(line), marks.signed(line.verdict), DASH, DASH, change, interval, ""


def _reach(ratios: Sequence[Ratio], effects: Sequence[float]) -> float:
    """Return how far the axis extends to each side, as a logarithm. A very long interval is cut there, with an arrow."""
    shifts = [abs(math.log(ratio.value)) for ratio in ratios]
    points = max([_LEAST_REACH, *shifts, *(1.4 * math.log1p(effect) for effect in effects)])
    intervals = [ratio.interval for ratio in ratios if ratio.interval]
    ends = [abs(math.log(end)) for interval in intervals for end in (interval.low, interval.high)]
    return 1.06 * max(points, min(max(ends, default=0.0), points * _BEYOND_POINTS))


def _range(reach: float, field: float) -> list[float | None]:
    """Return the range of the axis in exponents of ten. The plot takes the share `field` of the width; text takes the rest."""
    ten = reach / math.log(10)
    return [rounded(-ten), rounded(-ten + 2 * ten / field)]


def _axis(reach: float) -> dict[str, Any]:
    values, words = ratio_ticks(reach)
    return {
        **{"type": "log", "range": _range(reach, _FIELD), "tickvals": [rounded(value) for value in values]},
        **{"ticktext": words, "zeroline": False, "showgrid": True, "fixedrange": True, "tickangle": 0},
    }


def _traces(rows: Sequence[Row], first: int, pairs: Mapping[str, Pair], reach: float) -> list[Trace]:
    """Return a trace for each verdict, worst first. The legend has the name of the verdict."""
    traces = []
    for verdict in wording.WORST_FIRST:
        alike = [(place, row) for place, row in enumerate(rows, start=first) if row.verdict is verdict]
        ratios = [row.ratio for _, row in alike if row.ratio is not None]
        if ratios:
            mark = MARKS[verdict]
            outline = {"width": 1.5, "color": mark.colour}
            trace = _points(wording.words(verdict), ratios, [place for place, _ in alike], reach) | {
                "marker": {"color": mark.colour, "symbol": mark.symbol, "size": 10, "line": outline},
                "hovertext": [hover(row, pairs.get(row.label)) for _, row in alike],
            }
            trace["error_x"]["color"] = mark.colour
            traces.append(trace)
    return traces


def _fleet_trace(line: Fleet, reach: float) -> Trace:
    verdict, change, interval = (_fleet_cells(line)[place] for place in (1, 4, 5))
    return _points("all together", [line.ratio], [0], reach) | {
        "marker": {"color": colours.INK, "symbol": "diamond-wide", "size": 14},
        "hovertext": [lines_for_plotly([_together(line), f"{verdict}: {change} ({interval})"])],
    }


def _points(name: str, ratios: Sequence[Ratio], places: Sequence[int], reach: float) -> Trace:
    values, intervals = [ratio.value for ratio in ratios], [_cut(ratio.interval, reach) for ratio in ratios]
    return {
        **{"type": "scatter", "mode": "markers", "name": for_plotly(name), "hoverinfo": "text"},
        **{"x": [rounded(value) for value in values], "y": list(places)},
        "error_x": error_bars(values, intervals, thickness=1.5, width=0),
    }


def _cut(interval: Interval | None, reach: float) -> Interval | None:
    """Return the part of an interval that is inside the plot."""
    if interval is None:
        return None
    end = math.exp(min(reach, _MOST_EXPONENT))
    return Interval(low=max(interval.low, 1 / end), high=min(interval.high, end))


def _arrows(ratios: Sequence[Ratio], reach: float) -> list[Trace]:
    """Return arrows at the edges of the plot, where intervals were cut."""
    end = math.exp(min(reach, _MOST_EXPONENT))
    ends = [(place, ratio.interval) for place, ratio in enumerate(ratios) if ratio.interval]
    left = [place for place, interval in ends if interval.low < 1 / end]
    right = [place for place, interval in ends if interval.high > end]
    return [
        {
            **{"type": "scatter", "mode": "markers", "name": "continues", "showlegend": False, "hoverinfo": "skip"},
            **{"x": [rounded(at)] * len(places), "y": places},
            "marker": {"color": colours.INK, "symbol": symbol, "size": 8},
        }
        for at, places, symbol in ((1 / end, left, "triangle-left"), (end, right, "triangle-right"))
        if places
    ]


def _texts(ratios: Sequence[Ratio], reach: float) -> list[Trace]:
    """Return two columns of text next to the plot: the changes, and their intervals. A narrow screen shows only the changes."""

    def column(words: Iterable[str], share: float) -> Trace:
        at = math.exp(min(-reach + 2 * reach / _FIELD * share, _MOST_EXPONENT))
        return texts([for_plotly(word) for word in words], [(at, place) for place in range(len(ratios))])

    changes, intervals = (
        column(map(wording.change, ratios), _CHANGE_AT),
        column(map(wording.interval, ratios), _INTERVAL_AT),
    )
    intervals["textfont"] = {"color": colours.MUTED, "size": 12}
    return [changes, intervals | {"meta": WIDE}]


def _summary(rows: Sequence[Row], line: Fleet | None, effects: Sequence[float]) -> str:
    verdicts = [row.verdict for row in rows]
    counts = [f"{verdicts.count(known)} {wording.words(known)}" for known in wording.WORST_FIRST if known in verdicts]
    together = f" All {line.pairs:,} pairs together: {wording.change(line.ratio)}." if line else ""
    band = " and ".join(f"×{1 + effect:.4g} or ÷{1 + effect:.4g}" for effect in effects)
    within = f" The band ends at {band}." if band else ""
    return f"{counted(len(rows), 'row')}: {', '.join(counts)}.{together}{within}"
