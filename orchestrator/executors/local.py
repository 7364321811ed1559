"""The executor `local`: starts a `run-one` process for each job on this machine, one after the other or several at once.

It knows nothing of retries. When the iterator is closed, or a `run-one` dies without a record, every process with the marker of the
run is ended. `run-one` reads from its claim which GPUs and cores the run has. Waiting blocks.
"""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ResultsError
from orchestrator.executors.pool import Pool, Queue, Share
from orchestrator.machine import cores, process
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.gpus import idlest_first, pci_addresses, visible_gpus
from orchestrator.machine.process_tree import end_tree
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.records import Device, Job, JobState, Status
from orchestrator.results import claims
from orchestrator.results.store import Store, unfinished_record, write_record

LEAST_FREE_BYTES = 64 * 2**20
RUN_ONE = (sys.executable, "-m", "orchestrator", "run-one")
# The time that `run-one` has to end its tree (INT, TERM, KILL, each with its wait) and to write a cancelled record.
_GOODBYE_S = 40.0

_LOOK_AGAIN_S, _PATIENCE = 0.2, 2
# The number of smaller runs that may pass a waiting run, for each GPU of the pool.
_PASSES_PER_GPU = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """A `run-one` that was started, and the descriptor that becomes readable when it ends."""

    job: Job
    marker: str
    child: subprocess.Popen[bytes]
    share: Share | None
    ended: int


class LocalExecutor:
    """Starts at most `parallel` runs at a time, in the given order. Concurrent runs share out the visible GPUs."""

    def __init__(self, run_one: Sequence[str] = RUN_ONE, *, parallel: int = 1) -> None:
        self.run_one = tuple(run_one)
        self.parallel = parallel

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        pool = _pool(self.parallel)
        queue = Queue(waiting=[(job, _gpus_of(job)) for job in jobs], patience=_PASSES_PER_GPU * max(1, len(pool.gpus)))
        running: list[_Run] = []
        full: ResultsError | None = None
        try:
            while queue.waiting or running:
                full = full or _full_disk(queue)
                taken = queue.take(pool) if full is None and len(running) < self.parallel else None
                if taken is not None:
                    started = self._start(*taken, beside=[one.job for one in running])
                    if started is not None:
                        running.append(started)
                        continue
                    _free(pool, taken[1])
                    yield taken[0], claims.state(taken[0].run_dir)
                    continue
                if not running:
                    break
                for one in _await_one(running):
                    running.remove(one)
                    _finish(one)
                    _free(pool, one.share)
                    ended = one.job.folder.record.exists()
                    yield one.job, JobState.ENDED if ended else JobState.LOST
        finally:
            if running:
                _end_all(running)
        if full is not None:
            raise full

    def _start(self, job: Job, share: Share | None, *, beside: Sequence[Job]) -> _Run | None:
        """Start the job and return its run; None where somebody else has the job."""
        details = {} if share is None else _details(share)
        claim = claims.claim(job, executor="local", details=details)
        if claim is None:
            return None
        for one in beside:
            claims.note_neighbour(one.run_dir, job.experiment_id)
            claims.note_neighbour(job.run_dir, one.experiment_id)
        argv = [*self.run_one, str(job.run_dir)]
        try:
            child = process.spawn(argv, log=job.folder.run_one_log, env={MARKER: claim.marker})
        except BaseException:
            write_record(job.run_dir, unfinished_record(job, Status.CANCELLED))
            raise
        return _Run(job=job, marker=claim.marker, child=child, share=share, ended=process.end_descriptor(child))


def _pool(parallel: int) -> Pool:
    gpus = idlest_first(visible_gpus())
    if parallel == 1:
        return Pool(gpus, places=1)
    layout = cores.physical_cores()
    shares = cores.cores_of_gpus(gpus, cores.numa_nodes(gpus, pci_addresses(gpus)), layout)
    places = cores.deal([core for node in layout.values() for core in node], parallel)
    return Pool(gpus, places=parallel, cores_of=shares, cores_of_place=places)


def _gpus_of(job: Job) -> int:
    experiment = Store(job.folder.results).experiment(job.experiment_id)
    return experiment.num_gpus if experiment.device is Device.CUDA else 0


def _details(share: Share) -> dict[str, object]:
    return {"gpus": [gpu.uuid for gpu in share.gpus], "cores": list(share.cores)}


def _free(pool: Pool, share: Share | None) -> None:
    if share is not None:
        pool.give_back(share)


def _await_one(running: Sequence[_Run]) -> list[_Run]:
    """Wait until a run ends. Return every run that has ended."""
    with selectors.DefaultSelector() as selector:
        for one in running:
            selector.register(one.ended, selectors.EVENT_READ, one)
        return [key.data for key, _ in selector.select()]


def _finish(one: _Run) -> None:
    """End what is left of the process tree of a `run-one` that has ended."""
    with StopSignals() as stop:
        end_tree(one.marker, root=one.child, hurry=stop.hurried)
    os.close(one.ended)
    _drop_empty(one.job.folder.run_one_log)
    if stop.received is not None:  # it came while it was held back
        raise KeyboardInterrupt


def _end_all(running: Sequence[_Run]) -> None:
    """End every `run-one` and its tree.

    A second signal is passed on and kills the trees at once. A third signal ends the wait for the records.
    """
    with StopSignals() as stop:  # a second Ctrl-C must not leave half a tree behind
        deadline, asked = time.monotonic() + _GOODBYE_S, 0
        living = list(running)
        while living and time.monotonic() < deadline and asked <= _PATIENCE:
            if stop.count >= asked:
                asked = stop.count + 1
                for one in living:
                    one.child.terminate()
            with suppress(subprocess.TimeoutExpired):
                living[0].child.wait(timeout=_LOOK_AGAIN_S)
            living = [one for one in living if one.child.poll() is None]
        for one in running:
            end_tree(one.marker, root=one.child, hurry=stop.hurried)
            os.close(one.ended)
            # Stopped before `run-one` could write a record: the claim is this process's, which may live on.
            write_record(one.job.run_dir, unfinished_record(one.job, Status.CANCELLED))
            _drop_empty(one.job.folder.run_one_log)


def _full_disk(queue: Queue) -> ResultsError | None:
    """Return an error where the disk is too full for the next run's results, else None."""
    if not queue.waiting:
        return None
    run_dir = queue.waiting[0][0].run_dir
    folder = next(path for path in run_dir.parents if path.exists())
    free = shutil.disk_usage(folder).free
    if free >= LEAST_FREE_BYTES:
        return None
    return ResultsError(
        f"{folder}: {free / 2**20:.0f} MiB are free, and a run is not begun with less than {LEAST_FREE_BYTES >> 20}; make room "
        "and give the same command again: what was recorded stays"
    )


def _drop_empty(log: Path) -> None:
    """Remove the log of a `run-one` that wrote nothing."""
    if log.exists() and not log.stat().st_size:
        log.unlink()
