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
# The longest name, in letters, and the height of a name as a share of the drawing.
_NAME_WIDTH, _NAME_HEIGHT = 26, 0.06
# The width of a letter, and of the narrowest drawing with names.
_LETTER_PX, _NARROWEST_PX = 7, 480

# A name and its point.
_Label = tuple[str, tuple[float, float]]

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
            choices = [(str(count), of_gpus(part, count)) for count in gpu_counts(part)]
            views += [
                _tradeoff_view((panel, choice), drawn, speed, need) for choice, drawn in choices if len(drawn) > 1
            ]
    reading = (
        "Experiments on one number of GPUs. Higher is faster, further left needs less memory. The line is the Pareto front: no "
        "point is both faster and smaller than a point on it. For every point below the line, a point on the line is better. A "
        "hollow point is in doubt, and not on the front."
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
    y_reach = _reach([y for _, y in points], before=0.08, behind=0.15)
    labels = _labels([(names[n], points[n]) for n in best], _NAME_HEIGHT * (y_reach[1] - y_reach[0]))
    x_reach = _with_room(_reach([x for x, _ in points], before=0.1, behind=0.06), labels)
    traces.append(_front_names(labels, x_reach))
    drawing = figure(
        traces,
        height=HEIGHT_PX,
        x_title=for_plotly(f"GiB ({metric(need).label}) on {cells[0].where}"),
        y_title=for_plotly(metric(speed).unit or metric(speed).label),
        legend=True,
        xaxis={"range": [*map(rounded, x_reach)]},
        yaxis={"tickformat": "~s", "range": [*map(rounded, y_reach)]},
    )
    on_front = [one_line(names[n], width=60) for n in best[:6]]
    table = []
    for n, cell in enumerate(cells):
        values = (shown(need, cell.numbers[need]), shown(speed, cell.numbers[speed]))
        table.append((one_line(cell.name), *values, "yes" if n in best else "", ", ".join(cell.doubts)))
    return View(
        at=at,
        figure=drawing,
        summary=f"{counted(len(cells), 'point')} on {cells[0].where}; on the front: {', '.join(on_front) or 'none'}.",
        columns=("row", metric(need).label, metric(speed).label, "on the front", "remarks"),
        rows=tuple(table),
    )


def _front_line(points: Sequence[tuple[float, float]]) -> Trace:
    """Return the front as a line with right angles, since nothing is known between two of its points."""
    return scatter("lines", "Pareto front", points, line={**thin(colours.INK, "dot"), "shape": "hv"}, hoverinfo="skip")


def _reach(values: Sequence[float], *, before: float, behind: float) -> tuple[float, float]:
    """Return the two ends of an axis.

    They are beyond the lowest and the highest value by a share of the distance between these values.
    """
    low, high = min(values), max(values)
    span = max(high - low, 0.02 * high)
    return max(0.0, low - before * span), high + behind * span


def _labels(named: Sequence[_Label], height: float) -> list[_Label]:
    """Return the points of the front that get their names, the fastest first. Names are at least `height` apart."""
    chosen: list[_Label] = []
    for name, point in reversed(named):
        if not chosen or chosen[-1][1][1] - point[1] > height:
            chosen.append((for_plotly(name, width=_NAME_WIDTH), point))
    return chosen[:: math.ceil(len(chosen) / MOST_NAMES) or 1]


def _with_room(reach: tuple[float, float], labels: Sequence[_Label]) -> tuple[float, float]:
    """Return the ends of the x axis with room for the names to the left of their points, but never below 0."""
    low, high = reach
    needed = [(point[0] - _share(name) * high) / (1 - _share(name)) for name, point in labels]
    return max(0.0, min(low, *needed)) if needed else low, high


def _share(name: str) -> float:
    """Return the width of a name as a share of a small drawing."""
    return len(name) * _LETTER_PX / _NARROWEST_PX


def _front_names(labels: Sequence[_Label], reach: tuple[float, float]) -> Trace:
    """Return the names of points of the front, above it and to the left, because no points are there.

    Without room on the left, a name is on the right, so that it does not cover the axis.
    """
    low, high = reach
    on_left = [point[0] - low >= 0.99 * _share(name) * (high - low) for name, point in labels]
    words = [name + NBSP if left else NBSP + name for (name, _), left in zip(labels, on_left, strict=True)]
    at = ["top left" if left else "top right" for left in on_left]
    return words_at(words, [point for _, point in labels], at=at, meta=WIDE)


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
