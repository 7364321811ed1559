"""The chart of throughput against memory, with its Pareto front. Pure: cells in, charts out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import MIB, Show, metric
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    WIDE,
    Chart,
    Trace,
    View,
    figure,
    marker,
    scatter,
)
from orchestrator.report.page.charts.chart_data import (
    ALL,
    SPEEDS,
    Cell,
    by_panel,
    first_measured,
    gpu_counts,
    noun,
    of_gpus,
)
from orchestrator.report.page.charts.curves import HEIGHT_PX, thin
from orchestrator.report.page.charts.row_axis import NBSP, row_names, words_at
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded, shown

GIB = 2**30
# The largest number of names next to points.
MOST_NAMES = 5

SPEEDS_PER_GPU = ("real_tokens_per_s_per_gpu", "tokens_per_s_per_gpu", "train_tokens_per_second", *SPEEDS)

MEMORIES = (
    *("device_peak_used_bytes", "mem_nvidia_mem_reserved", "peak_reserved_bytes"),
    *("mem_peak_torch_mem_alloc_in_bytes", "peak_allocated_bytes"),
)


def tradeoff(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of throughput against memory, with the Pareto front."""
    speed, need = first_measured(cells, SPEEDS_PER_GPU), first_measured(cells, MEMORIES)
    views = []
    if speed and need:
        both = [cell for cell in cells if speed in cell.numbers and need in cell.numbers]
        for panel, part in by_panel(both).items():
            counts = gpu_counts(part)
            choices = [(str(count), of_gpus(part, count)) for count in counts] if len(counts) > 1 else [(ALL, part)]
            views += [
                _tradeoff_view((panel, choice), drawn, speed, need) for choice, drawn in choices if len(drawn) > 1
            ]
    reading = (
        "Higher is faster, further left needs less memory. The line is the Pareto front: no point is both faster and smaller than "
        "a point on it. For every point below the line, a point on the line is better. A hollow point is in doubt, and not on the "
        "front."
    )
    facets = (facet, noun(cells))
    return Chart(
        id="tradeoff",
        title="Throughput against memory",
        reading=reading,
        facets=facets,
        views=tuple(views),
        together=True,
    )


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the points that are on the Pareto front, sorted by memory. A point is (memory, speed).

    A point is not on the front if another point is at least as good in both values and better in at least one.
    """
    best: list[int] = []
    for at in sorted(range(len(points)), key=lambda at: (points[at][0], -points[at][1])):
        if not best or points[at][1] > points[best[-1]][1] or points[at] == points[best[-1]]:
            best.append(at)
    return best


def _gib(cell: Cell, need: str) -> float:
    scale = MIB if metric(need).show is Show.MIB else 1
    return cell.numbers[need] * scale / GIB


def _tradeoff_view(at: tuple[str, ...], cells: Sequence[Cell], speed: str, need: str) -> View:
    points = [(_gib(cell, need), cell.numbers[speed]) for cell in cells]
    trusted = [n for n, cell in enumerate(cells) if not cell.in_doubt]
    best, names = [trusted[n] for n in front([points[n] for n in trusted])], row_names(cells)
    choices = list(dict.fromkeys(cell.choice for cell in cells))
    traces = [_front_line([points[place] for place in best])]
    for choice in choices:
        dots = [(cell, point) for cell, point in zip(cells, points, strict=True) if cell.choice == choice]
        traces.append(_dots(choice, dots, (speed, need)))
    traces.append(_front_names([(names[n], points[n]) for n in best]))
    drawing = figure(
        traces,
        height=HEIGHT_PX,
        x_title=for_plotly(f"GiB ({metric(need).label})"),
        y_title=for_plotly(metric(speed).unit or metric(speed).label),
        legend=True,
        xaxis={"range": _reach([x for x, _ in points], before=0.3, behind=0.06)},
        yaxis={"tickformat": "~s", "range": _reach([y for _, y in points], before=0.08, behind=0.15)},
    )
    on_front = [one_line(names[n], width=60) for n in best[:6]]
    table = []
    for n, cell in enumerate(cells):
        values = (shown(need, cell.numbers[need]), shown(speed, cell.numbers[speed]))
        table.append((one_line(cell.name), *values, "yes" if n in best else "", ", ".join(cell.doubts)))
    return View(
        at=at,
        figure=drawing,
        summary=f"{counted(len(cells), 'point')}; on the front: {', '.join(on_front) or 'none'}.",
        columns=("row", metric(need).label, metric(speed).label, "on the front", "remarks"),
        rows=tuple(table),
    )


def _front_line(points: Sequence[tuple[float, float]]) -> Trace:
    """Return the front as a line with right angles, since nothing is known between two of its points."""
    return scatter("lines", "Pareto front", points, line={**thin(colours.INK, "dot"), "shape": "hv"}, hoverinfo="skip")


def _reach(values: Sequence[float], *, before: float, behind: float) -> list[float | None]:
    """Return the two ends of an axis.

    They are beyond the lowest and the highest value by a share of the distance between these values.
    """
    low, high = min(values), max(values)
    span = max(high - low, 0.02 * high)
    return [rounded(max(0.0, low - before * span)), rounded(high + behind * span)]


def _front_names(named: Sequence[tuple[str, tuple[float, float]]]) -> Trace:
    """Return the names of some points of the front. The names are above the front and to its left, because no points are there."""
    every = math.ceil(len(named) / MOST_NAMES)
    chosen = named[::-1][::every]
    names = [for_plotly(name, width=34) + NBSP for name, _ in chosen]
    return words_at(names, [point for _, point in chosen], at="top left", meta=WIDE)


def _dots(choice: str, dots: Sequence[tuple[Cell, tuple[float, float]]], names: tuple[str, str]) -> Trace:
    hover = [
        [cell.full_name, *(f"{metric(name).label}: {shown(name, cell.numbers[name])}" for name in names), cell.id]
        for cell, _ in dots
    ]
    style = marker(dots[0][0].place, size=11, line={"color": colours.PAPER, "width": 1})
    style["symbol"] = [f"{style['symbol']}{'-open' if cell.in_doubt else ''}" for cell, _ in dots]
    return scatter(
        "markers",
        choice,
        [point for _, point in dots],
        marker=style,
        hovertext=[*map(lines_for_plotly, hover)],
        hoverinfo="text",
    )
