"""Runs jobs on this machine, one after the other, each by a `run-one` process of its own.

Knows nothing of repeats or retries. When the iterator is closed, or a `run-one` dies without a record, what lives of
that run is ended: the processes carry its marker.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator import claims, process
from orchestrator.environment import MARKER
from orchestrator.errors import ResultsError
from orchestrator.records import Job, JobState, Status
from orchestrator.store import RUN_ONE_LOG, unfinished_record, write_record

LEAST_FREE_BYTES = 64 * 2**20
RUN_ONE = (sys.executable, "-m", "orchestrator", "run-one")
_GOODBYE_S = 40.0
"""How long `run-one` may take to end its tree (INT, TERM, KILL, each with its wait) and to write a cancelled record."""

_LOOK_AGAIN_S, _PATIENCE = 0.2, 2


class LocalExecutor:
    """One run at a time, in the order given."""

    def __init__(self, run_one: Sequence[str] = RUN_ONE) -> None:
        self.run_one = tuple(run_one)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        for job in jobs:
            _refuse_full_disk(job.run_dir)
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
                with process.StopSignals() as stop:  # a second Ctrl-C must not leave half a tree behind
                    _end(child, marker, stop)
                    _drop_empty(log)
        except BaseException:
            # Stopped before `run-one` could write a record: the claim is this process's, which may live on.
            write_record(job.run_dir, unfinished_record(job, Status.CANCELLED))
            raise


def _end(child: subprocess.Popen[bytes], marker: str, stop: process.StopSignals) -> None:
    """Ends `run-one` and its tree. Asked a second time it passes that on, which kills the tree at once; a third time it waits no
    more for the record either."""
    deadline, asked = time.monotonic() + _GOODBYE_S, 0
    while child.poll() is None and time.monotonic() < deadline and asked <= _PATIENCE:
        if stop.count >= asked:
            child.terminate()
            asked = stop.count + 1
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_LOOK_AGAIN_S)
    process.end_tree(marker, root=child, hurry=stop.hurried)


def _refuse_full_disk(run_dir: Path) -> None:
    """Raises ResultsError before a run that could not write down what it measures."""
    folder = next(path for path in run_dir.parents if path.exists())
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise ResultsError(
            f"{folder}: {free / 2**20:.0f} MiB are free, and a run is not begun with less than {LEAST_FREE_BYTES >> 20}; make room "
            "and give the same command again: what was recorded stays"
        )


def _drop_empty(log: Path) -> None:
    """`run-one` has nothing to say when all is well."""
    if log.exists() and not log.stat().st_size:
        log.unlink()
