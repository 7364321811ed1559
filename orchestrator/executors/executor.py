"""The interface of an executor, for Tunebench's executors and those of other packages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from orchestrator.records import Job, JobState


@runtime_checkable
class Executor(Protocol):
    """An executor runs jobs and yields each job when it has ended."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        """Claim the jobs and run them in their order; yield each with its state. Closing the generator ends its runs.

        Yield a job that another process claimed first with the state that it has.
        """
        ...
