"""Charts of the parts of an experiment: memory, divided by counter, and wall time, divided by stage. Pure: cells in, charts out.

Memory has three numbers: allocated to tensors, reserved by torch's allocator, and in use on the device. Each number includes
the number before it, so they are not added up. Each number is a maximum, and the three maxima may be at different moments and
ranks. Stages follow one another, and their times are added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import MIB, Show, metric
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Trace, View, note, upright
from orchestrator.report.page.charts.chart_data import Cell, Key, first_measured, noun
from orchestrator.report.page.charts.row_axis import row_bars, row_figure, row_names, rows_of, texts
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, seconds, shown, size

GIB = 2**30

# The name of each part, from outside to inside, and its sources. The first source that any row has is used.
MEMORY = (
    ("on the device", ("device_peak_used_bytes", "mem_nvidia_mem_reserved")),
    ("reserved by torch", ("peak_reserved_bytes",)),
    ("allocated (tensors)", ("peak_allocated_bytes", "mem_peak_torch_mem_alloc_in_bytes")),
)

_WIDTHS = (0.78, 0.52, 0.26)
_ROOM, _NARROW_ROOM = 1.16, 1.45


MEASURING = "measuring (steady)"
# The name of each stage of a run, and the column of its seconds.
STAGES = {
    "starting (imports)": "startup_s",
    "loading the model": "model_load_s",
    "setting up": "trainer_setup_s",
    "warm-up and compiling": "warmup_s",
    MEASURING: "steady_s",
}
REST = "the rest (launching, pauses, ending)"
# The tone and the pattern of each stage. Neighbours differ in the tone, and the measurement is the darkest.
_LOOKS = dict(zip((*STAGES, REST), ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2)), strict=True))


def memory(cells: Sequence[Cell], facet: str, *, gpu_bytes: Mapping[Key, float]) -> Chart:
    """Return the chart of the parts of each row's peak memory, with the GPU's capacity.

    `gpu_bytes` maps an experiment's key to this capacity.
    """
    parts = [(name, source) for name, names in MEMORY if (source := first_measured(cells, names)) is not None]
    views = []
    measured = [cell for cell in cells if any(source in cell.numbers for _, source in parts)]
    for at, rows in rows_of(measured, lambda cell: (_largest(cell, parts), cell.name)):
        capacities = {gpu_bytes[cell.key] for cell in rows if cell.key in gpu_bytes}
        views.append(_memory_view(at, rows, parts, capacity=capacities.pop() if len(capacities) == 1 else None))
    reading = (
        "Three peaks, one inside the other: tensors, memory reserved by torch, all memory in use on the device. Each has its own "
        "moment and rank, so they are not added up. A dashed line marks the GPU's capacity, if it is near."
    )
    facets = (facet, noun(cells), "Rows")
    return Chart(
        id="memory", title="Memory by its parts", reading=reading, facets=facets, views=tuple(views), together=True
    )


def _largest(cell: Cell, parts: Sequence[tuple[str, str]]) -> float:
    return max((_bytes(cell, source) or 0.0 for _, source in parts), default=0.0)


def _bytes(cell: Cell, source: str) -> float | None:
    value = cell.numbers.get(source)
    return None if value is None else value * MIB if metric(source).show is Show.MIB else value


def _memory_view(
    at: tuple[str, ...], rows: Sequence[Cell], parts: Sequence[tuple[str, str]], *, capacity: float | None
) -> View:
    names = row_names(rows)
    widths = _WIDTHS[-len(parts) :]
    traces = [_nested(place, part, rows, width) for (place, part), width in zip(enumerate(parts), widths, strict=True)]
    outer = [_largest(cell, parts) for cell in rows]
    end = max(outer, default=0.0) / GIB
    end = max(end, capacity / GIB) if capacity and capacity / GIB < 6 * end else end
    words = [size(value) for value in outer]
    behind = texts([for_plotly(word) for word in words], [(value / GIB, row) for row, value in enumerate(outer)])
    figure = row_figure(
        names,
        [*traces, behind],
        x_title="GiB of the fullest GPU",
        x_range=(0, (end or 1) * _ROOM),
        narrow_range=(0, (end or 1) * _NARROW_ROOM),
        legend=True,
        above=28,
        barmode="overlay",
        **(_capacity_line(capacity / GIB) if capacity and capacity / GIB <= end else {}),
    )
    limit = f"; the GPU has {size(capacity)}" if capacity else ""
    table = [
        (one_line(name), *(shown(source, cell.numbers.get(source)) for _, source in parts))
        for name, cell in zip(names, rows, strict=True)
    ]
    ends = f"from {words[0]} to {words[-1]}" if len(rows) > 1 else words[0]
    summary = f"{counted(len(rows), 'row')}, {ends}{limit}."
    columns = ("row", *(f"{name}: {metric(source).label}" for name, source in parts))
    return View(at=at, figure=figure, summary=summary, columns=columns, rows=tuple(table))


def _nested(place: int, part: tuple[str, str], rows: Sequence[Cell], width: float) -> Trace:
    name, source = part
    values = {row: value / GIB for row, cell in enumerate(rows) if (value := _bytes(cell, source)) is not None}
    hover = [
        lines_for_plotly([rows[row].name, f"{name}: {shown(source, rows[row].numbers[source])}"]) for row in values
    ]
    return row_bars(name, values, hover, width=width, marker={"color": f"@part-{place}", "line": {"width": 0}})


def _capacity_line(gib: float) -> dict[str, Any]:
    """Return a dashed line at the GPU's capacity, and its name above the plot."""
    place = {"yref": "paper", "yanchor": "bottom", "xanchor": "right", "xshift": 4}
    label = note(gib, 1, f"GPU capacity: {gib:.0f} GiB", colour=colours.BAD, **place)
    return {"shapes": [upright(gib, {"color": colours.BAD, "dash": "dash", "width": 1.5})], "annotations": [label]}


def wall_time(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of a run's wall time by stages."""
    timed = [cell for cell in cells if {*stages_of(cell)} - {REST}]
    longest_first = rows_of(timed, lambda cell: (-cell.numbers.get("wall_s", 0.0), cell.name))
    views = [_time_view(at, rows) for at, rows in longest_first]
    reading = (
        "From the start of the launcher to the end of the run, as the mean over runs. The preparation of the data comes before and "
        "is not included. The rest is the time outside the stages."
    )
    facets = (facet, noun(cells), "Rows")
    return Chart(
        id="time", title="Where the wall time went", reading=reading, facets=facets, views=tuple(views), together=True
    )


def stages_of(cell: Cell) -> dict[str, float]:
    """Return the seconds of the known stages, and the rest of the wall time."""
    known = {name: cell.numbers[column] for name, column in STAGES.items() if column in cell.numbers}
    steps, rate = cell.numbers.get("steady_steps"), cell.numbers.get("steps_per_s")
    if MEASURING not in known and steps is not None and rate:  # older records have no steady_s
        known[MEASURING] = steps / rate
    rest = cell.numbers.get("wall_s", 0.0) - sum(known.values())
    return known | ({REST: rest} if rest > 0 else {})


def _time_view(at: tuple[str, ...], rows: Sequence[Cell]) -> View:
    names, split = row_names(rows), [stages_of(cell) for cell in rows]
    stages = [name for name in (*STAGES, REST) if any(name in parts for parts in split)]
    totals = [sum(parts.values()) for parts in split]
    traces = [_stage_bars(name, rows, split) for name in stages]
    words = [for_plotly(seconds(total)) for total in totals]
    end = max(totals, default=0.0) or 1.0
    figure = row_figure(
        names,
        [*traces, texts(words, [(total, row) for row, total in enumerate(totals)])],
        x_title="seconds of wall time",
        x_range=(0, end * _ROOM),
        narrow_range=(0, end * _NARROW_ROOM),
        legend=True,
        barmode="stack",
        bargap=0.35,
    )
    measured = sum(parts.get(MEASURING, 0.0) for parts in split)
    share = measured / sum(totals) if sum(totals) else 0.0
    table = [
        (one_line(row), *(seconds(parts.get(name)) for name in stages), seconds(total))
        for row, parts, total in zip(names, split, totals, strict=True)
    ]
    summary = f"{counted(len(rows), 'row')}; {share:.0%} of the wall time was the measured steady state."
    return View(at=at, figure=figure, summary=summary, columns=("row", *stages, "total"), rows=tuple(table))


def _stage_bars(name: str, rows: Sequence[Cell], split: Sequence[Mapping[str, float]]) -> Trace:
    values = {row: stages[name] for row, stages in enumerate(split) if name in stages}
    hover = [lines_for_plotly([rows[row].name, f"{name}: {seconds(value)}"]) for row, value in values.items()]
    return row_bars(name, values, hover, marker=colours.stage(*_LOOKS[name]))
