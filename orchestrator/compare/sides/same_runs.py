"""Recognise a run that was read twice, from a results folder and from a copy of it. Pure.

Two runs of an experiment are the same run if they started at the same moment. A CSV file and some tools round the start to whole
seconds. In that case, all numbers that both runs have must be equal, too. A source without start times proves nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from orchestrator.compare.comparison import Run


def not_among(runs: Iterable[Run], known: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs that are not among the known runs. All runs are of one experiment."""
    by_second: dict[int, list[Run]] = defaultdict(list)
    for run in known:
        if run.started_at is not None:
            by_second[int(run.started_at)].append(run)
    return tuple(
        run
        for run in runs
        if run.started_at is None or not any(_is_same(run, other) for other in by_second.get(int(run.started_at), ()))
    )


def _is_same(run: Run, other: Run) -> bool:
    """Return whether two runs, which started within the same second, are the same run."""
    if run.started_at is None or other.started_at is None:
        return False
    if not run.started_at.is_integer() and not other.started_at.is_integer():
        return run.started_at == other.started_at
    return all(other.numbers.get(name, number) == number for name, number in run.numbers.items())
