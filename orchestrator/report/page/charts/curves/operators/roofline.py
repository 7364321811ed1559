"""The chart of operators against the roof of the card: operations per second over operations per byte, and bytes per second. Pure.

The roof is what the card reached in a screen (`run --screen`), not what its data sheet promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log10

from orchestrator.files.printable_text import counted
from orchestrator.report.highlights.host_bound import LEAST_BUSY
from orchestrator.report.highlights.wording import percent
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Figure, Trace, View, figure, level, marker, note, scatter
from orchestrator.report.page.charts.curves import HEIGHT_PX, round_ticks, thin
from orchestrator.report.page.charts.curves.operators.calls import HBM, MATMUL, Call, Roof, by_what, shape_axis
from orchestrator.report.page.texts import lines_for_plotly, one_line, rounded, shown
from orchestrator.screen.figures import KINDS
from orchestrator.screen.view import amount

ROOFLINE, RATES = "operations", "bytes"
_TFLOPS, _BUSY = "operator_tflops_per_s", "device_busy_share"
_GIGA, _TERA = 1e9, 1e12
# The axes end so far beyond the points, as a factor.
_MARGIN = 2.0
# A call that only reads is a little faster than a copy. With a larger share of the roof, the bytes do not come from the memory.
_FROM_CACHE = 1.15


def roofline(calls: Sequence[Call], facet: str) -> Chart:
    """Return the chart of the calls whose card was screened. In `operations`, a call needs a known number of operations."""
    views: list[View] = []
    known = [call for call in calls if call.roof and call.bytes_per_s and not call.cell.in_doubt]
    for panel in dict.fromkeys(call.cell.panel for call in known):
        part = [call for call in known if call.cell.panel == panel]
        for card in dict.fromkeys(call.roof for call in part if call.roof):
            there = [call for call in part if call.roof == card]
            if counting := [call for call in there if call.intensity]:
                views.append(_roofline_view((panel, ROOFLINE, card.card, "all"), counting, card))
            for (_, what), some in by_what(there).items():
                views.append(_rates_view((panel, RATES, card.card, what), some, card))
    reading = (
        "The lines are the roof of the card, as `tunebench run --screen` measured it: a large bfloat16 product, and a copy in the "
        "card's memory. Under the slope, the memory is the limit; under the flat part, computing is. Far below both, a better "
        "kernel could be faster, unless the call waits for the host. A call whose tensors stay in the card's cache may be above "
        "the slope."
    )
    return Chart(
        id="roofline",
        title="Operators against the roof of the card",
        reading=reading,
        facets=(facet, "Shown as", "Card", "Operator"),
        views=tuple(views),
    )


def _roofline_view(at: tuple[str, ...], calls: Sequence[Call], roof: Roof) -> View:
    points = {id(call): (call.intensity or 1.0, (call.flops_per_s or 0.0) / _TERA) for call in calls}
    xs, ys = [x for x, _ in points.values()], [y for _, y in points.values()]
    knee = [roof.flops_per_s / roof.bytes_per_s] if roof.flops_per_s and roof.bytes_per_s else []
    left, right = min([*xs, *knee]) / _MARGIN, max([*xs, *knee]) * _MARGIN
    lines = [*_roof_lines(roof, left, right)]
    low, high = min(ys) / _MARGIN, max([*ys, *(y for line in lines for y in line["y"])]) * _MARGIN
    drawing = figure(
        [*lines, *_dots(calls, [points[id(call)] for call in calls], lines=False)],
        height=HEIGHT_PX,
        x_title="operations for each byte",
        y_title="TFLOP/s",
        legend=True,
        xaxis={"type": "log", "tickvals": round_ticks(left, right), "range": _log_range(left, right)},
        yaxis={"type": "log", "tickvals": round_ticks(low, high), "range": _log_range(low, high)},
    )
    return _with_table(at, drawing, calls, roof)


def _roof_lines(roof: Roof, left: float, right: float) -> Iterator[Trace]:
    """Yield the slope of the memory and the flat part of computing. If both are known, each ends where they meet."""
    style = thin(colours.INK, "solid")
    slope, flat = roof.bytes_per_s, roof.flops_per_s
    knee = flat / slope if slope and flat else None
    if slope:
        ends = (left, knee or right)
        yield scatter("lines", _copy(roof), [(x, x * slope / _TERA) for x in ends], line=style, hoverinfo="skip")
    if flat:
        ends = (knee or left, right)
        words = f"{KINDS[MATMUL].label} {amount(MATMUL, flat)} {KINDS[MATMUL].unit}"
        dashed = thin(colours.INK, "dash")
        yield scatter("lines", words, [(x, flat / _TERA) for x in ends], line=dashed, hoverinfo="skip")


def _rates_view(at: tuple[str, ...], calls: Sequence[Call], roof: Roof) -> View:
    """Draw bytes per second over shapes."""
    shapes = list(dict.fromkeys(call.shape for call in calls))
    points = [(shapes.index(call.shape), (call.bytes_per_s or 0.0) / _GIGA) for call in calls]
    top = (roof.bytes_per_s or 0.0) / _GIGA
    drawing = figure(
        _dots(calls, points, lines=True),
        height=HEIGHT_PX,
        x_title="shape",
        y_title="GB/s",
        legend=True,
        xaxis=shape_axis(shapes),
        yaxis={"range": [0, rounded(1.12 * max(top, *(y for _, y in points)))]},
        shapes=[level(rounded(top), thin(colours.INK, "solid"))] if top else [],
        annotations=[note(0, rounded(top), _copy(roof), xref="paper", xanchor="left", yanchor="bottom")] if top else [],
    )
    return _with_table(at, drawing, calls, roof)


def _copy(roof: Roof) -> str:
    return f"{KINDS[HBM].label} {amount(HBM, roof.bytes_per_s or 0.0)} {KINDS[HBM].unit}"


def _log_range(low: float, high: float) -> list[float | None]:
    return [rounded(log10(low)), rounded(log10(high))]


def _dots(calls: Sequence[Call], points: Sequence[tuple[float, float]], *, lines: bool) -> list[Trace]:
    """Return a trace for each way to call. `lines` connects its points."""
    traces = []
    for at, way in enumerate(dict.fromkeys(call.way for call in calls)):
        some = [(call, point) for call, point in zip(calls, points, strict=True) if call.way == way]
        place = some[0][0].cell.place if some[0][0].cell.setting else at
        line = {"color": colours.colour(place), "dash": colours.dash(place), "width": 2}
        traces.append(
            scatter(
                "lines+markers" if lines else "markers",
                way,
                [point for _, point in some],
                marker=marker(place, size=10, line={"color": colours.PAPER, "width": 1}),
                hovertext=[lines_for_plotly(_hover(call)) for call, _ in some],
                hoverinfo="text",
                **({"line": line} if lines else {}),
            )
        )
    return traces


def _hover(call: Call) -> list[str]:
    _, flops, rate, share, remarks = _numbers(call)
    words = [call.way, f"{call.what} · {call.shape}"]
    words += [flops] if flops != "-" else []
    return [*words, rate, f"{share} of the roof" if share != "-" else "", remarks, call.cell.id]


def _numbers(call: Call) -> tuple[str, str, str, str, str]:
    """Return the operations for each byte, both rates, the share of the roof, and remarks."""
    numbers, limit = call.cell.numbers, call.limit()
    busy = numbers.get(_BUSY)
    unknown = ", as far as known: a screen has no float32 product" if call.flops_per_s and not call.is_half else ""
    remarks = [f"limit: {limit[1]}{unknown}"] if limit else []
    remarks += ["its tensors stay in a cache"] if limit and limit[0] > _FROM_CACHE else []
    remarks += (
        [f"host-bound: the GPU is busy for {percent(busy)} of a call"] if busy is not None and busy < LEAST_BUSY else []
    )
    return (
        f"{call.intensity:.1f}" if call.intensity else "-",
        f"{shown(_TFLOPS, numbers[_TFLOPS])} TFLOP/s" if call.flops_per_s else "-",
        f"{amount(HBM, call.bytes_per_s or 0.0)} {KINDS[HBM].unit}",
        percent(limit[0]) if limit else "-",
        ", ".join(remarks),
    )


def _with_table(at: tuple[str, ...], drawing: Figure, calls: Sequence[Call], roof: Roof) -> View:
    nearest = max(calls, key=lambda call: (call.limit() or (0.0, ""))[0])
    limit = nearest.limit()
    sentence = f"{counted(len(calls), 'call')} on {one_line(roof.card)}"
    if limit:
        named = f"{one_line(nearest.way)}, {nearest.what} {nearest.shape}"
        sentence += f"; the nearest to the roof is {named} with {percent(limit[0])} of the {limit[1]} roof"
    return View(
        at=at,
        figure=drawing,
        summary=f"{sentence}.",
        columns=("row", "call", "shape", "FLOP/byte", "FLOP/s", "bytes/s", "of the roof", "remarks"),
        rows=tuple((one_line(call.way), call.what, call.shape, *_numbers(call)) for call in calls),
    )
