"""The jobs of a results folder in Slurm's queue: how many wait or run, why, and when the first is expected to start."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.batches import FOLDER, Batch, batch_folders
from orchestrator.executors.slurm.client import Row
from orchestrator.executors.slurm.judging import has_ended, is_held
from orchestrator.files.printable_text import counted

_UNKNOWN_START = ("", "N/A", "Unknown")
# A sentence names at most this number of runs.
_NAMED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class InQueue:
    """The jobs that are in one state for one reason.

    `start` is the earliest expected start as Slurm writes it; None if unknown. `held` has the runs of the jobs if the reason does
    not go away by itself.
    """

    state: str
    reason: str | None
    count: int
    start: str | None
    held: tuple[str, ...] = ()

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        start = f", the first is expected to start at {self.start}" if self.start else ""
        return f"{self.count} {self.state.lower()}{why}{start}"


def in_queue(results: Path) -> tuple[InQueue, ...]:
    """Return the jobs of this folder that have not ended. Raise LaunchError if Slurm does not answer."""
    if not (results / FOLDER).is_dir():
        return ()
    batches = {batch.name: batch for folder in batch_folders(results) if (batch := folder.batch())}
    alike: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in client.queue() if batches else ():
        if row.name in batches and not has_ended(row.state):
            alike[row.state, None if row.reason == "None" else row.reason].append(row)
    found = []
    for (state, reason), rows in alike.items():
        start = _first_start(rows) if state == "PENDING" else None
        runs = [run for row in rows for run in _runs(batches[row.name], row)] if is_held(rows[0]) else []
        found.append(InQueue(state=state, reason=reason, count=len(rows), start=start, held=tuple(runs)))
    return tuple(found)


def _runs(batch: Batch, row: Row) -> Sequence[str]:
    """Return the runs of an element; none if the batch does not have it, such as after a change of its file."""
    return batch.elements[row.element] if row.element < len(batch.elements) else ()


def held_sentence(reason: str, runs: Sequence[str], results: Path) -> str:
    """Return a sentence about submitted runs that may wait for ever."""
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    what = f"Slurm holds {counted(len(runs), 'run')} for a reason that may not go away by itself, {reason}"
    cure = "remove the reason in Slurm, limit the wait with `max_pending:` in the site file, or end the runs"
    return f"{what}: {', '.join(runs[:_NAMED])}{more}; {cure}: tunebench cancel {shlex.quote(str(results))}"


def _first_start(rows: list[Row]) -> str | None:
    return min((row.start for row in rows if row.start not in _UNKNOWN_START), default=None)
