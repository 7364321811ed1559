"""Charts of points and lines: scaling over GPU counts, throughput against memory. Pure: cells in, charts out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import MIB, Show, metric
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    WIDE,
    Chart,
    Figure,
    Trace,
    View,
    in_stretches,
    layout,
    level,
    marker,
    note,
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
from orchestrator.report.page.charts.row_axis import NBSP, row_names, words_at
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded, shown

GIB = 2**30
HEIGHT_PX = 420
# Lines in one drawing, and names next to points: nobody can distinguish more.
LINES, MOST_NAMES = 8, 5

SPEEDS_A_GPU = ("real_tokens_per_s_per_gpu", "tokens_per_s_per_gpu", "train_tokens_per_second", *SPEEDS)

EFFICIENCY = "scaling_efficiency"
NEED = (
    *("device_peak_used_bytes", "mem_nvidia_mem_reserved", "peak_reserved_bytes"),
    *("mem_peak_torch_mem_alloc_in_bytes", "peak_allocated_bytes"),
)


def scaling(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of speed per GPU over GPU counts, relative to the smallest count."""
    views = []
    for panel, part in by_panel([cell for cell in cells if EFFICIENCY in cell.numbers]).items():
        names = list(dict.fromkeys(cell.name for cell in part))
        for stretch, some in in_stretches(names, LINES):
            lines = [[cell for cell in part if cell.name == name] for name in some]
            views.append(_scaling_view((panel, stretch), [line for line in lines if line]))
    reading = (
        "Tokens per second and GPU, relative to the same row at its smallest GPU count. 100 % (dashed) is ideal; communication "
        "and waiting cost the rest."
    )
    return Chart(id="scaling", title="Scaling over GPUs", reading=reading, facets=(facet, "Rows"), views=tuple(views))


def _scaling_view(at: tuple[str, ...], lines: Sequence[Sequence[Cell]]) -> View:
    counts = gpu_counts([cell for line in lines for cell in line])
    shares = [cell.numbers[EFFICIENCY] for line in lines for cell in line]
    traces = [_scaling_line(place, sorted(line, key=lambda cell: cell.gpus)) for place, line in enumerate(lines)]
    low = min(0.8, *(share - 0.05 for share in shares))
    figure: Figure = {
        "data": traces,
        "layout": layout(
            height=HEIGHT_PX,
            x_title=noun(lines[0]),
            y_title="share of ideal",
            legend=True,
            xaxis={"type": "log", "tickvals": counts, "ticktext": [str(count) for count in counts], "showgrid": False},
            yaxis={"tickformat": ".0%", "range": [rounded(max(0.0, low)), rounded(max(1.06, *shares) + 0.02)]},
            shapes=[level(1, _thin(colours.INK, "dash"))],
            annotations=[note(1, 1, "ideal", xref="paper", xanchor="right", yanchor="bottom")],
        ),
        "narrow": {},
    }
    worst = min((cell for line in lines for cell in line), key=lambda cell: cell.numbers[EFFICIENCY])
    return View(
        at=at,
        figure=figure,
        summary=f"{counted(len(lines), 'row')} over {', '.join(map(str, counts))} GPUs; the lowest is {one_line(worst.name)} on "
        f"{worst.where} with {shown(EFFICIENCY, worst.numbers[EFFICIENCY])} of ideal.",
        columns=("row", *(f"on {count}" for count in counts)),
        rows=tuple(_scaling_row(line, counts) for line in lines),
    )


def _scaling_row(line: Sequence[Cell], counts: Sequence[int]) -> tuple[str, ...]:
    share = {cell.gpus: cell.numbers[EFFICIENCY] for cell in line}
    return (one_line(line[0].name), *(shown(EFFICIENCY, share.get(count)) for count in counts))


def _scaling_line(place: int, line: Sequence[Cell]) -> Trace:
    hover = [f"{cell.where}: {shown(EFFICIENCY, cell.numbers[EFFICIENCY])} of ideal" for cell in line]
    return scatter(
        "lines+markers",
        line[0].name,
        [(cell.gpus, cell.numbers[EFFICIENCY]) for cell in line],
        line={"color": colours.colour(place), "dash": colours.dash(place), "width": 2},
        marker=marker(place, size=9),
        hovertext=[lines_for_plotly([cell.name, words]) for cell, words in zip(line, hover, strict=True)],
        hoverinfo="text",
    )


def tradeoff(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of throughput against memory, with the Pareto front."""
    speed, need = first_measured(cells, SPEEDS_A_GPU), first_measured(cells, NEED)
    views = []
    if speed and need:
        both = [cell for cell in cells if speed in cell.numbers and need in cell.numbers]
        for panel, part in by_panel(both).items():
            counts = gpu_counts(part)
            choices = [
                (ALL, part),
                *([(str(count), of_gpus(part, count)) for count in counts] if len(counts) > 1 else []),
            ]
            views += [_tradeoff_view((panel, choice), some, speed, need) for choice, some in choices if len(some) > 1]
    reading = (
        "Higher is faster, further left needs less memory. No point is both faster and smaller than a point on the line (the "
        "Pareto front). Another point beats every point below the line."
    )
    return Chart(
        id="tradeoff",
        title="Throughput against memory",
        reading=reading,
        facets=(facet, noun(cells)),
        views=tuple(views),
    )


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the places of the points on the Pareto front, by memory. A point is beaten if another is at least as good in both and
    better in one."""
    found: list[int] = []
    fastest = float("-inf")
    for at in sorted(range(len(points)), key=lambda at: (points[at][0], -points[at][1])):
        if points[at][1] > fastest:
            found.append(at)
            fastest = points[at][1]
        elif found and points[at] == points[found[-1]]:
            found.append(at)
    return found


def _gib(cell: Cell, need: str) -> float:
    scale = MIB if metric(need).show is Show.MIB else 1
    return cell.numbers[need] * scale / GIB


def _tradeoff_view(at: tuple[str, ...], cells: Sequence[Cell], speed: str, need: str) -> View:
    points = [(_gib(cell, need), cell.numbers[speed]) for cell in cells]
    best, names = front(points), row_names(cells)
    on_it = {*best}
    frameworks = list(dict.fromkeys(cell.framework for cell in cells))
    traces = [_front_line([points[place] for place in best])]
    for place, framework in enumerate(frameworks):
        some = [n for n, cell in enumerate(cells) if cell.framework == framework]
        traces.append(_dots(place, framework, [cells[n] for n in some], [points[n] for n in some], (speed, need)))
    traces.append(_front_names([(names[n], points[n]) for n in best]))
    figure: Figure = {
        "data": traces,
        "layout": layout(
            height=HEIGHT_PX,
            x_title=for_plotly(f"GiB ({metric(need).label})"),
            y_title=for_plotly(metric(speed).unit or metric(speed).label),
            legend=True,
            xaxis={"range": _reach([x for x, _ in points], before=0.3, behind=0.06)},
            yaxis={"tickformat": "~s", "range": _reach([y for _, y in points], before=0.08, behind=0.15)},
        ),
        "narrow": {},
    }
    table = [
        (
            one_line(cell.name),
            shown(need, cell.numbers[need]),
            shown(speed, cell.numbers[speed]),
            "yes" if n in on_it else "",
        )
        for n, (name, cell) in enumerate(zip(names, cells, strict=True))
    ]
    return View(
        at=at,
        figure=figure,
        summary=f"{counted(len(cells), 'point')}; on the front: {', '.join(one_line(names[n], width=60) for n in best[:6])}.",
        columns=("row", metric(need).label, metric(speed).label, "on the front"),
        rows=tuple(table),
    )


def _front_line(points: Sequence[tuple[float, float]]) -> Trace:
    """Return steps, since nothing is known between two points of the front."""
    return scatter("lines", "Pareto front", points, line={**_thin(colours.INK, "dot"), "shape": "hv"}, hoverinfo="skip")


def _reach(values: Sequence[float], *, before: float, behind: float) -> list[float | None]:
    """Return an axis from the lowest value to the highest, with a share of their distance beyond each end."""
    low, high = min(values), max(values)
    span = max(high - low, 0.02 * high)
    return [rounded(max(0.0, low - before * span)), rounded(high + behind * span)]


def _front_names(named: Sequence[tuple[str, tuple[float, float]]]) -> Trace:
    """Return the names of some points of the front. Above and to the left of it, they cover nothing."""
    every = math.ceil(len(named) / MOST_NAMES)
    some = named[::-1][::every]
    names = [for_plotly(name, width=34) + NBSP for name, _ in some]
    return words_at(names, [point for _, point in some], at="top left", meta=WIDE)


def _dots(
    place: int, framework: str, cells: Sequence[Cell], points: Sequence[tuple[float, float]], names: tuple[str, str]
) -> Trace:
    hover = [[f"{metric(name).label}: {shown(name, cell.numbers[name])}" for name in names] for cell in cells]
    return scatter(
        "markers",
        framework,
        points,
        marker=marker(place, size=11, line={"color": colours.PAPER, "width": 1}),
        hovertext=[
            lines_for_plotly([cell.full_name, *words, cell.id]) for cell, words in zip(cells, hover, strict=True)
        ],
        hoverinfo="text",
    )


def _thin(colour: str, dash: str) -> dict[str, Any]:
    return {"color": colour, "dash": dash, "width": 1.5}
