"""Doubts about an experiment's speed. No speed-up is shown, and no finding is written, about a speed that is in doubt.

The doubts come from the caveats in the records of runs, and from the table's columns about losses, errors and neighbours.
Neighbours are other runs on the machine at the same time. Nothing is measured again. A power cap is not a doubt, because it is
normal on today's GPUs and affects both sides of a comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.records import Caveat, CaveatKind, Status
from orchestrator.results.table import aggregate
from orchestrator.results.table.column_choice import Numbers, column, number
from orchestrator.results.table.rows import Value

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

_KEY, _MODEL = ("results", "id"), "effective_model_fingerprint"
_NUMBER = re.compile(r"\d+(\.\d+)?")


class DoubtKind(StrEnum):
    """The kind of a doubt."""

    WRONG = aggregate.WRONG
    OTHER_LOSS = aggregate.OTHER_LOSS
    INEXACT = aggregate.INEXACT
    CONTAMINATED = "contaminated"
    BUSY_HOST = "busy host"
    RECOMPILED = "recompiled"
    PROFILED = "profiled"
    THROTTLED = "throttled"
    NOT_STEADY = "not steady"
    PACKED = "packed"
    MIXED = "different models"


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """One doubt about one experiment. `detail` joins the details of the caveats. It is not escaped, and may be empty."""

    kind: DoubtKind
    detail: str = ""


_CAVEATS = {
    CaveatKind.CONTAMINATED: DoubtKind.CONTAMINATED,
    CaveatKind.BUSY_HOST: DoubtKind.BUSY_HOST,
    CaveatKind.RECOMPILED: DoubtKind.RECOMPILED,
    CaveatKind.PROFILED: DoubtKind.PROFILED,
    CaveatKind.THROTTLED: DoubtKind.THROTTLED,
    CaveatKind.NO_STEADY_SPEED: DoubtKind.NOT_STEADY,
    CaveatKind.NOT_LEVEL: DoubtKind.NOT_STEADY,
}


def doubts(table: ResultsTable) -> list[tuple[Doubt, ...]]:
    """Return a list with an entry for each row of `experiments`: the doubts about its speed."""
    columns = (column(table.experiments, name) for name in ("doubt", "neighbours", "runs_ok"))
    models = _models_of_runs(table)
    keys = zip(*(column(table.experiments, name) for name in _KEY), strict=True)
    mixed = [len(models.get(key, ())) > 1 for key in keys]
    return [tuple(_of_row(*row)) for row in zip(*columns, table.caveats, mixed, strict=True)]


def _models_of_runs(table: ResultsTable) -> dict[tuple[Value, ...], set[Value]]:
    """Return the digests of the local model folders that the runs of each experiment trained. A folder may have changed."""
    found: dict[tuple[Value, ...], set[Value]] = {}
    if _MODEL in table.runs:
        columns = (column(table.runs, name) for name in (*_KEY, "status", _MODEL))
        for *key, status, model in zip(*columns, strict=True):
            if model is not None and status == Status.OK.value:
                found.setdefault(tuple(key), set()).add(model)
    return found


def forbid_claim(found: Sequence[Sequence[Doubt]], numbers: Numbers, *rows: int) -> bool:
    """Return whether the doubts in `found` (of `doubts`) forbid a claim about the speeds of these rows.

    Other runs on the machine at the same time are not a doubt if their number is the same for all rows.
    """
    kinds = {doubt.kind for row in rows for doubt in found[row]}
    neighbours = {numbers("neighbours", row) or 0 for row in rows}
    return bool(kinds - {DoubtKind.PACKED}) or len(neighbours) > 1


def kinds(found: Sequence[Sequence[Doubt]], *rows: int) -> str:
    """Return the kinds of the doubts of these rows, each once, as a text."""
    return ", ".join(dict.fromkeys(doubt.kind.value for row in rows for doubt in found[row]))


def _of_row(
    doubt: Value, neighbours: Value, runs_ok: Value, caveats: Sequence[Caveat], is_mixed: bool
) -> Iterator[Doubt]:
    if doubt in (DoubtKind.WRONG.value, DoubtKind.OTHER_LOSS.value, DoubtKind.INEXACT.value):
        yield Doubt(kind=DoubtKind(str(doubt)))
    if not runs_ok:
        return  # without a number there is nothing to doubt
    known = [(_CAVEATS[caveat.kind], caveat.detail) for caveat in caveats if caveat.kind in _CAVEATS]
    for kind in DoubtKind:
        details = different([detail for found, detail in known if found is kind])
        if details:
            yield Doubt(kind=kind, detail=", ".join(details))
    if number(neighbours):
        yield Doubt(kind=DoubtKind.PACKED)
    if is_mixed:
        yield Doubt(kind=DoubtKind.MIXED, detail="the content of the model's folder changed between its runs")


def different(details: Sequence[str]) -> list[str]:
    """Group the details that differ only in numbers. From each group, return the detail whose first number is the highest."""
    alike: dict[str, list[str]] = {}
    for detail in details:
        alike.setdefault(_NUMBER.sub("", detail), []).append(detail)
    return [max(found, key=_first_number) for found in alike.values()]


def _first_number(detail: str) -> float:
    found = _NUMBER.search(detail)
    return float(found[0]) if found else 0.0
