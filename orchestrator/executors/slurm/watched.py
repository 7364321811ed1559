"""The submitted elements that an executor waits for, and the ends of their runs.

The marks of the elements and the records of the runs decide. Slurm's word counts only where they are missing: after a grace period,
and never against a run whose heartbeat is fresh, unless Slurm names the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import LaunchError
from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.batches import FOLDER, Batch, BatchFolder, Mark, batch_folders, run_name
from orchestrator.executors.slurm.client import Row
from orchestrator.executors.slurm.in_queue import held_sentence
from orchestrator.executors.slurm.judging import Word, has_ended, is_held, word
from orchestrator.executors.slurm.site import Site
from orchestrator.executors.slurm.worker import EXECUTOR
from orchestrator.files import reading
from orchestrator.files.redaction import redact
from orchestrator.records import Job, JobState, RunRecord, Status
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record
from orchestrator.results.unfinished_record import unfinished_record

_LONGEST_PAUSE_S = 300.0
_JITTER = 0.2
# A run with a younger heartbeat is running, even if Slurm does not list its job.
_FRESH_S = 3 * claims.HEARTBEAT_S
_TAIL_BYTES = 4000
_CANCELLED = "its job was cancelled in Slurm before the run began"

Marks = Mapping[int, set[Mark]]


@dataclass(kw_only=True, slots=True, eq=False)
class Watched:
    """A submitted element. `left` has its runs that have not ended; True means that the element may begin the run, but need not.

    `job_id` is Slurm's number of the array; None if sbatch did not answer. `since` is the time of the submission. `begun`: a run of
    the element has begun. `seen`: Slurm has listed the element. `gone_since` is the time since which Slurm does not list the
    element as waiting or running.
    """

    folder: BatchFolder
    name: str
    number: int
    job_id: int | None
    since: float
    left: dict[Job, bool] = field(default_factory=dict)
    begun: bool = False
    seen: bool = False
    gone_since: float | None = None
    stuck_since: float | None = None


@dataclass(kw_only=True, slots=True)
class Queue:
    """The last answer of squeue.

    `asked_at` is its time, 0 before the first answer; `silent` counts the calls without an answer since. `told` has the reasons
    that the user knows.
    """

    site: Site
    say: Callable[[str], object] = lambda sentence: None
    rows: dict[tuple[str, int, int], Row] = field(default_factory=dict)
    asked_at: float = 0.0
    next_at: float = 0.0
    silent: int = 0
    told: set[str] = field(default_factory=set)

    def ask(self) -> None:
        """Ask squeue, if it is time. If there is no good answer, keep the last one and wait longer before the next call."""
        began = time.time()
        if began < self.next_at:
            return
        try:
            rows = client.queue()
        except LaunchError as error:
            if not self.silent:
                self.say(f"Slurm does not answer, so what it does is unknown ({error}); trying again")
            self.silent += 1
        else:
            if self.silent:
                self.say("Slurm answers again")
            self.silent, self.asked_at = 0, began
            self.rows = {(row.name, row.job_id, row.element): row for row in rows}
        pause_s = min(_LONGEST_PAUSE_S, self.site.poll_s * 2 ** min(self.silent, 10))
        self.next_at = time.time() + pause_s * random.uniform(1 - _JITTER, 1 + _JITTER)

    def row(self, element: Watched) -> Row | None:
        """Return Slurm's row of an element. If the number of the job is unknown, find it by the name, and note it."""
        if element.job_id is None:
            found = next((row for row in self.rows.values() if row.name == element.name), None)
            if found is None:
                return None
            element.folder.note_submitted(found.job_id)
            element.job_id = found.job_id
        return self.rows.get((element.name, element.job_id, element.number))

    def tell_held(self, elements: Sequence[Watched]) -> None:
        """Say once for each reason that jobs may wait for it for ever. A site with `max_pending:` ends them.

        A reason that only one answer has may go away at once.
        """
        held: dict[str, list[str]] = {}
        for element in elements if self.site.max_pending_s is None else ():
            row = self.row(element)
            if row is not None and element.stuck_since and element.stuck_since < self.asked_at:
                held.setdefault(row.reason, []).extend(run_name(job) for job in element.left)
        for reason, runs in held.items():
            if reason not in self.told:
                self.told.add(reason)
                self.say(held_sentence(reason, runs, elements[0].folder.results))


def look(element: Watched, marks: Marks, queue: Queue) -> tuple[list[Job], Word | None]:
    """Return the runs that have ended since the last look, and the end of the element; None if it has not ended."""
    ended = [] if not (marks or element.begun) else [job for job in element.left if job.folder.record.exists()]
    for job in ended:
        element.begun = True
        del element.left[job]
        following = _next_attempt(job)
        if following is not None:
            element.left[following] = True
    latest = marks[max(marks)] if marks else set()
    # Another start of the element, as of a script that somebody started by hand, may still carry out the runs.
    if Mark.DONE in latest and not any(_is_fresh(job) for job in element.left):
        return ended, word("COMPLETED")
    return ended, _word_of_slurm(element, queue, stopped=Mark.STOPPED in latest)


def _next_attempt(job: Job) -> Job | None:
    """Return the next attempt if the run was lost or cancelled: Slurm may start the element again."""
    store = Store(job.folder.results)
    record = store.run(job).record
    if record is None or record.status not in (Status.LOST, Status.CANCELLED):
        return None
    return store.job(job.experiment_id, repeat=job.repeat, attempt=job.attempt + 1)


def _word_of_slurm(element: Watched, queue: Queue, *, stopped: bool) -> Word | None:
    if queue.asked_at <= element.since:
        return None
    row = queue.row(element)
    if row is not None and not has_ended(row.state):
        element.seen, element.gone_since = True, None
        return _stuck(element, row, queue.site)
    if element.gone_since is None:
        # If Slurm never listed it, the grace period runs from the submission, so that an old folder is resumed at once.
        element.gone_since = queue.asked_at if row is not None or element.seen else element.since
    # Only a later answer confirms that Slurm does not list the element: silence does not.
    latest = queue.asked_at if row is None else time.time()
    if latest - element.gone_since < queue.site.grace_s:
        return None
    if row is None and stopped:
        said = word("CANCELLED")
    else:
        state, reason = (row.state, row.reason) if row else (None, "")
        said = word(state, reason, log=_log_end(element), memory_mb=_memory_mb(element))
    if not said.sure and any(_is_fresh(job) for job in element.left):
        return None
    return said


def _memory_mb(element: Watched) -> int | None:
    """Return the memory of the element's allocation, if the claim of one of its runs notes it."""
    noted = (allocation_of(job).get("memory_mb") for job in element.left)
    return next((number for number in noted if isinstance(number, int)), None)


def _stuck(element: Watched, row: Row, site: Site) -> Word | None:
    """Cancel an element that waits too long for a reason that does not go away, and return its end."""
    if not is_held(row):
        element.stuck_since = None
        return None
    element.stuck_since = element.stuck_since or time.time()
    if site.max_pending_s is None:
        return None
    waited_s = time.time() - element.stuck_since
    if waited_s < site.max_pending_s:
        return None
    if element.folder.batch() is None:
        return None  # a copy of a results folder ends no job of the original
    try:
        client.cancel(element.name, [(row.job_id, row.element)])
    except LaunchError:
        return None  # the next look tries it again
    cause = f"its job waited for {waited_s:.0f} s in Slurm and was cancelled (max_pending): {row.reason}"
    return Word(status=Status.FAILED, kind="launcher", cause=cause)


def _is_fresh(job: Job) -> bool:
    """Return whether the run has been claimed, and its process has just shown that it lives."""
    if claims.state(job.run_dir, clock=claims.file_servers_clock) is not JobState.RUNNING:
        return False
    if any(owner.lives() for owner in claims.owners(job.run_dir)):
        return True
    silence_s = claims.silence_s(job.run_dir, claims.file_servers_clock)
    return silence_s is not None and silence_s < _FRESH_S


def settle(element: Watched, end: Word) -> Iterator[tuple[Job, JobState]]:
    """Give each run that is left its record. Yield each run of the element with its state. PENDING: the run never began.

    The next attempt of a run that was cancelled with its allocation counts only if the user did not ask for the end.
    """
    for job, optional in element.left.items():
        state = claims.state(job.run_dir)
        if state is JobState.PENDING and not optional and (end.status is Status.CANCELLED or end.kind == "launcher"):
            cause = _CANCELLED if end.status is Status.CANCELLED else end.cause
            refuse(element, job, replace(end, cause=cause))
            state = claims.state(job.run_dir)
        elif state not in (JobState.PENDING, JobState.ENDED) and _is_of(element, job):
            write_record(job.run_dir, _record(job, end))
            state = JobState.ENDED
        if not optional or state is not JobState.PENDING or end.is_taken_away:
            yield job, state


def refuse(element: Watched, job: Job, end: Word) -> None:
    """Claim a run that never began, and write its record with the end of its job and the end of the job's log."""
    details = {"slurm": {"batch": element.name, "element": element.number}}
    if claims.claim(job, executor=EXECUTOR, details=details) is not None:
        write_record(job.run_dir, replace(_record(job, end), tail=_log_end(element) or None))


def _record(job: Job, end: Word) -> RunRecord:
    record = unfinished_record(job)
    if record.status is not Status.LOST:
        return record  # the run had written its record, but could not place it
    return replace(record, status=end.status, kind=end.kind, cause=end.cause)


def _is_of(element: Watched, job: Job) -> bool:
    """Return whether this element claimed the run."""
    details = allocation_of(job)
    return (details.get("batch"), details.get("element")) == (element.name, element.number)


def allocation_of(job: Job) -> Mapping[str, Any]:
    """Return what the claim of a run says about its allocation. Return an empty mapping if no element has claimed the run."""
    claim = claims.read_claim(job.run_dir)
    details = claim.details.get("slurm") if claim else None
    return details if isinstance(details, Mapping) else {}


def _log_end(element: Watched) -> str:
    try:
        return redact(reading.read_tail(element.folder.log(element.number), limit=64 * 1024))[-_TAIL_BYTES:]
    except (OSError, ValueError):
        return ""


def marks_of(elements: Iterable[Watched]) -> dict[BatchFolder, dict[int, dict[int, set[Mark]]]]:
    """Return the marks of each batch that has one of these elements. One listing for each batch."""
    return {folder: folder.marks() for folder in {element.folder for element in elements}}


def places(results: Path) -> tuple[dict[str, tuple[BatchFolder, int]], dict[BatchFolder, Batch]]:
    """Return two mappings: run → the folder of its last batch and its element, and folder → batch."""
    places: dict[str, tuple[BatchFolder, int]] = {}
    folders: dict[BatchFolder, Batch] = {}
    for folder in batch_folders(results):
        batch = folder.batch()
        if batch is not None:
            folders[folder] = batch
            if not folder.is_cancelled():
                places.update({run: (folder, number) for number, runs in enumerate(batch.elements) for run in runs})
    return places, folders


def claimed_by(job: Job, folders: Mapping[BatchFolder, Batch]) -> Watched | None:
    """Return the element that claimed the run, also if its batch does not list this attempt, or if the batch's folder is gone."""
    claim = claims.read_claim(job.run_dir)
    details = claim.details.get("slurm") if claim else None
    if claim is None or not isinstance(details, Mapping):
        return None
    name, number, job_id = (details.get(key) for key in ("batch", "element", "job_id"))
    if not (isinstance(name, str) and isinstance(number, int) and isinstance(job_id, int)):
        return None
    named = [folder for folder, batch in folders.items() if batch.name == name]
    folder = named[0] if named else BatchFolder(job.folder.results / FOLDER / "gone")
    since = min(claim.claimed_at, time.time())  # the clock of another host may be ahead
    return Watched(folder=folder, name=name, number=number, job_id=job_id, since=since, begun=True)


def watched_element(folder: BatchFolder, number: int, batch: Batch) -> Watched:
    submitted = folder.submitted()
    job_id, since = (submitted.job_id, submitted.at) if submitted else (None, batch.created_at)
    since = min(since, time.time())  # the clock of another host may be ahead
    return Watched(folder=folder, name=batch.name, number=number, job_id=job_id, since=since)
