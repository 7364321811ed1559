"""Draw the forest plot of a comparison: each row's ratio with its interval, worst first, one metric at a time. Pure.

The axis is logarithmic around no change. Changes inside the shaded band do not count. The first row is all pairs together. Colour
and symbol show the verdict, and words next to the row repeat the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.compare.comparison import Comparison, Fleet, Pair, Row
from orchestrator.compare.rules import Rules
from orchestrator.compare.view import marks, wording
from orchestrator.compare.view.axes import ratio_ticks
from orchestrator.compare.view.marks import MARKS
from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Ratio
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
# Characters of an experiment's name, in words and beside its row; what is longer is cut in its middle.
LABEL, NAME = 160, 50

# What stands between the parts of a label.
BETWEEN = " · "

MOST_DIFFERENCES = 4
_LEAST_REACH, _BEYOND_POINTS = math.log(1.03), 2.5
# A float ends at e^709.
_MOST_EXPONENT = 700.0

_FIELD, _CHANGE_AT, _INTERVAL_AT = 0.62, 0.64, 0.75
# Shares of the drawing's width: where the field ends and the words' columns begin; on a phone there is one column.
_NARROW_FIELD, _NARROW_CHANGE_AT = 0.7, 0.74


def forest(
    comparison: Comparison, of_metric: Mapping[str, Sequence[Row]], called: Mapping[str, str], *, most: int
) -> Chart:
    """Return the chart, with at most `most` rows per metric. `of_metric` has the rows with a ratio, worst first; `called` the
    metrics' headings."""
    by, pairs = marks.judged_by(comparison), {pair.label: pair for pair in comparison.pairs}
    fleet = {line.metric: line for line in comparison.fleet}
    views = [
        _view((called[name], stretch), some, fleet.get(name) if at == 0 else None, by=by, pairs=pairs)
        for name, rows in of_metric.items()
        for at, (stretch, some) in enumerate(in_stretches(rows[:most], ROWS))
        if some
    ]
    return Chart(
        id="forest",
        title="Ratios with their intervals",
        reading=(
            "New ÷ base of each experiment with its 95 % interval, worst first, on a logarithmic axis around no change. What lies "
            "within the shaded band is too small to count. A row without an interval has one run on one side, or is held against a "
            "tolerance; a wide diamond is the geometric mean over all pairs."
        ),
        facets=("Metric", "Rows"),
        views=tuple(views),
        notes=tuple(_notes(of_metric, called, most)),
    )


def _notes(of_metric: Mapping[str, Sequence[Row]], called: Mapping[str, str], most: int) -> list[str]:
    cut = [f"{len(rows):,} of {called[name]}" for name, rows in of_metric.items() if len(rows) > most]
    said = f"Of each metric the {most} worst rows are drawn here, of {', '.join(cut[:8])}; the table has all."
    return [said] if cut else []


def _view(
    at: tuple[str, str], rows: Sequence[Row], line: Fleet | None, *, by: Rules | None, pairs: Mapping[str, Pair]
) -> View:
    names = [*([_together(line)] if line else []), *short([row.label for row in rows])]
    ratios = [*([line.ratio] if line else []), *(row.ratio for row in rows if row.ratio is not None)]
    first = len(names) - len(rows)
    effects = sorted({found for row in rows if (found := marks.effect(row, by)) is not None}, reverse=True)
    reach = _reach(ratios, effects)
    figure: Figure = {
        "data": [
            *([_fleet_trace(line)] if line else []),
            *_traces(rows, first, pairs),
            *_words(ratios, reach),
        ],
        "layout": layout(
            height=len(names) * ROW_PX + FRAME_PX,
            x_title="new ÷ base, as a change",
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
        columns=("experiment", "verdict", "base", "new", "change", "95 % interval", "remarks"),
        rows=tuple(
            [
                *([_fleet_cells(line)] if line else []),
                *((one_line(row.label, width=LABEL), *cells(row)) for row in rows),
            ]
        ),
    )


def short(labels: Sequence[str]) -> list[str]:
    """Return the labels without their common parts, and of `owner/model` only the model, if they stay distinct."""
    parts = [label.split(BETWEEN) for label in labels]
    common = set(parts[0]).intersection(*parts[1:]) if len(parts) > 1 else set()
    own = [[part for part in some if part not in common] for some in parts]
    own = own if all(own) else parts
    less = [BETWEEN.join(part.rpartition("/")[2] or part for part in some) for some in own]
    whole = [BETWEEN.join(some) for some in own]
    return next((names for names in (less, whole) if len({*names}) == len({*labels})), list(labels))


def _together(line: Fleet) -> str:
    return f"all {line.pairs:,} pairs together"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row with a ratio in words: verdict, both values, change, interval, remarks."""
    assert row.ratio is not None
    base, _, new = wording.values(row).partition(" → ")
    words = (
        marks.signed(row.verdict),
        base,
        new,
        wording.percent(row.ratio.value),
        wording.interval(row.ratio) or DASH,
    )
    return *(one_line(word) for word in words), one_line(wording.note(row))


def hover(row: Row, pair: Pair | None) -> str:
    """Return the pointer's text for a row, in any chart."""
    verdict, _, _, change, interval, note = cells(row)
    between = f"{change} ({interval})" if interval != DASH else change
    found = pair.arguments[:MOST_DIFFERENCES] if pair else ()
    differs = [f"differs in {wording.difference(one)}" for one in found]
    values = wording.values(row)
    lines = [row.label, f"{verdict}: {between}", f"{wording.heading(row.metric)} {values}", note, *differs]
    return lines_for_plotly([one_line(line, width=LABEL) for line in lines if line])


def _fleet_cells(line: Fleet) -> tuple[str, ...]:
    change, interval = wording.percent(line.ratio.value), wording.interval(line.ratio) or DASH
    return _together(line), marks.signed(line.verdict), DASH, DASH, change, interval, ""


def _reach(ratios: Sequence[Ratio], effects: Sequence[float]) -> float:
    """Return how far the axis extends to each side, as a logarithm. A very long interval is cut by the drawing."""
    points = max([_LEAST_REACH, *(abs(math.log(one.value)) for one in ratios), *(1.4 * math.log1p(e) for e in effects)])
    ends = [abs(math.log(end)) for one in ratios if one.interval for end in (one.interval.low, one.interval.high)]
    return 1.06 * max(points, min(max(ends, default=0.0), points * _BEYOND_POINTS))


def _range(reach: float, field: float) -> list[float | None]:
    """Return the axis's range in exponents of ten: the drawing takes its share of the width, words take the rest."""
    ten = reach / math.log(10)
    return [rounded(-ten), rounded(-ten + 2 * ten / field)]


def _axis(reach: float) -> dict[str, Any]:
    values, words = ratio_ticks(reach)
    return {
        **{"type": "log", "range": _range(reach, _FIELD), "tickvals": [rounded(one) for one in values]},
        **{"ticktext": words, "zeroline": False, "showgrid": True, "fixedrange": True, "tickangle": 0},
    }


def _traces(rows: Sequence[Row], first: int, pairs: Mapping[str, Pair]) -> list[Trace]:
    """Return one trace for each verdict, worst first: its name is in the legend, its rows at their places."""
    found = []
    for verdict in wording.WORST_FIRST:
        some = [(place, row) for place, row in enumerate(rows, start=first) if row.verdict is verdict]
        ratios = [row.ratio for _, row in some if row.ratio is not None]
        if ratios:
            mark = MARKS[verdict]
            found.append(
                _points(wording.words(verdict), ratios, [place for place, _ in some])
                | {
                    "marker": {
                        "color": mark.colour,
                        "symbol": mark.symbol,
                        "size": 10,
                        "line": {"width": 1.5, "color": mark.colour},
                    },
                    "hovertext": [hover(row, pairs.get(row.label)) for _, row in some],
                }
            )
            found[-1]["error_x"]["color"] = mark.colour
    return found


def _fleet_trace(line: Fleet) -> Trace:
    verdict, change, interval = (_fleet_cells(line)[place] for place in (1, 4, 5))
    return _points("all together", [line.ratio], [0]) | {
        "marker": {"color": colours.INK, "symbol": "diamond-wide", "size": 14},
        "hovertext": [lines_for_plotly([_together(line), f"{verdict}: {change} ({interval})"])],
    }


def _points(name: str, ratios: Sequence[Ratio], places: Sequence[int]) -> Trace:
    values, intervals = [ratio.value for ratio in ratios], [ratio.interval for ratio in ratios]
    return {
        **{"type": "scatter", "mode": "markers", "name": for_plotly(name), "hoverinfo": "text"},
        **{"x": [rounded(value) for value in values], "y": list(places)},
        "error_x": error_bars(values, intervals, thickness=1.5, width=0),
    }


def _words(ratios: Sequence[Ratio], reach: float) -> list[Trace]:
    """Return two columns of words behind the drawing: the changes, and their intervals if there is room."""

    def column(words: Sequence[str], share: float, field: float) -> Trace:
        at = math.exp(min(-reach + 2 * reach / field * share, _MOST_EXPONENT))
        return texts([for_plotly(word) for word in words], [(at, place) for place in range(len(ratios))])

    changes = column([wording.percent(one.value) for one in ratios], _CHANGE_AT, _FIELD)
    intervals = column([wording.interval(one) for one in ratios], _INTERVAL_AT, _FIELD)
    intervals["textfont"] = {"color": colours.MUTED, "size": 12}
    return [changes, intervals | {"meta": WIDE}]


def _summary(rows: Sequence[Row], line: Fleet | None, effects: Sequence[float]) -> str:
    verdicts = [row.verdict for row in rows]
    found = [f"{verdicts.count(one)} {wording.words(one)}" for one in wording.WORST_FIRST if one in verdicts]
    together = f" All {line.pairs:,} pairs together: {wording.percent(line.ratio.value)}." if line else ""
    band = " and ".join(f"×{1 + effect:.4g} or ÷{1 + effect:.4g}" for effect in effects)
    within = f" The band ends at {band}." if band else ""
    return f"{counted(len(rows), 'row')}: {', '.join(found)}.{together}{within}"
