"""Where one experiment of a results folder stands: its repeats, each in one state by its last attempt. Reads; shows nothing.

`Follower` looks again and again: of what ended it keeps what a view needs, since records never change, and asks the disk little
more than whether anything is new. What is owed is `store.plan`'s to say.
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

from orchestrator.campaign.status import activity as running
from orchestrator.campaign.status import time_left
from orchestrator.campaign.status.activity import Activity
from orchestrator.errors import ResultsError
from orchestrator.records import Experiment, Job, JobState, RunRecord, Status
from orchestrator.records.run_folder import EXPERIMENT_FILE
from orchestrator.results import claims
from orchestrator.results.claims import Owner
from orchestrator.results.contents import StoredRun
from orchestrator.results.due_runs import most_repeats
from orchestrator.results.store import Store

UNREADABLE = "unreadable"
"""The kind of a run whose record cannot be read: what it says may be right, so it is not owed again."""

_SETTLED_S = 2.0
"""A folder that changed so lately may have changed again without its time showing it."""

_LONGEST_AROUND_S = 60.0
"""What a run takes around its training (its start, facts of the machine) at most; above, the files' times are not the run's."""


class RepeatState(StrEnum):
    """Where a repeat stands. `LOST`: its process is gone without a record; `SILENT`: elsewhere, and nothing was heard of it."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    PENDING = "pending"
    LOST = "lost"
    SILENT = "silent"


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatStatus:
    """One repeat of an experiment, by its last attempt; of one that is pending, `attempt` is the next one.

    `status`, `kind` and `cause` are the last record's, `took_s` how long that run took. `owner` and `since` (seconds since the
    epoch) say who has the run or had it, `gpus` (UUIDs) which were dealt to it, `activity` what it is at.
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
    """An experiment and its repeats. `may_follow` are those that adaptive repeats may still come to."""

    experiment: Experiment
    repeats: tuple[RepeatStatus, ...]
    may_follow: int = 0


Signature = tuple[int, int, int]


def signature(path: Path | str) -> Signature | None:
    """What changes when somebody puts another file in the place, or another name into the folder; None where nothing is."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def is_settled(seen: Signature | None) -> bool:
    """Whether a folder that looks as it did is as it was: of two changes within a moment, the second does not show."""
    return seen is None or time.time() - seen[1] / 1e9 > _SETTLED_S


class Follower:
    """One experiment between looks: `look`, then `settle` where that says that something has changed, then `status`.

    `owed` is how many runs it owes, `took` how long those took that ended; `warnings` are sentences, one for each file that cannot
    be read.
    """

    def __init__(self, store: Store, experiment_id: str) -> None:
        self.store, self.id = store, experiment_id
        folder = store.root / "experiments" / experiment_id
        self._places = str(folder / EXPERIMENT_FILE), str(folder / "runs")
        self.experiment: Experiment | None = None
        self.took: tuple[time_left.Took, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.owed = 0
        self._problem: str | None = None
        self._runs: tuple[StoredRun, ...] = ()
        self._open = False
        self._status: ExperimentStatus | None = None
        self._expected: dict[int, Job] = {}
        self._settled = False
        self._file: Signature | None = None
        self._listing: Signature | None = None

    def expect(self, job: Job) -> None:
        """Count this run as owed until it begins."""
        self._expected[job.repeat] = job
        self._settled = False

    def look(self) -> bool:
        """Return True where anything has changed since the last look."""
        changed = self._look_at_experiment()
        return self._look_at_runs() or changed or not self._settled

    def _look_at_experiment(self) -> bool:
        seen = signature(self._places[0])
        if seen == self._file:
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
            found = [run if _is_final(run) else self.store.run(run.job) for run in self._runs]
        else:
            self._listing = seen
            found = list(self.store.runs(self.id))
        before = [(run.job.name, run.state, _is_final(run)) for run in self._runs]
        self._runs = tuple(map(_without_numbers, found))
        self._open = not all(map(_is_final, found))
        return before != [(run.job.name, run.state, _is_final(run)) for run in found]

    def is_complete(self) -> bool:
        """Whether every repeat that it can come to has ended well, so that nothing can be owed."""
        done = {run.job.repeat for run in self._runs if run.record and run.record.status is Status.OK}
        return self.experiment is not None and len(done) >= most_repeats(self.experiment)

    def settle(self, owed: Iterable[Job]) -> None:
        """Take in what is owed, and give each repeat its state."""
        self._settled = True
        self.warnings = tuple(_warnings(self._problem, self._runs))
        if self.experiment is None:
            self._status, self.took, self.owed = None, (), 0
            return
        last = {run.job.repeat: run for run in self._runs}
        begun = {repeat: run.job.attempt for repeat, run in last.items()}
        due = {job.repeat: job for job in owed}
        due |= {job.repeat: job for job in self._expected.values() if job.attempt > begun.get(job.repeat, 0)}
        there = (_repeat_status(run, due.get(repeat)) for repeat, run in last.items())
        new = (_pending(job) for repeat, job in due.items() if repeat not in last)
        repeats = tuple(sorted((one for one in (*there, *new) if one), key=attrgetter("repeat")))
        self._status = ExperimentStatus(
            experiment=self.experiment, repeats=repeats, may_follow=_may_follow(self.experiment, repeats)
        )
        self.owed = len(due)
        self.took = tuple(one for run in self._runs if (one := took(self.experiment, run)))

    def status(self) -> ExperimentStatus | None:
        """How it stands, with what its running ones are at now; None where the experiment cannot be read."""
        if self._status is None or not self._open:
            return self._status
        repeats = tuple(map(self._at_work, self._status.repeats))
        return replace(self._status, repeats=repeats)

    def _at_work(self, one: RepeatStatus) -> RepeatStatus:
        if one.state is not RepeatState.RUNNING or self.experiment is None:
            return one
        run_dir = self.store.run_dir(self.id, one.repeat, one.attempt)
        return replace(one, **_who(run_dir), activity=running.look(run_dir, self.experiment))


def _warnings(problem: str | None, runs: Iterable[StoredRun]) -> Iterator[str]:
    if problem is not None:
        yield problem
    for run in runs:
        if run.state is JobState.ENDED and run.record is None:
            yield f"{run.job.folder.record}: cannot be read as a record, so that nobody knows how the run ended"
        elif run.state is JobState.LOST and claims.read_claim(run.job.run_dir) is None:
            yield f"{run.job.folder.claim}: missing or damaged, so that nobody knows whose run it is"


def _may_follow(experiment: Experiment, repeats: Sequence[RepeatStatus]) -> int:
    """Adaptive repeats that may come behind those that are owed or under way; where there are none of these, none will."""
    if experiment.adaptive is None or all(one.state in (RepeatState.DONE, RepeatState.FAILED) for one in repeats):
        return 0
    return max(0, most_repeats(experiment) - max(one.repeat for one in repeats))


def _is_final(run: StoredRun) -> bool:
    return run.state is JobState.ENDED and run.record is not None


def _without_numbers(run: StoredRun) -> StoredRun:
    """Less what makes a record large: thousands of them are kept."""
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


def _repeat_status(run: StoredRun, owed: Job | None) -> RepeatStatus | None:
    """By the last attempt of a repeat, and by whether it is owed again; None where the run's folder has gone."""
    job, record = run.job, run.record
    if run.state is JobState.PENDING:
        return None
    known: dict[str, Any] = {"experiment_id": job.experiment_id, "repeat": job.repeat, "attempt": job.attempt}
    if run.state is not JobState.ENDED:
        return RepeatStatus(**known, state=RepeatState(run.state.value), **_who(job.run_dir))
    if record is None:
        return RepeatStatus(**known, state=RepeatState.FAILED, kind=UNREADABLE, cause="its record cannot be read")
    if owed is not None:
        return _pending(owed, record)
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
    """Who has the run, and since when."""
    claim = claims.read_claim(run_dir)
    dealt = claim.details.get("gpus") if claim and isinstance(claim.details, dict) else None
    return {
        "owner": next(iter(claims.owners(run_dir)), None),
        "since": claim.claimed_at if claim and isinstance(claim.claimed_at, (int, float)) else None,
        "gpus": tuple(map(str, dealt)) if isinstance(dealt, list) else (),
    }


def took(experiment: Experiment, run: StoredRun) -> time_left.Took | None:
    """How long a run took from its claim to its record; None of one that did not end by itself."""
    if run.record is None:
        return None
    claimed, recorded = map(signature, (run.job.folder.claim, run.job.folder.record))
    whole_s = (recorded[1] - claimed[1]) / 1e9 if claimed and recorded else 0.0
    known = run.record.wall_s <= whole_s <= run.record.wall_s + _LONGEST_AROUND_S
    return time_left.took(experiment, run.record, seconds=whole_s if known else None)
