"""An executor for tests: it calls a function and starts no process. Claims and records are real."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orchestrator.records import Job, JobState, RunRecord
from orchestrator.results import claims
from orchestrator.results.store import write_record


class FakeExecutor:
    """An executor that calls `handler` for each job, and writes the record that `handler` returns.

    If `handler` returns None, the run is lost.
    """

    def __init__(self, handler: Callable[[Job], RunRecord | None]) -> None:
        self.handler = handler

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        for job in jobs:
            if claims.claim(job, executor="fake") is None:
                yield job, claims.state(job.run_dir)
                continue
            record = self.handler(job)
            if record is None:
                yield job, JobState.LOST
            else:
                write_record(job.run_dir, record)
                yield job, JobState.ENDED
