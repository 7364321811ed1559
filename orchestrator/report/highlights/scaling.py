"""Sentences about scaling: speed per GPU, compared with the same configuration at its smallest GPU count."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Ratio, ratio
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.wording import efficiency
from orchestrator.results.table.aggregate import PER_GPU, Cell, scaling_bases
from orchestrator.results.table.axes import arguments_of
from orchestrator.results.table.baseline import ok_runs
from orchestrator.results.table.column_choice import Numbers, column
from orchestrator.results.table.load import ResultsTable

MOST_SCALING = 4
_FACTS = (
    *("results", "id", "scenario", "model_name_or_path", "device", "trainer", "python", "data", "framework_config"),
    *("num_gpus", "global_batch", "sources"),
)


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


def scalings(table: ResultsTable) -> Iterator[tuple[int, int, Ratio]]:
    """Yield three values: the row of the smallest GPU count, the row of a larger count, and the ratio of their speeds per GPU."""
    cells = _as_cells(table)
    places, numbers = {id(cell): row for row, cell in enumerate(cells)}, Numbers(table.experiments)
    runs = ok_runs(table, (PER_GPU,))
    bases = ((row, places[id(base)]) for row, base in enumerate(scaling_bases(cells)) if base is not None)
    for row, base in sorted(bases, key=lambda pair: numbers("num_gpus", pair[0]) or 0):
        if row != base and PER_GPU in runs[row] and PER_GPU in runs[base]:
            yield base, row, ratio(runs[base][PER_GPU], runs[row][PER_GPU])


def _as_cells(table: ResultsTable) -> list[Cell]:
    """Return the experiments in the form of `table.aggregate`: facts and arguments, without numbers."""
    facts = zip(*(column(table.experiments, name) for name in _FACTS), strict=True)
    return [
        Cell(facts=dict(zip(_FACTS, row, strict=True)), arguments=dict(given), numbers={})
        for row, given in zip(facts, arguments_of(table), strict=True)
    ]
