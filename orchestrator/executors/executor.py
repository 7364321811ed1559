"""The executor plug: what an executor is, for ours and for third parties. Only the seam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from orchestrator.records import Job, JobState


@runtime_checkable
class Executor(Protocol):
    """Runs jobs and yields each as it ends."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        """Claims and carries out the jobs, in their order where one waits for another. A job that somebody else claimed
        first is yielded as it stands. Closing the iterator cancels what still lives."""
        ...
