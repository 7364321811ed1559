"""The state of one experiment of a results folder: the states of its repeats. A repeat has the state of its last attempt.

`Follower` looks at the experiment repeatedly. Records never change, so `Follower` keeps those values of an ended run that a view
needs. Most looks only check for changes. `store.plan` decides which runs are due.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Any

from orchestrator.campaign.status import activity, time_left
from orchestrator.campaign.status.activity import Activity
from orchestrator.errors import ResultsError
from orchestrator.records import Experiment, Job, JobState, RunRecord, Status
from orchestrator.records.run_folder import EXPERIMENT_FILE
from orchestrator.results import claims
from orchestrator.results.claims import Owner
from orchestrator.results.contents import StoredRun
from orchestrator.results.store import Store

# The failure kind of a run whose record cannot be read. The run may have succeeded, so it is not due again.
UNREADABLE = "unreadable"
# During this time after a change, a second change may leave the folder's modification time as it is.
_SETTLED_S = 2.0
# The longest time that a run takes before and after its training, together. Files whose times show a longer time were copied or
# changed later.
_LONGEST_AROUND_S = 60.0


class RepeatState(StrEnum):
    """The state of a repeat. `LOST`: its process ended without a record; `SILENT`: its heartbeat file is old."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    PENDING = "pending"
    LOST = "lost"
    SILENT = "silent"


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatStatus:
    """One repeat of an experiment, in the state of its last attempt. For a pending repeat, `attempt` is the next attempt.

    `status`, `kind`, `cause` and `took_s` are from the last record. `owner` is the process that carries out the run. `since` is the
    time of the run's claim (seconds since the epoch). `gpus` are the UUIDs of its GPUs. `activity` has its phase and speed.
    """

    experiment_id: str
    repeat: int
    attempt: int
    state: RepeatState
    status: Status | None = None
    kind: str | None = None
    cause: str | None = None
    took_s: float | None = None
    owner: Owner | None = None
    since: float | None = None
    gpus: tuple[str, ...] = ()
    activity: Activity | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentStatus:
    """An experiment and its repeats. `may_follow` is the largest number of adaptive repeats that may still be added."""

    experiment: Experiment
    repeats: tuple[RepeatStatus, ...]
    may_follow: int = 0


Signature = tuple[int, int, int]


def signature(path: Path | str) -> Signature | None:
    """Return a value that changes when the file is replaced, or when the folder gets another entry.

    Return None if the path does not exist.
    """
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def is_settled(seen: Signature | None) -> bool:
    """Return whether an unchanged signature proves that the folder is unchanged.

    If the last change is recent, return False, because two changes in quick succession can have the same time.
    """
    return seen is None or time.time() - seen[1] / 1e9 > _SETTLED_S


class Follower:
    """One experiment, followed over many looks. Call `look`, then `settle` if `look` returned True, then `status`.

    `due` is the number of due runs. `took` says how long ended runs took. `warnings` has a sentence for each file that cannot be
    read.
    """

    def __init__(self, store: Store, experiment_id: str) -> None:
        self.store, self.id = store, experiment_id
        folder = store.root / "experiments" / experiment_id
        self._places = str(folder / EXPERIMENT_FILE), str(folder / "runs")
        self.experiment: Experiment | None = None
        self.took: tuple[time_left.Took, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.due = 0
        self._problem: str | None = None
        self._runs: tuple[StoredRun, ...] = ()
        self._open = False
        self._status: ExperimentStatus | None = None
        self._expected: dict[int, Job] = {}
        self._settled = False
        self._file: Signature | None = None
        self._listing: Signature | None = None

    def expect(self, job: Job) -> None:
        """Count this run as due until it begins."""
        self._expected[job.repeat] = job
        self._settled = False

    def look(self) -> bool:
        """Return whether anything has changed since the last look."""
        changed = self._look_at_experiment()
        return self._look_at_runs() or changed or not self._settled

    def _look_at_experiment(self) -> bool:
        seen = signature(self._places[0])
        if seen == self._file and (self.experiment or self._problem):
            return False
        self._file = seen
        try:
            self.experiment, self._problem = self.store.experiment(self.id), None
        except ResultsError as error:
            self.experiment, self._problem = None, str(error)
        return True

    def _look_at_runs(self) -> bool:
        seen = signature(self._places[1])
        if seen == self._listing and is_settled(seen):
            if not self._open:
                return False
            runs = [run if _is_final(run) else self.store.run(run.job) for run in self._runs]
        else:
            self._listing = seen
            runs = list(self.store.runs(self.id))
        before = [(run.job.name, run.state, _is_final(run)) for run in self._runs]
        self._runs = tuple(map(_without_numbers, runs))
        self._open = not all(map(_is_final, runs))
        return before != [(run.job.name, run.state, _is_final(run)) for run in runs]

    def is_complete(self) -> bool:
        """Return whether every possible repeat has succeeded, so that no run can be due."""
        done = {run.job.repeat for run in self._runs if run.record and run.record.status is Status.OK}
        return self.experiment is not None and len(done) >= self.experiment.most_repeats

    def settle(self, jobs: Iterable[Job]) -> None:
        """Store the due runs, and determine the state of each repeat."""
        self._settled = True
        self.warnings = tuple(_warnings(self._problem, self._runs))
        if self.experiment is None:
            self._status, self.took, self.due = None, (), 0
            return
        experiment = self.experiment
        last = {run.job.repeat: run for run in self._runs if not run.is_failed_surplus(experiment)}
        begun = {repeat: run.job.attempt for repeat, run in last.items()}
        due = {job.repeat: job for job in jobs}
        due |= {job.repeat: job for job in self._expected.values() if job.attempt > begun.get(job.repeat, 0)}
        known = (_repeat_status(run, due.get(repeat)) for repeat, run in last.items())
        new = (_pending(job) for repeat, job in due.items() if repeat not in last)
        repeats = tuple(sorted((status for status in (*known, *new) if status), key=attrgetter("repeat")))
        self._status = ExperimentStatus(
            experiment=self.experiment, repeats=repeats, may_follow=_may_follow(self.experiment, repeats)
        )
        self.due = len(due)
        self.took = tuple(seconds for run in self._runs if (seconds := took(self.experiment, run)))

    def status(self) -> ExperimentStatus | None:
        """Return the state, with the current activity of running repeats. Return None if the experiment cannot be read."""
        if self._status is None or not self._open:
            return self._status
        return replace(self._status, repeats=tuple(map(self._with_activity, self._status.repeats)))

    def _with_activity(self, repeat: RepeatStatus) -> RepeatStatus:
        if repeat.state is not RepeatState.RUNNING or self.experiment is None:
            return repeat
        run_dir = self.store.run_dir(self.id, repeat.repeat, repeat.attempt)
        return replace(repeat, **_who(run_dir), activity=activity.look(run_dir, self.experiment))


def _warnings(problem: str | None, runs: Iterable[StoredRun]) -> Iterator[str]:
    if problem is not None:
        yield problem
    for run in runs:
        if run.state is JobState.ENDED and run.record is None:
            yield f"{run.job.folder.record}: cannot be read as a record, so the end of the run is unknown"
        elif run.state is JobState.LOST and claims.read_claim(run.job.run_dir) is None:
            yield f"{run.job.folder.claim}: missing or damaged, so the owner of the run is unknown"


def _may_follow(experiment: Experiment, repeats: Sequence[RepeatStatus]) -> int:
    """Return how many adaptive repeats may still be added. Once every repeat has ended, none is added."""
    ended = (RepeatState.DONE, RepeatState.FAILED)
    if experiment.adaptive is None or all(repeat.state in ended for repeat in repeats):
        return 0
    return max(0, experiment.most_repeats - max(repeat.repeat for repeat in repeats))


def _is_final(run: StoredRun) -> bool:
    return run.state is JobState.ENDED and run.record is not None


def _without_numbers(run: StoredRun) -> StoredRun:
    """Return the run without the large parts of its record, because a view keeps thousands of runs in memory."""
    if run.record is None:
        return run
    bare = replace(
        run.record, measurements=(), ranks=(), devices=(), settings={}, provenance={}, tail=None, warnings=()
    )
    return replace(run, record=bare)


def _pending(job: Job, record: RunRecord | None = None) -> RepeatStatus:
    return RepeatStatus(
        experiment_id=job.experiment_id,
        repeat=job.repeat,
        attempt=job.attempt,
        state=RepeatState.PENDING,
        status=record.status if record else None,
        kind=record.kind if record else None,
        cause=record.cause if record else None,
    )


def _repeat_status(run: StoredRun, due: Job | None) -> RepeatStatus | None:
    """Return the status of a repeat. `run` is its last run. `due` is its due job, or None.

    Return None if the run's folder is gone.
    """
    job, record = run.job, run.record
    if run.state is JobState.PENDING:
        return None
    known: dict[str, Any] = {"experiment_id": job.experiment_id, "repeat": job.repeat, "attempt": job.attempt}
    if run.state is not JobState.ENDED:
        return RepeatStatus(**known, state=RepeatState(run.state.value), **_who(job.run_dir))
    if record is None:
        return RepeatStatus(**known, state=RepeatState.FAILED, kind=UNREADABLE, cause="its record cannot be read")
    if due is not None:
        return _pending(due, record)
    return RepeatStatus(
        **known,
        state=RepeatState.DONE if record.status is Status.OK else RepeatState.FAILED,
        status=record.status,
        kind=record.kind,
        cause=record.cause,
        took_s=record.wall_s,
        since=record.started_at,
    )


def _who(run_dir: Path) -> dict[str, Any]:
    """Return the fields `owner`, `since` and `gpus` of a run's status."""
    claim = claims.read_claim(run_dir)
    dealt = claim.details.get("gpus") if claim else None
    return {
        "owner": next(iter(claims.owners(run_dir)), None),
        "since": claim.claimed_at if claim else None,
        "gpus": tuple(map(str, dealt)) if isinstance(dealt, list) else (),
    }


def took(experiment: Experiment, run: StoredRun) -> time_left.Took | None:
    """Return the time from the run's claim to its record. Return None if the run did not end by itself."""
    if run.record is None:
        return None
    claimed, recorded = map(signature, (run.job.folder.claim, run.job.folder.record))
    whole_s = (recorded[1] - claimed[1]) / 1e9 if claimed and recorded else 0.0
    known = run.record.wall_s <= whole_s <= run.record.wall_s + _LONGEST_AROUND_S
    return time_left.took(experiment, run.record, seconds=whole_s if known else None)
