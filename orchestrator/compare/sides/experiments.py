"""Turn rows of runs into the entries of a side: one for each experiment, with the numbers of its ok runs. Pure.

Every source becomes `rows.Row`s first, so that a record, a folder of the reference and a line of a CSV file are the same here.
The last attempt of each repeat counts, as in `table`. A row without a repeat is not a run: its experiment is pending, skipped or
running. Such experiments are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.compare.comparison import Entry, Run, Side
from orchestrator.compare.sides import environment
from orchestrator.compare.sides.keys import EFFECTIVE, OURS, PLACES
from orchestrator.records import Status
from orchestrator.results.table.rows import Row, Value

_NOT_MEASURED = (EFFECTIVE, "provenance_", "measured_", environment.NEIGHBOURS)
_OF_THE_MACHINE = ("effective_device", "effective_device_name")
LONGEST_CAUSE = 300
UNREADABLE = "unreadable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where the rows of one experiment come from; see `values.Entry`."""

    id: str | None = None
    folder: str | None = None
    whole: bool = False


def entry(runs: Sequence[Row], origin: Origin) -> Entry:
    """Return the entry of one experiment with all its runs. Its key still has all facts, and its label is empty."""
    tries = _last_tries(runs)
    ok = [row for row in tries if row.outcome["status"] == Status.OK.value]
    failed = [row for row in tries if row.outcome["status"] != Status.OK.value]
    told = ok or tries
    facts, arguments = runs[0].facts, runs[0].arguments
    given = {name: value for name, value in arguments.items() if name not in PLACES}
    effective = environment.combined([_effective(row, given) for row in told])
    return Entry(
        key={name: facts[name] for name in OURS if name in facts},
        label="",
        status=(Status.OK if ok else Status.FAILED).value,
        runs=tuple(_run(row) for row in ok),
        arguments={**given, **effective},
        environment=environment.combined([environment.of_cells({**row.facts, **row.measured}) for row in told]),
        failed_runs=len(failed),
        failure=_failure(failed[-1].outcome) if failed else None,
        id=origin.id,
        folder=origin.folder,
        whole=origin.whole,
    )


def _last_tries(runs: Iterable[Row]) -> list[Row]:
    """Return the last attempt at each repeat, by repeat. Earlier attempts were not the experiment's fault, or were repeated on
    purpose."""
    last: dict[int, Row] = {}
    for row in sorted(runs, key=_repeat_and_try):
        last[_repeat_and_try(row)[0]] = row
    return list(last.values())


def _repeat_and_try(row: Row) -> tuple[int, int]:
    return _count(row.outcome.get("repeat")), _count(row.outcome.get("attempt"))


def _count(value: Value) -> int:
    return value if isinstance(value, int) else 1


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
        logged_losses=logged if isinstance(logged, str) else None,
    )


def _time(value: Value) -> float | None:
    """Return seconds since the epoch, from a number or an ISO date; None for anything else."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return datetime.fromisoformat(value).timestamp() if value else None
    except (ValueError, OverflowError):
        return None


def _effective(row: Row, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the settings that took effect, without those that an argument of the same name states."""
    return {
        name: value
        for name, value in row.measured.items()
        if name.startswith(EFFECTIVE) and name not in _OF_THE_MACHINE and name.removeprefix(EFFECTIVE) not in given
    }


def _failure(outcome: Mapping[str, Value]) -> str:
    kind = outcome.get("failure_kind") or outcome["status"]
    cause = outcome.get("failure_cause")
    return f"{kind}: {cause}"[:LONGEST_CAUSE] if cause else f"{kind}"


def side(name: str, found: Iterable[tuple[Sequence[Row], Origin]], warnings: Sequence[str]) -> Side:
    """Return all experiments of one place; `warnings` may still grow while `found` is read.

    Experiments without a finished run are left out, and a sentence counts them. Another sentence counts the experiments with some
    failed repeats.
    """
    entries: list[Entry] = []
    not_run: Counter[str] = Counter()
    partly = 0
    for rows, origin in found:
        runs = [row for row in rows if _was_run(row)]
        if not runs:
            not_run[str(rows[0].outcome["status"])] += 1
            continue
        entries.append(entry(runs, origin))
        partly += entries[-1].status == Status.OK.value and len(entries[-1].runs) < len(_last_tries(runs))
    said = (*warnings, *_without_run(not_run), *_partly_failed(partly))
    return Side(name=name, entries=tuple(entries), warnings=said)


def _was_run(row: Row) -> bool:
    """Return whether a row is a finished run, even if its record cannot be read."""
    return "repeat" in row.outcome or row.outcome.get("failure_kind") == UNREADABLE


def _without_run(states: Counter[str]) -> list[str]:
    if not states:
        return []
    have = "1 experiment has" if states.total() == 1 else f"{states.total()} experiments have"
    parts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return [f"{have} no finished run, left out: {parts}"]


def _partly_failed(count: int) -> list[str]:
    have = "1 experiment has" if count == 1 else f"{count} experiments have"
    return [f"{have} repeats that did not end ok; the numbers are from the other repeats"] if count else []


def grouped(rows: Iterable[Row]) -> list[list[Row]]:
    """Return rows of runs by experiment, in the order of their first runs."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        found.setdefault((row.facts.get("results"), row.facts.get("id"), _given(row)), []).append(row)
    return list(found.values())


def _given(row: Row) -> object:
    """Return what identifies an experiment that has no id."""
    if row.facts.get("id") is not None:
        return None
    return tuple(row.facts.items()), tuple(row.arguments.items())
