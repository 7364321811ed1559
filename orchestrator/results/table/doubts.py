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
from orchestrator.results.table.column_choice import Numbers, column, gpu_models, number
from orchestrator.results.table.rows import FINGERPRINT, PACKAGES, Value

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

_KEY = ("results", "id")
# Column of a version → what has this version.
SOFTWARE = {"provenance_python_version": "Python", **{f"provenance_{package}": package for package in PACKAGES}}
_GPUS = "GPUs"
# From this relative error of an operator on, its result is wrong. Weights of 4 bits (nf4) have an error of about 0.1, and zeros one
# of 1.
ERROR, WRONG_RESULT = "relative_error", 0.5
_NUMBER = re.compile(r"\d+(\.\d+)?")


class DoubtKind(StrEnum):
    """The kind of a doubt."""

    WRONG = aggregate.WRONG
    OTHER_LOSS = aggregate.OTHER_LOSS
    INEXACT = aggregate.INEXACT
    FEWER_STEPS = aggregate.FEWER_STEPS
    CONTAMINATED = "contaminated"
    BUSY_HOST = "busy host"
    RECOMPILED = "recompiled"
    PROFILED = "profiled"
    THROTTLED = "throttled"
    NOT_STEADY = "not steady"
    PACKED = "packed"
    MIXED = "different models"
    PACKAGES = "different packages"
    GPUS = "different GPUs"


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


def raises_doubt(caveat: Caveat) -> bool:
    """Return whether a caveat in a run's record puts the run's speed in doubt."""
    return caveat.kind in _CAVEATS


def doubts(table: ResultsTable) -> list[tuple[Doubt, ...]]:
    """Return a list with an entry for each row of `experiments`: the doubts about its speed."""
    mixed, experiments = _mixed(table), table.experiments
    keys = zip(*(column(experiments, name) for name in _KEY), strict=True)
    columns = (column(experiments, name) for name in ("doubt", ERROR, "neighbours", "runs_ok"))
    rows = zip(keys, *columns, table.caveats, strict=True)
    return [
        tuple(_of_row(doubt, error, neighbours, runs_ok, caveats, mixed.get(key, ())))
        for key, doubt, error, neighbours, runs_ok, caveats in rows
    ]


def _mixed(table: ResultsTable) -> dict[tuple[Value, ...], tuple[Doubt, ...]]:
    """Return the doubts about experiments whose ok runs had different models, packages or GPUs.

    A local folder of a model, or a file of saved weights, may have changed between the runs, and packages may have been installed.
    Several hosts may have carried out the runs.
    """
    found: dict[tuple[Value, ...], tuple[Doubt, ...]] = {}
    keys = [*zip(*(column(table.runs, at) for at in _KEY), strict=True)]
    ok = [at for at, status in enumerate(column(table.runs, "status")) if status == Status.OK.value]
    varying = [name for name in (FINGERPRINT, *SOFTWARE) if name in table.runs and table.runs[name].nunique() > 1]
    columns: dict[str, Sequence[Value]] = {name: column(table.runs, name) for name in varying}
    for name, cells in {**columns, _GPUS: gpu_models(table.runs)}.items():
        values: dict[tuple[Value, ...], dict[Value, None]] = {}
        for at in ok:
            if cells[at] is not None:
                values.setdefault(keys[at], {})[cells[at]] = None
        found |= {
            key: (*found.get(key, ()), _different(name, [*several]))
            for key, several in values.items()
            if len(several) > 1
        }
    return found


def _different(name: str, values: Sequence[Value]) -> Doubt:
    if name == FINGERPRINT:
        return Doubt(kind=DoubtKind.MIXED, detail="the model's folder or its saved weights changed between its runs")
    words = " and ".join(sorted(map(str, values)))
    if name == _GPUS:
        return Doubt(kind=DoubtKind.GPUS, detail=words)
    return Doubt(kind=DoubtKind.PACKAGES, detail=f"{SOFTWARE[name]} {words}")


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


def joined(*texts: Value) -> str | None:
    """Return the doubts of these texts, each once, as a text; None if there are none."""
    return ", ".join(dict.fromkeys(word for text in texts for word in words_of(text))) or None


def words_of(text: Value) -> list[str]:
    """Return the single doubts of a cell of the column `doubt`."""
    return str(text).split(", ") if text else []


def _of_row(
    doubt: Value, error: Value, neighbours: Value, runs_ok: Value, caveats: Sequence[Caveat], mixed: Sequence[Doubt]
) -> Iterator[Doubt]:
    own = [word for word in words_of(doubt) if word in aggregate.DOUBTS]
    yield from (Doubt(kind=DoubtKind(word)) for word in own)
    if not own and (number(error) or 0.0) >= WRONG_RESULT:
        yield Doubt(kind=DoubtKind.INEXACT)
    if not runs_ok:
        return  # without a number there is nothing to doubt
    known = [(_CAVEATS[caveat.kind], caveat.detail) for caveat in caveats if caveat.kind in _CAVEATS]
    for kind in DoubtKind:
        details = different([detail for found, detail in known if found is kind])
        if details:
            yield Doubt(kind=kind, detail=", ".join(details))
    if number(neighbours):
        yield Doubt(kind=DoubtKind.PACKED)
    yield from mixed


def different(details: Sequence[str]) -> list[str]:
    """Group the details that differ only in numbers. From each group, return the detail whose first number is the highest."""
    alike: dict[str, list[str]] = {}
    for detail in details:
        alike.setdefault(_NUMBER.sub("", detail), []).append(detail)
    return [max(found, key=_first_number) for found in alike.values()]


def _first_number(detail: str) -> float:
    found = _NUMBER.search(detail)
    return float(found[0]) if found else 0.0
