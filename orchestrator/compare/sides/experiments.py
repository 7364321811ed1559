"""Turn rows of runs into the entries of a side: one per experiment, with the numbers of its ok runs. Pure.

Every source is first read into `rows.Row` objects. So records, folders of the reference and lines of a CSV file are treated alike.
The last attempt of each repeat counts, as in `results.table`. A row without a repeat is not a run: its experiment is pending,
skipped or running. Such experiments are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from orchestrator.compare.comparison import Entry, Run, Side
from orchestrator.compare.sides import environment
from orchestrator.compare.sides.keys import EFFECTIVE, OURS, PLACES
from orchestrator.files.printable_text import counted
from orchestrator.records import CaveatKind, Status, unsteady
from orchestrator.results.table.aggregate import STEPS_TO_TARGET, TO_TARGET
from orchestrator.results.table.rows import Row, Value, in_json
from orchestrator.screen.figures import Screen

_NOT_MEASURED = (EFFECTIVE, "provenance_", "measured_", environment.NEIGHBOURS)
_OF_THE_MACHINE = ("effective_device", "effective_device_name")
LONGEST_CAUSE = 300
_DOUBTS = {
    CaveatKind.BUSY_HOST: "on a busy host",
    CaveatKind.CONTAMINATED: "on GPUs that other processes used",
    CaveatKind.THROTTLED: "on GPUs with reduced clocks",
    CaveatKind.PROFILED: "with a profiler",
}
# Two programs that share a core or its caches are taken to slow each other down by this factor at most, besides the wait.
_SHARED_CORE = 2.0
UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The source of an experiment's rows. The fields are those of `comparison.Entry`."""

    id: str | None = None
    folder: str | None = None
    whole: bool = False


def entry(runs: Sequence[Row], origin: Origin) -> Entry:
    """Return the entry of one experiment with all its runs. Its key has all facts, and its label is empty."""
    last = _last_attempts(runs)
    ok = [row for row in last if row.outcome["status"] == Status.OK.value]
    unreadable = [row for row in last if _is_unreadable(row)]
    failed = [row for row in last if row.outcome["status"] != Status.OK.value and not _is_unreadable(row)]
    facts = runs[0].facts
    given = {name: value for name, value in runs[0].arguments.items() if name not in PLACES}
    effective = environment.combined([_effective(row, given) for row in ok or failed or last])
    measured = [_run(row) for row in ok]
    if len({STEPS_TO_TARGET in run.numbers for run in measured}) > 1:  # a mean of only the fast runs would be too good
        measured = [replace(run, numbers=_without_targets(run.numbers)) for run in measured]
    return Entry(
        key={name: facts[name] for name in OURS if name in facts},
        label="",
        status=status_of(ok, failed),
        runs=tuple(measured),
        arguments={**given, **effective},
        environment=environment.combined(
            [environment.of_cells({**row.facts, **row.measured}) for row in ok or failed or last]
        ),
        failed_runs=len(failed),
        unreadable_runs=len(unreadable),
        failure=_failure((failed or unreadable)[-1].outcome) if failed or unreadable else None,
        failed_at=min(filter(None, (_time(row.outcome.get("started_at")) for row in failed)), default=None),
        id=origin.id,
        folder=origin.folder,
        whole=origin.whole and len(last) > len(unreadable),  # only a record has the effective settings
    )


def status_of(ok: Sequence[object], failed: Sequence[object]) -> str:
    """Return the status of an experiment with these runs. If it has none of them, no record of its runs can be read."""
    return Status.OK.value if ok else Status.FAILED.value if failed else UNREADABLE


def _is_unreadable(row: Row) -> bool:
    """Return whether a row is a run whose record cannot be read."""
    return row.outcome.get("failure_kind") == UNREADABLE


def _last_attempts(runs: Iterable[Row]) -> list[Row]:
    """Return the row of the last attempt of each repeat.

    Earlier attempts do not count, because the experiment did not cause their failure, or the user repeated them on purpose.
    """

    def repeat_and_attempt(row: Row) -> tuple[int, int]:
        return _count(row.outcome.get("repeat")), _count(row.outcome.get("attempt"))

    return list({repeat_and_attempt(row)[0]: row for row in sorted(runs, key=repeat_and_attempt)}.values())


def _count(value: Value) -> int:
    return value if isinstance(value, int) else 1


def _without_targets(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if name not in TO_TARGET}


def _run(row: Row) -> Run:
    numbers = {
        name: float(value)
        for name, value in row.measured.items()
        if (type(value) is float or type(value) is int) and not name.startswith(_NOT_MEASURED)
    }
    logged, stopped = row.measured.get("logged_losses"), row.measured.get("stopped_early")
    return Run(
        repeat=_count(row.outcome.get("repeat")),
        numbers=numbers,
        started_at=_time(row.outcome.get("started_at")),
        ended_early=isinstance(stopped, str) and stopped != "",
        never_steady=unsteady(row.warnings) is not None,
        doubt=next((_DOUBTS[kind] for kind in _disturbances(row)), ""),
        slowed=_slowed(row),
        logged_losses=logged if isinstance(logged, str) else None,
    )


def _disturbances(row: Row) -> list[CaveatKind]:
    return [caveat.kind for caveat in row.warnings if caveat.kind in _DOUBTS]


def _slowed(row: Row) -> float | None:
    """Return how much faster a run may have been without its disturbances; None if this is unknown, or if there were none.

    Without its wait for a core, it takes the rest of its time. Processes on the same core or cache slow each other down, too.
    """
    share = row.measured.get("core_wait_share")
    is_known = set(_disturbances(row)) == {CaveatKind.BUSY_HOST} and isinstance(share, float) and 0 <= share < 1
    return _SHARED_CORE / (1 - float(share or 0.0)) if is_known else None


def _time(value: Value) -> float | None:
    """Return seconds since the epoch, from a number or an ISO date; None for anything else."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp() if value else None
    except (ValueError, OverflowError):
        return None


def _effective(row: Row, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the effective settings. Leave out a setting if there is an argument of the same name."""
    return {
        name: value
        for name, value in row.measured.items()
        if name.startswith(EFFECTIVE) and name not in _OF_THE_MACHINE and name.removeprefix(EFFECTIVE) not in given
    }


def _failure(outcome: Mapping[str, Value]) -> str:
    kind = outcome.get("failure_kind") or outcome["status"]
    cause = outcome.get("failure_cause")
    return f"{kind}: {cause}"[:LONGEST_CAUSE] if cause else f"{kind}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One folder or file as it was read: the rows of each experiment with their source, and the screens of its machines."""

    name: str
    groups: Sequence[tuple[Sequence[Row], Origin]]
    warnings: Sequence[str]
    screens: tuple[Screen, ...] = ()

    @property
    def rows(self) -> Iterator[Row]:
        return (row for rows, _ in self.groups for row in rows)


def side(place: Place, several: frozenset[tuple[str, Value]]) -> Side:
    """Return all experiments of one place. `several` are the cells of `results.table.rows.ambiguous` over all compared places.

    Experiments without a finished run are left out. A warning gives their number. Another warning gives the number of experiments
    with some failed repeats.
    """
    entries: list[Entry] = []
    not_run: Counter[str] = Counter()
    disturbed: Counter[CaveatKind] = Counter()
    for rows, origin in place.groups:
        runs = [in_json(row, several) if several else row for row in rows if _was_run(row)]
        if runs:
            entries.append(entry(runs, origin))
            disturbed.update({caveat.kind for row in _last_attempts(runs) for caveat in row.warnings})
        else:
            not_run[str(rows[0].outcome["status"])] += 1
    partly_failed = sum(item.status == Status.OK.value and item.failed_runs > 0 for item in entries)
    more = []
    if not_run:
        states = ", ".join(f"{count} {state}" for state, count in sorted(not_run.items()))
        more.append(f"{_have(not_run.total())} no finished run and cannot be compared: {states}")
    if partly_failed:
        more.append(f"{_have(partly_failed)} repeats that did not end ok; the numbers are from the other repeats")
    more += [
        f"{_have(disturbed[kind])} runs {how}: their speeds are in doubt"
        for kind, how in _DOUBTS.items()
        if disturbed[kind]
    ]
    warnings = (*place.warnings, *more)
    return Side(name=place.name, entries=tuple(entries), warnings=warnings, screens=place.screens)


def _was_run(row: Row) -> bool:
    """Return whether a row is a finished run, even if its record cannot be read."""
    return "repeat" in row.outcome or _is_unreadable(row)


def _have(count: int) -> str:
    return f"{counted(count, 'experiment')} {'has' if count == 1 else 'have'}"
