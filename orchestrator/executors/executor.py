"""The interface of an executor, for ours and for third parties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from orchestrator.records import Job, JobState


@runtime_checkable
class Executor(Protocol):
    """An executor runs jobs and yields each job when it has ended."""

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        """Claim the jobs and run them in their order; yield each with its state. A generator: closing it ends its runs.

        A job that somebody else claimed first is yielded with the state that it has.
        """
        ...
