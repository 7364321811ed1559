"""Cancel running runs from outside: send SIGTERM to `run-one`, which then ends its process tree and writes the record.

Only the process of `run-one` (`owner.json`) gets the signal. The benchmark that started this process goes on. A different process
that now has the same process id never gets the signal. For a run on another host, the answer contains the command to type on that
host. Slurm ends the runs of its jobs, and runs whose jobs wait in its queue are cancelled at once.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.campaign.status.campaign import chosen
from orchestrator.files.printable_text import printable
from orchestrator.machine.process_identity import boot_id
from orchestrator.records import Job, JobState
from orchestrator.results import claims
from orchestrator.results.claims import Owner
from orchestrator.results.contents import StoredRun
from orchestrator.results.store import Store

# The longest time that a run takes to end. `run-one` sends INT, TERM and KILL to its process tree, waits after each, and writes the
# record.
GOODBYE_S = 60.0
# If `run-one` has gone without a record, the benchmark that started it writes the record within this time.
_GONE_S = 5.0
_LOOK_AGAIN_S = 0.1
# The executor's name in claims, and the folder of its batches.
SLURM = "slurm"
_COPY = "this folder is a copy, so cancel the run in the original folder"
_OF_ANOTHER_USER = "belongs to another user; only that user or root can end it"


class End(StrEnum):
    """The outcome. `ENDED`: the run has ended; `ENDING`: it has not ended yet; `REFUSED`: no signal was sent."""

    ENDED = "ended"
    ENDING = "ending"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The outcome for one run: a word for programs, a sentence for people."""

    job: Job
    end: End
    text: str

    def __str__(self) -> str:
        return printable(self.text)


def cancel(store: Store, wanted: Sequence[str], *, wait_s: float = GOODBYE_S) -> Iterator[Answer]:
    """End the running runs of the experiments that `wanted` names. If it is empty, end the running runs of all experiments.

    Signal all these runs first, then wait at most `wait_s` seconds for their records. Yield the outcome of each run. Raise
    ResultsError if a word of `wanted` does not name exactly one experiment of the results folder.
    """
    states = (JobState.RUNNING, JobState.SILENT)
    ids = chosen(store, wanted)
    jobs = [run.job for experiment in ids for run in store.runs(experiment) if run.state in states]
    deadline = time.monotonic() + wait_s
    in_slurm = {job for job in jobs if _is_in_slurm(job)}
    yield from _cancel_in_slurm(store, ids, [job for job in jobs if job in in_slurm], deadline)
    signalled = [(job, _signal(store, job, deadline)) for job in jobs if job not in in_slurm]
    yield from (answer for _, answer in signalled if isinstance(answer, Answer))
    for job, pid in signalled:
        if isinstance(pid, int):
            yield _await(store, job, pid, deadline)


def _is_in_slurm(job: Job) -> bool:
    claim = claims.read_claim(job.run_dir)
    return claim is not None and claim.executor == SLURM


def _cancel_in_slurm(store: Store, ids: Sequence[str], running: Sequence[Job], deadline: float) -> Iterator[Answer]:
    """Cancel the submitted runs, those that wait in Slurm's queue, too."""
    if not (store.root / SLURM).is_dir():
        return
    from orchestrator.executors.slurm.cancelling import cancel_running, cancel_waiting, is_copy

    waiting, problem = cancel_waiting(store.root, ids)
    for job in waiting:
        yield Answer(job=job, end=End.ENDED, text=f"{_name(job)}: cancelled before it began")
    ending, refusal = cancel_running(running) if running else ([], None)
    for job in running:
        if job not in ending or refusal:
            why = refusal or (_COPY if is_copy(store.root) else "its job is not one of this results folder")
            yield Answer(job=job, end=End.REFUSED, text=f"{_name(job)} runs in Slurm and could not be ended: {why}")
    for job in ending if refusal is None else ():
        yield _await_slurm(store, job, deadline)
    if problem and waiting:
        text = f"{_name(waiting[0])}: its job is still in Slurm's queue and ends as soon as it starts ({problem})"
        yield Answer(job=waiting[0], end=End.ENDED, text=text)


def _await_slurm(store: Store, job: Job, deadline: float) -> Answer:
    """Wait for the record of a run that Slurm was asked to end."""
    while (run := store.run(job)).state is not JobState.ENDED and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_S)
    if run.record is None:
        text = ": Slurm was asked to end its job and the run has no record yet; the next `tunebench run` looks again"
        return Answer(job=job, end=End.ENDING, text=_name(job) + text)
    return Answer(job=job, end=End.ENDED, text=f"{_name(job)}: {run.record.status} after {run.record.wall_s:.1f} s")


def nothing_runs(store: Store, wanted: Sequence[str]) -> str:
    """Return the sentence for a folder in which nothing runs."""
    of = f" of {', '.join(chosen(store, wanted))}" if wanted else ""
    return printable(f"Nothing{of} runs in {store.root}.")


def _name(job: Job) -> str:
    return f"{job.experiment_id} {job.name}"


def _signal(store: Store, job: Job, deadline: float) -> Answer | int:
    """Return the id of the process that got the signal, or an `Answer` that says why no process got it."""
    owner = _owner(job, deadline)
    if owner is None and store.run(job).state is JobState.ENDED:
        return Answer(job=job, end=End.ENDED, text=f"{_name(job)} has already ended by itself")
    if owner is None:
        text = f": {job.folder.owner} is missing or damaged, so the process to end is unknown"
    elif owner.is_hidden():
        text = f": process {owner.pid} {_OF_ANOTHER_USER}"
    elif not owner.is_here():
        text = (
            f" runs {owner.place()} (process {owner.pid}) and can be ended only from there; type there: "
            f"{shlex.join(['tunebench', 'cancel', str(store.root), job.experiment_id])}"
        )
    elif owner.boot_id != boot_id():  # files of the run changed after the boot, or it would be lost
        text = f" runs on another machine that is named {owner.host}, too (process {owner.pid}); cancel it there"
    elif (original := _other_folder(owner, job.run_dir)) is not None:
        text = f": this folder is a copy; process {owner.pid} works in {original}, so cancel the run there"
    else:
        try:
            end_process(owner)
            return owner.pid
        except PermissionError:
            text = f": process {owner.pid} {_OF_ANOTHER_USER}"
    return Answer(job=job, end=End.REFUSED, text=_name(job) + text)


def _owner(job: Job, deadline: float) -> Owner | None:
    """Return the process that carries out the run. If the run is claimed but not started, wait for the process."""
    claim = claims.read_claim(job.run_dir)
    while True:
        try:
            return claims.read_owner(job.run_dir)
        except FileNotFoundError:
            if claim is not None and not claim.owner.is_here():
                return claim.owner
        except (OSError, ValueError):
            return None
        if time.monotonic() >= deadline or claims.state(job.run_dir) is not JobState.RUNNING:
            return None
        time.sleep(_LOOK_AGAIN_S)


def _other_folder(owner: Owner, run_dir: Path) -> Path | None:
    """Return the folder of the run that the process carries out, if it is another one: then `run_dir` is a copy of it."""
    import psutil

    with suppress(psutil.Error, OSError, IndexError, ValueError):
        folder = Path(psutil.Process(owner.pid).cmdline()[-1])  # `run-one RUN_DIR`
        if folder.is_dir() and not folder.samefile(run_dir):
            return folder
    return None


def end_process(owner: Owner) -> None:
    """Send SIGTERM to the process if it still exists. Raise PermissionError if it belongs to another user."""
    try:
        # This descriptor is opened before `lives` is checked. So a new process with the same id cannot get the signal.
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # a kernel without such descriptors
        descriptor = None
    try:
        if owner.lives():
            # A stopped process handles SIGTERM only after SIGCONT.
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    if descriptor is None:
                        os.kill(owner.pid, number)
                    else:
                        signal.pidfd_send_signal(descriptor, number)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _await(store: Store, job: Job, pid: int, deadline: float) -> Answer:
    """Wait for the record. If the process no longer exists, wait only briefly."""
    gone_at = None
    while True:
        run = store.run(job)
        now = time.monotonic()
        gone_at = None if run.state is JobState.RUNNING else gone_at or now
        if run.state is JobState.ENDED or now >= deadline or (gone_at is not None and now >= gone_at + _GONE_S):
            return _answer(run, pid)
        time.sleep(_LOOK_AGAIN_S)


def _answer(run: StoredRun, pid: int) -> Answer:
    if run.state is JobState.ENDED and run.record:
        end, text = End.ENDED, f": {run.record.status} after {run.record.wall_s:.1f} s"
    elif run.state is JobState.ENDED:
        end, text = End.ENDED, " has ended, and its record cannot be read"
    elif run.state is JobState.RUNNING:
        end = End.ENDING
        text = f": process {pid} was asked to end and still runs; cancel again to kill the rest of its training at once"
    else:
        end, text = (
            End.ENDED,
            f": process {pid} is gone without a record; the next `tunebench run` records the run as lost",
        )
    return Answer(job=run.job, end=end, text=_name(run.job) + text)
