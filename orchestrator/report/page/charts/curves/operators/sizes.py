"""The chart of the speed-ups of operators over the sizes of their tensors: a line for each implementation. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

from orchestrator.files.printable_text import counted
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Trace, View, error_bars, figure, level, marker, note, scatter
from orchestrator.report.page.charts.curves import HEIGHT_PX, round_ticks, thin
from orchestrator.report.page.charts.curves.operators.calls import Call, by_what, shape_axis
from orchestrator.report.page.texts import lines_for_plotly, one_line, rounded

# The distance between the points of two lines at one shape. It keeps whiskers apart.
_APART = 0.04
# The axis is at least so wide around 1. Otherwise noise would look like a difference.
_LEAST_REACH = 1.1


def sizes(calls: Sequence[Call], facet: str) -> Chart:
    """Return the chart of speed-ups. An operator needs a speed-up at two shapes."""
    views = []
    for (panel, what), part in by_what(calls).items():
        claimed = [call for call in part if call.cell.speedup is not None and not call.cell.in_doubt]
        if len({call.shape for call in claimed}) > 1:
            views.append(_view((panel, what), claimed))
    reading = (
        "Speed relative to the baseline with otherwise equal settings, by the time of a call. The tensors grow from left to right. "
        "Whiskers are 95 % intervals over runs."
    )
    return Chart(
        id="sizes",
        title="Speed-up over sizes",
        reading=reading,
        facets=(facet, "Operator"),
        views=tuple(views),
    )


def _view(at: tuple[str, ...], calls: Sequence[Call]) -> View:
    shapes = list(dict.fromkeys(call.shape for call in calls))
    ways = list(dict.fromkeys(call.way for call in calls))
    lines = [[call for call in calls if call.way == way] for way in ways]
    ends = [end for call in calls for end in _ends(call)]
    low, high = min(1 / _LEAST_REACH, *ends), max(_LEAST_REACH, *ends)
    drawing = figure(
        [_line(at, line, shapes, (at - (len(lines) - 1) / 2) * _APART) for at, line in enumerate(lines)],
        height=HEIGHT_PX,
        x_title="shape",
        y_title="speed-up",
        legend=True,
        xaxis=shape_axis(shapes),
        yaxis={
            **{"type": "log", "tickvals": round_ticks(low / 1.05, high * 1.05), "ticksuffix": "×"},
            "range": [rounded(log10(low / 1.05)), rounded(log10(high * 1.05))],
        },
        shapes=[level(1, thin(colours.INK, "dash"))],
        annotations=[note(1, 0, "the baseline", xref="paper", xanchor="right", yanchor="bottom", colour=colours.MUTED)],
    )
    best = max(calls, key=lambda call: call.cell.speedup or 0.0)
    highest = f"the highest is {one_line(best.way)} at {best.shape} with {_words(best)}"
    return View(
        at=at,
        figure=drawing,
        summary=f"{at[1]} on {calls[0].cell.where}, {counted(len(shapes), 'shape')}; {highest}.",
        columns=("row", *shapes),
        rows=tuple(_row(line, shapes) for line in lines),
    )


def _ends(call: Call) -> tuple[float, ...]:
    interval = call.cell.speedup_interval
    return (call.cell.speedup or 1.0, *((interval.low, interval.high) if interval else ()))


def _words(call: Call) -> str:
    interval = call.cell.speedup_interval
    ends = f" ({interval.low:.2f} to {interval.high:.2f})" if interval else ""
    return f"{call.cell.speedup:.2f}×{ends}"


def _row(line: Sequence[Call], shapes: Sequence[str]) -> tuple[str, ...]:
    words = {call.shape: _words(call) for call in line}
    return (one_line(line[0].way), *(words.get(shape, "-") for shape in shapes))


def _line(at: int, line: Sequence[Call], shapes: Sequence[str], offset: float) -> Trace:
    cell = line[0].cell
    colour = colours.colour(cell.place)
    points = [(shapes.index(call.shape) + offset, call.cell.speedup or 1.0) for call in line]
    intervals = [call.cell.speedup_interval for call in line]
    whiskers = error_bars([y for _, y in points], intervals, color=colour, thickness=1.5, width=5)
    hover = [[call.way, f"{call.shape}: {_words(call)} the baseline", call.cell.id] for call in line]
    return scatter(
        "lines+markers",
        line[0].way,
        points,
        line={"color": colour, "dash": colours.dash(at), "width": 2},
        marker=marker(cell.place, size=9),
        hovertext=[*map(lines_for_plotly, hover)],
        hoverinfo="text",
        **({"error_y": whiskers} if any(intervals) else {}),
    )
