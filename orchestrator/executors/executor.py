"""The interface of every executor, from Tunebench or from another package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from orchestrator.records import Job, JobState


@runtime_checkable
class Executor(Protocol):
    """An executor runs jobs and yields each job when it has ended."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        """Claim the jobs, run them in order, and yield each job with its state.

        If the caller closes the generator, end the running jobs. If another process has claimed a job first, yield this job with
        its present state.
        """
        ...
