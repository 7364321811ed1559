"""Sentences about scaling: speed per GPU, compared with the smallest count of a configuration, and with neighbouring counts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Ratio, ratio
from orchestrator.measure.metrics import METRICS
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.wording import change, direction, efficiency, factor
from orchestrator.results.table.aggregate import (
    PER_GPU,
    REAL_PER_GPU,
    Cell,
    scaled_speed,
    scaling_groups,
    scaling_groups_of,
    size,
)
from orchestrator.results.table.axes import arguments_of
from orchestrator.results.table.baseline import ok_runs
from orchestrator.results.table.column_choice import GPUS, Numbers, column
from orchestrator.results.table.load import ResultsTable

MOST_SCALING = 4
_FACTS = (
    *("results", "id", "scenario", "model_name_or_path", "device", "trainer", "python", "data", "framework_config"),
    *("environment", "num_gpus", "num_nodes", "global_batch", "sources"),
)
_SPEEDS = (PER_GPU, REAL_PER_GPU)
# A series with each number of GPUs on the fewest nodes fills one node, and goes on with several nodes.
_FEWEST_NODES = "fewest nodes"
# All counts of a series have the same value of one of these functions.
_SERIES: tuple[Callable[[int, int], Hashable], ...] = (
    lambda gpus, nodes: ("nodes", nodes),
    lambda gpus, nodes: ("GPUs per node", gpus / nodes),
    lambda gpus, nodes: ("GPUs", gpus),
    lambda gpus, nodes: _FEWEST_NODES,
)

_Runs = Sequence[Mapping[str, Sequence[float]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Dip:
    """A row that is slower per GPU than its neighbours in a series: the rows `smaller` and `larger`, and the ratios to them."""

    row: int
    smaller: int
    larger: int
    to_smaller: Ratio
    to_larger: Ratio


def scaling(known: Known) -> Iterator[Highlight]:
    """Yield a sentence for each configuration, about all its GPU counts. The configuration with the best scaling comes first."""
    groups: dict[int, list[tuple[int, Ratio]]] = {}
    for base, row, speed in scalings(known.table):
        if not known.in_doubt(row, base):
            groups.setdefault(base, []).append((row, speed))
    best = sorted(groups.items(), key=lambda group: -round(group[1][-1][1].value, 3))
    for base, more in best[:MOST_SCALING]:
        parts = ", ".join(
            f"{known.names.processes(row)}{_unlike(known, row, base)} {efficiency(speed)}" for row, speed in more
        )
        text = f"{known.names.cell(base)}: {parts} of ideal scaling from {known.names.processes(base)}"
        yield known.sentence(HighlightKind.GAIN, text, [base, *(row for row, _ in more)])
    rest = [row for base, more in best[MOST_SCALING:] for row in (base, *(row for row, _ in more))]
    if rest:
        text = f"{counted(len(best) - MOST_SCALING, 'more configuration')} ran on several GPU counts"
        yield known.sentence(HighlightKind.GAIN, text, rest)


def _unlike(known: Known, row: int, base: int) -> str:
    """Return words for the arguments that differ from those of the row `base`.

    An example is the batch per device if the global batch is fixed.
    """
    different = known.names.unlike(row, base)
    return f" with {', '.join(different)}" if different else ""


def dips(known: Known) -> Iterator[Highlight]:
    """Yield a sentence for each configuration with a count that is clearly slower per GPU than both neighbouring counts.

    A count is a number of GPUs or of nodes. The largest difference comes first.
    """
    cells, measured, told = _as_cells(known.table), ok_runs(known.table, _SPEEDS), set[int]()
    places = {id(cell): row for row, cell in enumerate(cells)}
    found: list[list[_Dip]] = []
    for group in scaling_groups(cells):
        sizes = {places[id(cell)]: size(cell) for cell in group}
        series = _series({row: one for row, one in sizes.items() if PER_GPU in measured[row]})
        by_row = {dip.row: dip for rows in series for dip in _dips(known, cells, measured, rows) if dip.row not in told}
        told |= by_row.keys()
        found += [[by_row[row] for row in sorted(by_row, key=sizes.__getitem__)]] if by_row else []
    found.sort(key=lambda some: min(round(dip.to_smaller.value, 3) for dip in some))
    for some in found[:MOST_SCALING]:
        text = f"{known.names.cell(some[0].row)}: {'; '.join(_dip(known, dip) for dip in some)}"
        rows = [row for dip in some for row in (dip.row, dip.smaller, dip.larger)]
        yield known.sentence(HighlightKind.GAIN, text, rows)
    rest = found[MOST_SCALING:]
    if rest:
        text = f"{counted(len(rest), 'more configuration')} with a count that is slower per GPU than both neighbouring counts"
        yield known.sentence(HighlightKind.GAIN, text, [dip.row for some in rest for dip in some])


def _series(sizes: Mapping[int, tuple[int, int]]) -> Iterator[list[int]]:
    """Yield the rows of each series of at least three counts, the smallest count first. The sizes are GPUs and nodes."""
    order = sorted(sizes, key=lambda row: sizes[row])
    for key in _SERIES:
        groups: dict[Hashable, list[int]] = {}
        for row in order:
            groups.setdefault(key(*sizes[row]), []).append(row)
        for name, rows in groups.items():
            counts = 1 if name == _FEWEST_NODES else 2
            first = {sizes[row][:counts]: row for row in reversed(rows)}
            if len(first) > 2:
                yield [first[count] for count in sorted(first)]


def _dips(known: Known, cells: Sequence[Cell], measured: _Runs, rows: Sequence[int]) -> Iterator[_Dip]:
    for smaller, row, larger in zip(rows, rows[1:], rows[2:], strict=False):
        wanted = scaled_speed(*(cells[one] for one in rows))
        to_smaller, to_larger = (_ratio(measured, wanted, row, other) for other in (smaller, larger))
        is_told = _is_clearly_slower(to_smaller) and _is_clearly_slower(to_larger)
        if is_told and not known.in_doubt(row, smaller) and not known.in_doubt(row, larger):
            yield _Dip(row=row, smaller=smaller, larger=larger, to_smaller=to_smaller, to_larger=to_larger)


def _ratio(measured: _Runs, wanted: str, row: int, base: int) -> Ratio:
    name = wanted if wanted in measured[row] and wanted in measured[base] else PER_GPU
    return ratio(measured[base][name], measured[row][name])


def _is_clearly_slower(speed: Ratio) -> bool:
    """Return whether the interval excludes 1, and the difference is as large as `compare` demands.

    Between single runs, the difference is at least ONE_RUN_EFFECT.
    """
    return direction(speed) < 0 and speed.value < 1 - METRICS[PER_GPU].min_effect


def _dip(known: Known, dip: _Dip) -> str:
    each = "process" if known.names.is_cpu(dip.row) else "GPU"
    smaller, larger = known.names.processes(dip.smaller), known.names.processes(dip.larger)
    here = f"{known.names.processes(dip.row)}{_unlike(known, dip.row, dip.smaller)}"
    if dip.to_smaller.interval is None or dip.to_larger.interval is None:  # the sentence states what single runs did
        first, second = factor(dip.to_smaller), factor(dip.to_larger)
        return f"{here} ran at {first} the speed per {each} of {smaller}, and at {second} that of {larger}"
    return f"{here} are {change(dip.to_smaller)} per {each} than {smaller}, and {change(dip.to_larger)} than {larger}"


def scalings(table: ResultsTable) -> Iterator[tuple[int, int, Ratio]]:
    """Yield three values: the row of the smallest GPU count, the row of a larger count, and the ratio of their speeds per GPU."""
    cells = _as_cells(table)
    places, numbers = {id(cell): row for row, cell in enumerate(cells)}, Numbers(table.experiments)
    measured = ok_runs(table, _SPEEDS)
    groups = [(row, group) for row, group in enumerate(scaling_groups_of(cells)) if group is not None]
    for row, group in sorted(groups, key=lambda pair: numbers("num_gpus", pair[0]) or 0):
        base = places[id(group[0])]
        if row != base and PER_GPU in measured[row] and PER_GPU in measured[base]:
            yield base, row, _ratio(measured, scaled_speed(*group), row, base)


def doubtful_scalings(known: Known) -> frozenset[int]:
    """Return the rows with a scaling that is not claimed, because the speed of the row or of the smallest count is in doubt."""
    return frozenset(row for base, row, _ in scalings(known.table) if known.in_doubt(row, base))


def _as_cells(table: ResultsTable) -> list[Cell]:
    """Return the experiments in the form of `table.aggregate`: facts, arguments, and the numbers that scaling needs."""
    rows, names = table.experiments, (*GPUS, *_SPEEDS)
    facts, numbers = (zip(*(column(rows, name) for name in some), strict=True) for some in (_FACTS, names))
    return [
        Cell(
            facts=dict(zip(_FACTS, row, strict=True)), arguments=dict(given), numbers=dict(zip(names, own, strict=True))
        )
        for row, given, own in zip(facts, arguments_of(table), numbers, strict=True)
    ]
