"""Runs jobs on this machine, one after the other, each by a `run-one` process of its own.

Knows nothing of repeats or retries. When the iterator is closed, or a `run-one` dies without a record, what lives of
that run is ended: the processes carry its marker.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator import claims, process
from orchestrator.environment import MARKER
from orchestrator.records import Job, JobState, Status
from orchestrator.store import RUN_ONE_LOG, unfinished_record, write_record

RUN_ONE = (sys.executable, "-m", "orchestrator", "run-one")
_GOODBYE_S = 40.0
"""How long `run-one` may take to end its tree (INT, TERM, KILL, each with its wait) and to write a cancelled record."""


class LocalExecutor:
    """One run at a time, in the order given."""

    def __init__(self, run_one: Sequence[str] = RUN_ONE) -> None:
        self.run_one = tuple(run_one)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        for job in jobs:
            claim = claims.claim(job, executor="local")
            if claim is None:
                yield job, claims.state(job.run_dir)
                continue
            self._carry_out(job, claim.marker)
            yield job, JobState.ENDED if (job.run_dir / claims.RECORD_FILE).exists() else JobState.LOST

    def _carry_out(self, job: Job, marker: str) -> None:
        try:
            argv = [*self.run_one, str(job.run_dir)]
            log = job.run_dir / RUN_ONE_LOG
            child = process.spawn(argv, log=log, env={MARKER: marker})
            try:
                child.wait()
            finally:
                with process.StopSignals():  # a second Ctrl-C must not leave half a tree behind
                    _end(child, marker)
                    _drop_empty(log)
        except BaseException:
            # Stopped before `run-one` could write a record: the claim is this process's, which may live on.
            write_record(job.run_dir, unfinished_record(job, Status.CANCELLED))
            raise


def _end(child: subprocess.Popen[bytes], marker: str) -> None:
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_GOODBYE_S)
    process.end_tree(marker, root=child)


def _drop_empty(log: Path) -> None:
    """`run-one` has nothing to say when all is well."""
    if log.exists() and not log.stat().st_size:
        log.unlink()
