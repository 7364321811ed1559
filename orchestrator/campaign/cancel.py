"""Ends running runs from outside: SIGTERM to the process that carries one out, which ends its tree and writes its record.

Signals `run-one` alone (`owner.json`), never the benchmark that started it, which goes on, and never a number that is another
process by now. A run on another host is refused with what to type there. Writes nothing: the record is the run's own last act.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.campaign.status.campaign import chosen
from orchestrator.files import reading
from orchestrator.files.printable_text import printable
from orchestrator.records import Job, JobState, RunFolder
from orchestrator.results import claims
from orchestrator.results.claims import Owner
from orchestrator.results.contents import StoredRun
from orchestrator.results.store import Store

GOODBYE_S = 60.0
"""How long a run may take to end: its tree gets INT, TERM and KILL, each with its wait, then the record is written."""

_LOOK_AGAIN_S = 0.1
_GONE_S = 5.0
"""How long after its process has gone a record may still come, from the benchmark that started it."""


class End(StrEnum):
    """What came of asking. `ENDED`: its record is there; `ENDING`: not yet; `REFUSED`: it was not asked."""

    ENDED = "ended"
    ENDING = "ending"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What became of one run, and a sentence that says it; `end` is for programs."""

    job: Job
    end: End
    text: str

    def __str__(self) -> str:
        return printable(self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    job: Job
    pid: int


def cancel(store: Store, wanted: Sequence[str], *, wait_s: float = GOODBYE_S) -> Iterator[Answer]:
    """Ends the running runs of the experiments that these words name, of all without a word; yields what became of each.

    Nothing is yielded where nothing runs. All are asked first, then waited for, `wait_s` seconds at most for all of them. Raises
    ResultsError for a word that names no experiment of the folder, or several.
    """
    jobs = [job for one in chosen(store, wanted) for job in _under_way(store, one)]
    deadline = time.monotonic() + wait_s
    tried = [_ask(store, job, deadline) for job in jobs]
    yield from (answer for answer in tried if isinstance(answer, Answer))
    for asked in tried:
        if isinstance(asked, _Asked):
            yield _await(store, asked, deadline)


def nothing_runs(store: Store, wanted: Sequence[str]) -> str:
    """The sentence for when nothing was there to end."""
    of = f" of {', '.join(chosen(store, wanted))}" if wanted else ""
    return printable(f"Nothing{of} runs in {store.root}.")


def _under_way(store: Store, experiment_id: str) -> list[Job]:
    states = (JobState.RUNNING, JobState.SILENT)
    return [run.job for run in store.runs(experiment_id) if run.state in states]


def _ask(store: Store, job: Job, deadline: float) -> Answer | _Asked:
    owner = _owner(job.run_dir, deadline)
    if owner is None:
        return _not_taken_over(store, job)
    name = f"{job.experiment_id} {job.name}"
    if not owner.is_here():
        text = (
            f"{name} runs on {owner.host} (process {owner.pid}) and can be ended only from there; type on {owner.host}: "
            f"{shlex.join(['tunebench', 'cancel', str(store.root), job.experiment_id])}"
        )
        return Answer(job=job, end=End.REFUSED, text=text)
    try:
        end_process(owner)
    except PermissionError:
        text = f"{name}: process {owner.pid} belongs to another user, who alone (or root) can end it"
        return Answer(job=job, end=End.REFUSED, text=text)
    return _Asked(job=job, pid=owner.pid)


def _owner(run_dir: Path, deadline: float) -> Owner | None:
    """Who carries the run out; waited for where it was only just claimed, since until then the claim is its benchmark's."""
    claim = claims.read_claim(run_dir)
    while True:
        try:
            owner = Owner(**reading.read_json(RunFolder(run_dir).owner, limit=reading.CLAIM_BYTES))
            return owner if isinstance(owner.pid, int) and owner.pid > 0 else None
        except FileNotFoundError:
            if claim is not None and not claim.owner.is_here():
                return claim.owner
        except (OSError, ValueError, TypeError):
            return None
        if time.monotonic() >= deadline or claims.state(run_dir) is not JobState.RUNNING:
            return None
        time.sleep(_LOOK_AGAIN_S)


def _not_taken_over(store: Store, job: Job) -> Answer:
    run = store.run(job)
    name = f"{job.experiment_id} {job.name}"
    if run.state is JobState.ENDED:
        return Answer(job=job, end=End.ENDED, text=f"{name} has ended by itself meanwhile")
    text = f"{name}: {job.folder.owner} is missing or damaged, so that nobody knows which process to end"
    return Answer(job=job, end=End.REFUSED, text=text)


def end_process(owner: Owner) -> None:
    """SIGTERM, if the process is still that one. Raises PermissionError where it is another user's."""
    with _held(owner.pid) as send:
        if owner.lives():
            send()


@contextmanager
def _held(pid: int) -> Iterator[Callable[[], None]]:
    """A way to signal a process such that its number cannot come to mean another one in between, where the kernel has that."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        yield lambda: None
        return
    except (AttributeError, OSError):
        yield lambda: _kill(pid)
        return
    try:
        yield lambda: _send(descriptor)
    finally:
        os.close(descriptor)


def _send(descriptor: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


def _await(store: Store, asked: _Asked, deadline: float) -> Answer:
    """Waits for the record; a process that has gone without one is not waited for long."""
    job, gone_at = asked.job, None
    while True:
        run = store.run(job)
        now = time.monotonic()
        gone_at = None if run.state is JobState.RUNNING else gone_at or now
        if run.state is JobState.ENDED or now >= deadline or (gone_at is not None and now >= gone_at + _GONE_S):
            return _answer(store, asked, run)
        time.sleep(_LOOK_AGAIN_S)


def _answer(store: Store, asked: _Asked, run: StoredRun) -> Answer:
    job = asked.job
    name = f"{job.experiment_id} {job.name}"
    if run.state is JobState.ENDED:
        said = f"{name}: {run.record.status}" if run.record else f"{name} has ended, and its record cannot be read"
        took = f" after {run.record.wall_s:.1f} s" if run.record else ""
        return Answer(job=job, end=End.ENDED, text=said + took)
    if run.state is JobState.RUNNING:
        text = (
            f"{name}: process {asked.pid} was asked to end and is still at it; ask a second time to kill at once "
            "what is left of its training"
        )
        return Answer(job=job, end=End.ENDING, text=text)
    text = f"{name}: process {asked.pid} is gone without a record; the next `tunebench run` records the run as lost"
    return Answer(job=job, end=End.ENDED, text=text)
