"""The executor `local` starts a `run-one` process for each job on this machine, one after the other or several at once.

This executor repeats no run. If the iterator is closed, or if `run-one` dies without a record, this executor ends every process
that has the run's marker. `run-one` reads its GPUs and cores from the run's claim. A `run-one` that is stopped (SIGSTOP) cannot
enforce the run's time limit, so the executor continues it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import LaunchError, ResultsError
from orchestrator.executors.pool import Pool, Queue, Share
from orchestrator.executors.starters import Starters, stdin_of
from orchestrator.files.package import PACKAGE
from orchestrator.machine import cores, process
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.environments.containers.removal import remove_container
from orchestrator.machine.gpus import idlest_first, pci_addresses, visible_gpus
from orchestrator.machine.process_tree import end_tree
from orchestrator.machine.stop_signals import StopSignals, held_back
from orchestrator.records import Device, Job, JobState, Start, Status
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record
from orchestrator.results.unfinished_record import unfinished_record

LEAST_FREE_BYTES, LEAST_FREE_FILES = 64 * 2**20, 100
# Not `-m`, since it would import modules of the working folder first, such as a `types.py` or an `orchestrator/` of the user's.
TUNEBENCH = (sys.executable, "-P", str(PACKAGE / "__main__.py"))
RUN_ONE = (*TUNEBENCH, "run-one")
# In this time, `run-one` must end its tree (INT, TERM and KILL, with a wait after each) and write a cancelled record.
_GOODBYE_S = 40.0

_LOOK_AGAIN_S, _PATIENCE = 0.2, 2
# The pause between two looks for a `run-one` that is stopped. After so many looks in a row that find it stopped, it is killed.
_LOOK_FOR_STOPPED_S, _MOST_STOPS = 2.0, 15
# While a larger run waits, this number of smaller runs per GPU of the pool may start before it.
_PASSES_PER_GPU = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """A started `run-one` process. `ended` is a descriptor that becomes readable when the process ends."""

    job: Job
    marker: str
    child: subprocess.Popen[bytes]
    share: Share | None
    ended: int


class LocalExecutor:
    """An executor that runs at most `parallel` jobs at once. Each job has its own part of the visible GPUs.

    At the first job that `may_start` refuses, it starts no more, and waits for the running ones. With `starters`, runs start warm
    if they can. `name` and `details` go into the claims. An executor for clusters uses them: it runs its jobs on a node with this
    executor.
    """

    def __init__(
        self,
        run_one: Sequence[str] = RUN_ONE,
        *,
        parallel: int = 1,
        name: str = "local",
        details: Mapping[str, Any] | None = None,
        may_start: Callable[[Job], bool] | None = None,
        starters: Starters | None = None,
    ) -> None:
        self.run_one = tuple(run_one)
        self.parallel = parallel
        self.name, self.details = name, dict(details or {})
        self.may_start = may_start
        self.starters = starters

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
                    job, share = taken
                    if self.may_start is not None and not self.may_start(job):
                        _give_back(pool, share)
                        queue.waiting.clear()
                        continue
                    with held_back():
                        started = self._start(job, share, neighbours=[run.job for run in running])
                        running += [started] if started is not None else []
                    if started is not None:
                        continue
                    _give_back(pool, share)
                    yield job, claims.state(job.run_dir)
                    continue
                if not running:
                    break
                for run in _await_one(running):
                    with held_back() as stop:
                        _end(run, stop)
                        running.remove(run)
                    _give_back(pool, run.share)
                    if self.starters:
                        self.starters.ended(Store(run.job.folder.results).run(run.job).record)
                    yield run.job, JobState.ENDED if run.job.folder.record.exists() else JobState.LOST
        finally:
            if running:
                _end_all(running)
        if full is not None:
            raise full

    def _start(self, job: Job, share: Share | None, *, neighbours: Sequence[Job]) -> _Run | None:
        """Start the job and return its run. Return None if another process has claimed the job."""
        own: dict[str, Any] = {"gpus": [gpu.uuid for gpu in share.gpus], "cores": list(share.cores)} if share else {}
        experiment = Store(job.folder.results).experiment(job.experiment_id)
        connection = self.starters.connect(experiment) if self.starters else None
        with connection or nullcontext():
            if connection is not None:
                own["start"] = Start.WARM
            elif self.starters and (reason := self.starters.why_cold(experiment)):
                own["cold_because"] = reason
            claim = claims.claim(job, executor=self.name, details={**self.details, **own})
            return self._started(job, claim, share, neighbours, stdin_of(connection)) if claim else None

    def _started(
        self, job: Job, claim: claims.Claim, share: Share | None, neighbours: Sequence[Job], stdin: int
    ) -> _Run:
        together = [job, *neighbours] if neighbours else []
        for one in together:
            claims.note_neighbours(one.run_dir, [other.experiment_id for other in together if other is not one])
        argv = [*self.run_one, str(job.run_dir)]
        try:
            child = process.spawn(argv, log=job.folder.run_one_log, env={MARKER: claim.marker}, stdin=stdin)
        except BaseException as error:
            record = unfinished_record(job, Status.CANCELLED)
            if isinstance(error, LaunchError):
                record = replace(record, cause=f"the process of the run could not be started: {error}")
            write_record(job.run_dir, record)
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
    """Return how many GPUs of this machine the job needs. Slurm has reserved the other nodes of a job on several nodes."""
    experiment = Store(job.folder.results).experiment(job.experiment_id)
    return experiment.processes_per_node if experiment.device is Device.CUDA else 0


def _give_back(pool: Pool, share: Share | None) -> None:
    if share is not None:
        pool.give_back(share)


def _await_one(running: Sequence[_Run]) -> list[_Run]:
    """Wait until a run ends. Return every run that has ended. Continue each `run-one` that is stopped."""
    stops: Counter[int] = Counter()
    with selectors.DefaultSelector() as selector:
        for run in running:
            selector.register(run.ended, selectors.EVENT_READ, run)
        while not (ended := selector.select(_LOOK_FOR_STOPPED_S)):
            for run in running:
                _continue(run, stops)
        return [key.data for key, _ in ended]


def _continue(run: _Run, stops: Counter[int]) -> None:
    """Continue a `run-one` that is stopped, or kill it if something stops it again and again."""
    pid = run.child.pid
    stops[pid] = stops[pid] + 1 if process.is_stopped(run.child) else 0
    if stops[pid]:
        run.child.send_signal(signal.SIGKILL if stops[pid] > _MOST_STOPS else signal.SIGCONT)


def _end(run: _Run, stop: StopSignals) -> None:
    """End all remaining processes of a `run-one` that has ended."""
    killed = not run.job.folder.record.exists()
    end_tree(run.marker, root=run.child, hurry=stop.hurried, folder=run.job.folder if killed else None)
    if killed:
        remove_container(run.job.folder)
    os.close(run.ended)
    log = run.job.folder.run_one_log
    with suppress(OSError):  # an empty log may stay, as on a disk where nothing can be deleted
        if not log.stat().st_size:
            log.unlink()


def _end_all(running: Sequence[_Run]) -> None:
    """End every `run-one` and its tree.

    Pass a second signal to every `run-one`, which then kills its tree at once. After a third signal, stop waiting for the records.
    """
    with StopSignals() as stop:  # a second Ctrl-C must not leave processes behind
        deadline, asked = time.monotonic() + _GOODBYE_S, 0
        living = list(running)
        while living and time.monotonic() < deadline and asked <= _PATIENCE:
            if stop.count >= asked:
                asked = stop.count + 1
                for run in living:
                    run.child.terminate()
                    run.child.send_signal(signal.SIGCONT)  # a stopped process handles SIGTERM only now
            with suppress(subprocess.TimeoutExpired):
                living[0].child.wait(timeout=_LOOK_AGAIN_S)
            living = [run for run in living if run.child.poll() is None]
        for run in running:
            _end(run, stop)
        for run in running:  # `run-one` may have been stopped before it wrote a record
            write_record(run.job.run_dir, unfinished_record(run.job, Status.CANCELLED))


def _full_disk(queue: Queue) -> ResultsError | None:
    """Return an error if the disk is too full for the next run's results, else None."""
    if not queue.waiting:
        return None
    run_dir = queue.waiting[0][0].run_dir
    folder = next(path for path in run_dir.parents if path.exists())
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    remedy = "make room and repeat the command, which keeps what was recorded"
    if disk.f_blocks and free < LEAST_FREE_BYTES:  # a file system such as ramfs does not know its size
        least = LEAST_FREE_BYTES >> 20
        return ResultsError(f"{folder}: {free / 2**20:.0f} MiB are free, and a run needs at least {least}; {remedy}")
    if disk.f_files and disk.f_favail < LEAST_FREE_FILES:  # some file systems do not limit the number of files
        text = f"{folder}: {disk.f_favail} more files fit, and a run needs at least {LEAST_FREE_FILES}; {remedy}"
        return ResultsError(text)
    return None
