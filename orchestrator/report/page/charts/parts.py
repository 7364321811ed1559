"""Charts of the parts of an experiment: its memory by who counts it, its wall time by stages. Pure: cells in, charts out.

Memory's three numbers are inside each other and are not added up: the memory of tensors, of torch's allocator, and in use on
the device. Each is its own maximum, at its own moment and rank. Times follow one another and are added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import MIB, Show, metric
from orchestrator.measure.metrics import shown as forms
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Trace, View, note, upright
from orchestrator.report.page.charts.chart_data import Cell, Key, first_measured, noun
from orchestrator.report.page.charts.row_axis import row_bars, row_figure, row_names, rows_of, texts
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, shown

GIB = 2**30

# The name of each part, from outside to inside, and its sources. The first source that any row has is used.
MEMORY = (
    ("on the device", ("device_peak_used_bytes", "mem_nvidia_mem_reserved")),
    ("reserved by torch", ("peak_reserved_bytes",)),
    ("allocated (tensors)", ("peak_allocated_bytes", "mem_peak_torch_mem_alloc_in_bytes")),
)

_WIDTHS = (0.78, 0.52, 0.26)
_ROOM, _NARROW_ROOM = 1.16, 1.45


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """A stretch of a run's wall time: its name, and a function that returns its seconds, if known."""

    name: str
    seconds: Callable[[Cell], float | None]


def _measuring(cell: Cell) -> float | None:
    """Return the seconds of the steady state; older records have no steady_s."""
    steps, rate = cell.numbers.get("steady_steps"), cell.numbers.get("steps_per_s")
    return cell.numbers.get("steady_s", steps / rate if steps is not None and rate else None)


def _named(name: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell.numbers.get(name)


STAGES = (
    Stage(name="starting (imports)", seconds=_named("startup_s")),
    Stage(name="loading the model", seconds=_named("model_load_s")),
    Stage(name="setting up", seconds=_named("trainer_setup_s")),
    Stage(name="warm-up and compiling", seconds=_named("warmup_s")),
    Stage(name="measuring (steady)", seconds=_measuring),
)
REST = "the rest (launching, pauses, ending)"


def memory(cells: Sequence[Cell], facet: str, *, card_bytes: Mapping[Key, float]) -> Chart:
    """Return the chart of each row's peak memory by parts, with the GPU's capacity (`card_bytes` by the experiment's key)."""
    sources = [(name, first_measured(cells, names)) for name, names in MEMORY]
    parts = [(name, source) for name, source in sources if source is not None]
    views = []
    for at, rows in rows_of(cells, lambda cell: any(source in cell.numbers for _, source in parts), _by_need(parts)):
        cards = {card_bytes[cell.key] for cell in rows if cell.key in card_bytes}
        views.append(_memory_view(at, rows, parts, card=cards.pop() if len(cards) == 1 else None))
    reading = (
        "Three peaks, one inside the other: tensors, memory reserved by torch, all memory in use on the device. Each has its own "
        "moment and rank, so they are not added up. A dashed line marks the GPU's capacity, if it is near."
    )
    return Chart(
        id="memory",
        title="Memory by its parts",
        reading=reading,
        facets=(facet, noun(cells), "Rows"),
        views=tuple(views),
    )


def _by_need(parts: Sequence[tuple[str, str]]) -> Callable[[Cell], Any]:
    return lambda cell: (max((_bytes(cell, source) or 0.0 for _, source in parts), default=0.0), cell.name)


def _bytes(cell: Cell, source: str) -> float | None:
    value = cell.numbers.get(source)
    return None if value is None else value * MIB if metric(source).show is Show.MIB else value


def _memory_view(
    at: tuple[str, ...], rows: Sequence[Cell], parts: Sequence[tuple[str, str]], *, card: float | None
) -> View:
    names = row_names(rows)
    widths = _WIDTHS[-len(parts) :]
    traces = [_nested(place, part, rows, width) for (place, part), width in zip(enumerate(parts), widths, strict=True)]
    outer = [max((_bytes(cell, source) or 0.0 for _, source in parts), default=0.0) for cell in rows]
    end = max(outer, default=0.0) / GIB
    end = max(end, card / GIB) if card and card / GIB < 6 * end else end
    words = [f"{forms.text(value, Show.BYTES)}" for value in outer]
    behind = texts([for_plotly(word) for word in words], [(value / GIB, row) for row, value in enumerate(outer)])
    figure = row_figure(
        names,
        [*traces, behind],
        x_title="GiB on the GPU where it is highest",
        x_range=(0, (end or 1) * _ROOM),
        narrow_range=(0, (end or 1) * _NARROW_ROOM),
        legend=True,
        above=28,
        barmode="overlay",
        **(_card_line(card / GIB) if card and card / GIB <= end else {}),
    )
    said = f"; the GPU has {forms.text(card, Show.BYTES)}" if card else ""
    table = [
        (one_line(name), *(_shown_bytes(cell, source) for _, source in parts))
        for name, cell in zip(names, rows, strict=True)
    ]
    ends = f"from {words[0]} to {words[-1]}" if len(rows) > 1 else words[0]
    summary = f"{counted(len(rows), 'row')}, {ends}{said}."
    return View(
        at=at,
        figure=figure,
        summary=summary,
        columns=("row", *(_part_label(*part) for part in parts)),
        rows=tuple(table),
    )


def _part_label(name: str, source: str) -> str:
    return f"{name}: {metric(source).label}"


def _shown_bytes(cell: Cell, source: str) -> str:
    return shown(source, cell.numbers.get(source))


def _nested(place: int, part: tuple[str, str], rows: Sequence[Cell], width: float) -> Trace:
    name, source = part
    values = {row: value / GIB for row, cell in enumerate(rows) if (value := _bytes(cell, source)) is not None}
    hover = [lines_for_plotly([rows[row].name, f"{name}: {_shown_bytes(rows[row], source)}"]) for row in values]
    return row_bars(name, values, hover, width=width, marker={"color": f"@part-{place}", "line": {"width": 0}})


def _card_line(gib: float) -> dict[str, Any]:
    """Return a dashed line at the GPU's capacity, and its name above the plot."""
    place = {"yref": "paper", "yanchor": "bottom", "xanchor": "right", "xshift": 4}
    label = note(gib, 1, f"GPU capacity: {gib:.0f} GiB", colour=colours.BAD, **place)
    return {"shapes": [upright(gib, {"color": colours.BAD, "dash": "dash", "width": 1.5})], "annotations": [label]}


def wall_time(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of a run's wall time by stages."""
    found = rows_of(cells, lambda cell: any(stage.seconds(cell) is not None for stage in STAGES), _by_wall)
    views = [_time_view(at, rows) for at, rows in found]
    reading = (
        "From the start of the launcher to the end of the run, as the mean over runs. Preparing the data comes before and is not "
        "included. The rest contains all time that belongs to no stage."
    )
    return Chart(
        id="time",
        title="Where the wall time went",
        reading=reading,
        facets=(facet, noun(cells), "Rows"),
        views=tuple(views),
    )


def _by_wall(cell: Cell) -> Any:
    return (-cell.numbers.get("wall_s", 0.0), cell.name)


def stages_of(cell: Cell) -> dict[str, float]:
    """Return the seconds of the known stages, and the rest of the wall time."""
    known = {stage.name: seconds for stage in STAGES if (seconds := stage.seconds(cell)) is not None}
    rest = cell.numbers.get("wall_s", 0.0) - sum(known.values())
    return known | ({REST: rest} if rest > 0 else {})


def _time_view(at: tuple[str, ...], rows: Sequence[Cell]) -> View:
    names, split = row_names(rows), [stages_of(cell) for cell in rows]
    stages = [name for name in (*(stage.name for stage in STAGES), REST) if any(name in one for one in split)]
    totals = [sum(one.values()) for one in split]
    traces = [_stage_bars(place, name, rows, split) for place, name in enumerate(stages)]
    words = [for_plotly(f"{forms.text(total, Show.SECONDS)}") for total in totals]
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
    measured = sum(one.get(STAGES[-1].name, 0.0) for one in split)
    share = measured / sum(totals) if sum(totals) else 0.0
    table = [
        (one_line(row), *(_seconds(one.get(name)) for name in stages), _seconds(total))
        for row, one, total in zip(names, split, totals, strict=True)
    ]
    return View(
        at=at,
        figure=figure,
        summary=f"{counted(len(rows), 'row')}; {share:.0%} of the wall time was the measured steady state.",
        columns=("row", *stages, "total"),
        rows=tuple(table),
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else forms.text(value, Show.SECONDS)


def _stage_bars(place: int, name: str, rows: Sequence[Cell], split: Sequence[Mapping[str, float]]) -> Trace:
    values = {row: stages[name] for row, stages in enumerate(split) if name in stages}
    hover = [lines_for_plotly([rows[row].name, f"{name}: {_seconds(seconds)}"]) for row, seconds in values.items()]
    style = {} if name != REST else {"color": colours.MUTED}
    return row_bars(name, values, hover, marker=colours.bar(place) | style)
