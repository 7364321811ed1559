"""Leave out runs that are read twice: from a results folder and from a copy of it, such as its raw_summary.csv. Pure.

Two runs of the same experiment, repeat and attempt are the same run if they started in the same second, and if all numbers that
both have are equal. A source without start times proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from orchestrator.files.printable_text import counted
from orchestrator.results.table.rows import Row, Value

_OF_THE_OUTCOME = ("repeat", "attempt", "status", "started_at")
_NUMBERS = (int, float)
Runs = Mapping[tuple[Value, ...], Sequence[Row]]


def without_copies(
    read: Mapping[str, Sequence[Row]], *, tables: Collection[str] = ()
) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of each source with each run only once, and a warning for each source that loses rows.

    A source is left out if another one has all of its runs and experiments. Of two sources with some equal runs, the first one
    keeps them. A folder comes before `tables`, the sources that are not folders: it knows more about its runs.
    """
    runs = {name: _runs(rows) for name, rows in read.items()}
    ids = {name: {row.facts.get("id") for row in rows} for name, rows in read.items()}
    order = sorted(read, key=lambda name: name in tables)
    warnings = []
    for name in reversed(order):
        own = [row for row in read[name] if "repeat" in row.outcome]
        others = [other for other in order if other != name and (name in tables or other not in tables)]
        others = [other for other in others if ids[name] <= ids[other]]
        holders = (other for other in others if all(_is_among(row, runs[other]) for row in own))
        if own and (holder := next(holders, None)) is not None:
            order.remove(name)
            warnings.append(f"{name} is left out, because {holder} has all of its runs")
    kept: dict[str, list[Row]] = {}
    for name in order:
        kept[name] = [row for row in read[name] if not any(_is_among(row, runs[other]) for other in kept)]
        if copies := len({_key(row) for row in read[name]}) - len({_key(row) for row in kept[name]}):
            warnings.append(
                f"{name} has {counted(copies, 'run')} that another folder or file also has: they are counted only there"
            )
    return {name: kept[name] for name in read if name in kept}, warnings


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
    both = [(value, found) for name, value in row.measured.items() if (found := other.measured.get(name)) is not None]
    # A CSV file has truth values as words.
    numbers = [(one, two) for one, two in both if type(one) in _NUMBERS and type(two) in _NUMBERS]
    return bool(numbers) and all(one == two for one, two in numbers)
