"""Draw the change of each experiment against its level: do the slow or the fast experiments change? Pure.

The horizontal axis is the value on base, the vertical axis the change in percent; both are logarithmic. Changes inside the shaded
band do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.compare.comparison import Comparison, Pair, Row, Verdict
from orchestrator.compare.rules import Rules
from orchestrator.compare.view import marks, wording
from orchestrator.compare.view.charts.axes import log_range, ratio_ticks, value_ticks
from orchestrator.compare.view.charts.forest import COLUMNS, LABEL, cells, hover
from orchestrator.compare.view.marks import MARKS
from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import Direction
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Figure, Trace, View, layout, level
from orchestrator.report.page.texts import for_plotly, one_line, rounded

HEIGHT_PX = 520
# The axes extend beyond the outermost values by at least this factor.
_ROOM = 1.12
_LEAST_REACH = math.log(1.03)


def scatter(
    comparison: Comparison, of_metric: Mapping[str, Sequence[Row]], headings: Mapping[str, str], *, most: int
) -> Chart:
    """Return the chart, with at most `most` points per metric. `of_metric` has the rows with a ratio, worst first."""
    by, pairs = marks.judged_by(comparison), {pair.label: pair for pair in comparison.pairs}
    cut = any(len(rows) > most for rows in of_metric.values())
    return Chart(
        id="scatter",
        title="Change by level",
        reading=(
            "Each point is an experiment: its value on base on the horizontal axis, and the change from base to new on the "
            "vertical axis. A change inside the shaded band is too small to count."
        ),
        facets=("Metric",),
        views=tuple(_view(headings[name], rows[:most], by=by, pairs=pairs) for name, rows in of_metric.items() if rows),
        notes=(f"The chart shows the {most:,} worst rows of each metric; the table has all rows.",) if cut else (),
    )


def _view(name: str, rows: Sequence[Row], *, by: Rules | None, pairs: Mapping[str, Pair]) -> View:
    low, high = _levels(rows)
    effects = marks.effects(rows, by)
    metric = rows[0].metric
    reach = max([_LEAST_REACH, *(abs(math.log(row.ratio.value)) for row in rows if row.ratio)]) * _ROOM
    levels, level_words = value_ticks(metric, low, high)
    changes, change_words = ratio_ticks(reach)
    ten = reach / math.log(10)
    figure: Figure = {
        "data": _points(rows, pairs),
        "layout": layout(
            height=HEIGHT_PX,
            x_title=for_plotly(f"base: {name}", width=60),
            y_title="change from base to new",
            legend=True,
            xaxis={"type": "log", "range": log_range(low, high), "tickvals": levels, "ticktext": level_words},
            yaxis={
                **{"type": "log", "range": [rounded(-ten), rounded(ten)], "zeroline": False},
                **{"tickvals": [rounded(change) for change in changes], "ticktext": change_words},
            },
            shapes=[
                *(_band(effect) for effect in effects),
                level(1, {"color": colours.MUTED, "width": 1.2}) | {"layer": "below"},
            ],
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


def _levels(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of the horizontal axis."""
    values = [row.base for row in rows if row.base is not None and row.base > 0]
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
                    **{
                        "x": [rounded(row.base) for row in alike],
                        "y": [rounded(row.ratio.value) for row in alike if row.ratio],
                    },
                    "legendrank": rank,
                    "marker": {"color": mark.colour, "symbol": mark.symbol, "size": 9, "opacity": 0.85},
                    **{"hovertext": [hover(row, pairs.get(row.label)) for row in alike], "hoverinfo": "text"},
                }
            )
    return traces


def _band(effect: float) -> dict[str, Any]:
    """Return the band between ÷(1 + effect) and ×(1 + effect)."""
    ends = {"y0": rounded(1 / (1 + effect)), "y1": rounded(1 + effect)}
    place = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, **ends, "layer": "below"}
    return place | {"fillcolor": colours.SHADE, "line": {"width": 0}}


def _sides(metric: str, by: Rules | None) -> list[dict[str, Any]]:
    """Return annotations that name the better and the worse half, if the better direction is known."""
    known = marks.rule(metric, by)
    if known is None:
        return []
    above, below = ("better", "worse") if known.direction is Direction.HIGHER else ("worse", "better")
    return [
        _note(above, 0, 1, xanchor="left", yanchor="top"),
        _note(below, 0, 0, xanchor="left", yanchor="bottom"),
    ]


def _note(text: str, x: float, y: float, **anchors: str) -> dict[str, Any]:
    place = {"x": x, "y": y, "xref": "x domain", "yref": "y domain", **anchors, "showarrow": False, "borderpad": 6}
    return {"text": text, **place, "font": {"color": colours.MUTED, "size": 12}}


def _summary(rows: Sequence[Row]) -> str:
    worse = sum(row.verdict is Verdict.REGRESSED for row in rows)
    better = sum(row.verdict is Verdict.IMPROVED for row in rows)
    return f"{counted(len(rows), 'experiment')}: {worse:,} regressed, {better:,} improved, {len(rows) - worse - better:,} neither."
