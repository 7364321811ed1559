"""Leave out runs that are read twice: from a results folder and from a copy of it, such as its raw_summary.csv. Pure.

Two runs of the same experiment, repeat and attempt are the same run if they started in the same second, and if all numbers that
both have are equal. A source without start times proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from orchestrator.files.printable_text import counted
from orchestrator.results.table.rows import Row, Value

_OF_THE_OUTCOME = ("repeat", "attempt", "status", "started_at")
Runs = Mapping[tuple[Value, ...], Sequence[Row]]


def without_copies(read: Mapping[str, Sequence[Row]]) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of each source with each run only once, and a warning for each source that loses rows.

    A source is left out if another one has all of its runs. A run that two other sources have stays in the first one.
    """
    runs = {name: _runs(rows) for name, rows in read.items()}
    whole = dict(read)
    warnings = []
    for name in reversed(list(read)):
        own = [row for row in read[name] if "repeat" in row.outcome]
        holders = (other for other in whole if other != name and all(_is_among(row, runs[other]) for row in own))
        if own and (holder := next(holders, None)) is not None:
            del whole[name]
            warnings.append(f"{name} is left out, because {holder} has all of its runs")
    kept: dict[str, list[Row]] = {}
    for name, rows in whole.items():
        kept[name] = [row for row in rows if not any(_is_among(row, runs[other]) for other in kept)]
        if copies := len({_key(row) for row in rows}) - len({_key(row) for row in kept[name]}):
            warnings.append(
                f"{name} has {counted(copies, 'run')} that another folder or file also has: they are counted only there"
            )
    return kept, warnings


def _runs(rows: Sequence[Row]) -> Runs:
    runs: dict[tuple[Value, ...], list[Row]] = defaultdict(list)
    for row in rows:
        runs[_key(row)].append(row)
    return runs


def _key(row: Row) -> tuple[Value, ...]:
    return (row.facts.get("id"), *(row.outcome.get(name) for name in _OF_THE_OUTCOME))


def _is_among(row: Row, runs: Runs) -> bool:
    return row.outcome.get("started_at") is not None and any(_is_same(row, other) for other in runs.get(_key(row), ()))


def _is_same(row: Row, other: Row) -> bool:
    numbers = {name: value for name, value in row.measured.items() if isinstance(value, (int, float))}
    return bool(numbers) and all(other.measured.get(name, value) == value for name, value in numbers.items())
