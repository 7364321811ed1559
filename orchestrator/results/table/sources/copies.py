"""Leave out runs that are read twice: from a results folder and from a copy of it, such as its raw_summary.csv. Pure.

A run is recognised by its experiment, its repeat and attempt, its start and the exact time that it took. A source without start
times proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.files.printable_text import counted
from orchestrator.results.table.rows import Row, Value

_OF_THE_OUTCOME = ("repeat", "attempt", "status", "started_at")
Key = tuple[Value, ...]


def without_copies(read: Mapping[str, Sequence[Row]]) -> tuple[dict[str, list[Row]], list[str]]:
    """Return the rows of each source with each run only once, and a warning for each source that loses rows.

    A source is left out if another one has all of its runs. A run that two other sources have stays in the first one.
    """
    runs = {name: {key for row in rows if (key := _key(row)) is not None} for name, rows in read.items()}
    whole = dict(read)
    warnings = []
    for name in reversed(list(read)):
        holder = next((other for other in whole if other != name and runs[name] and runs[name] <= runs[other]), None)
        if holder is not None and all(_key(row) is not None for row in read[name] if "repeat" in row.outcome):
            del whole[name]
            warnings.append(f"{name} is left out, because {holder} has all of its runs")
    known: set[Key] = set()
    kept = {}
    for name, rows in whole.items():
        kept[name] = [row for row in rows if (key := _key(row)) is None or key not in known]
        if len(kept[name]) < len(rows):
            many = counted(len(runs[name] & known), "run")
            warnings.append(f"{name} has {many} that another folder or file also has: they are counted only there")
        known |= runs[name]
    return kept, warnings


def _key(row: Row) -> Key | None:
    """Return what identifies a run; None if the row is not a run, or if its source does not say when it started."""
    took_s = row.measured.get("wall_s")
    if took_s is None or row.outcome.get("started_at") is None:
        return None
    return (row.facts.get("id"), *(row.outcome.get(name) for name in _OF_THE_OUTCOME), took_s)
