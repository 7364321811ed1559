"""The jobs of a results folder in Slurm's queue: how many wait or run, why, and when the first is expected to start."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.batches import FOLDER, batch_folders
from orchestrator.executors.slurm.client import Row
from orchestrator.executors.slurm.judging import has_ended

_UNKNOWN_START = ("", "N/A", "Unknown")


@dataclass(frozen=True, kw_only=True, slots=True)
class InQueue:
    """The jobs that are in one state for one reason. `start` is the earliest expected start as Slurm writes it; None if unknown."""

    state: str
    reason: str | None
    count: int
    start: str | None

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        start = f", the first is expected to start at {self.start}" if self.start else ""
        return f"{self.count} {self.state.lower()}{why}{start}"


def in_queue(results: Path) -> tuple[InQueue, ...]:
    """Return the jobs of this folder that have not ended. Raise LaunchError if Slurm does not answer."""
    if not (results / FOLDER).is_dir():
        return ()
    names = {batch.name for folder in batch_folders(results) if (batch := folder.batch())}
    alike: dict[tuple[str, str | None], list[Row]] = defaultdict(list)
    for row in client.queue() if names else ():
        if row.name in names and not has_ended(row.state):
            alike[row.state, None if row.reason == "None" else row.reason].append(row)
    return tuple(
        InQueue(state=state, reason=reason, count=len(rows), start=_first_start(rows) if state == "PENDING" else None)
        for (state, reason), rows in alike.items()
    )


def _first_start(rows: list[Row]) -> str | None:
    return min((row.start for row in rows if row.start not in _UNKNOWN_START), default=None)
