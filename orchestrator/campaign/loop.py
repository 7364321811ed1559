"""`run_benchmark` finds the due runs, gives them to the executor, and records lost runs.

It repeats these steps until no run is due. The executor starts a command for each job, so this module never calls `run/`. All state
is in files, so another call resumes an interrupted benchmark. This module chooses no experiments, prints nothing, and writes no
report.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.campaign.status.budget import Spending
from orchestrator.errors import ResultsError, remedy
from orchestrator.executors import AttachingExecutor, Executor, ends
from orchestrator.files import writing
from orchestrator.files.printable_text import counted
from orchestrator.machine.environments.containers.removal import remove_container
from orchestrator.machine.process_identity import noted
from orchestrator.machine.process_tree import Ended, end_tree
from orchestrator.measure.failure_kinds import FILES_CHANGED, NO_ENVIRONMENT
from orchestrator.records import Experiment, Job, JobState, RunRecord, Status
from orchestrator.results import claims
from orchestrator.results.contents import StoredRun
from orchestrator.results.due_runs import NO_RETRY, Retry, can_run, wanted
from orchestrator.results.folder import with_dated_name
from orchestrator.results.store import Store, write_record
from orchestrator.results.unfinished_record import unfinished_record

# The largest number of times that one call tries a repeat. Without this limit, a failure that is retried, such as a taken port,
# could recur for ever.
MAX_HAND_OVERS = 3
_LOOK_AGAIN_S = 2.0
_ONE_MOMENT_S = 1.0
_NO_FAILURE = (Status.OK, Status.LOST, Status.CANCELLED)


class EventKind(StrEnum):
    """The kinds of events of a running benchmark."""

    HANDED_OVER = "handed_over"
    ENDED = "ended"
    ATTACHED = "attached"
    ELSEWHERE = "elsewhere"
    LEFT = "left"
    ENDED_LEFTOVERS = "ended_leftovers"
    LEFT_BEHIND = "left_behind"
    BUDGET = "budget"


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """An event about `jobs`. If a run has ended, `record` is its record. `text` is for people."""

    kind: EventKind
    text: str
    jobs: tuple[Job, ...] = ()
    record: RunRecord | None = None


OnEvent = Callable[[Event], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """The result of a benchmark: the last record of each requested repeat, from this call or an earlier call.

    `unknown` counts the runs on hosts that have been silent for a long time. `missing` counts the requested repeats without a
    readable record. `unreadable` counts the requested repeats with a record that cannot be read. `tried` has the experiment and the
    number of each repeat that this call tried.
    """

    counts: Mapping[Status, int]
    records: tuple[RunRecord, ...]
    unknown: int = 0
    missing: int = 0
    unreadable: int = 0
    tried: frozenset[tuple[str, int]] = frozenset()

    @property
    def exit_code(self) -> int:
        """0 if every requested run ended well, else 1."""
        left = self.unknown or self.missing
        return 0 if not left and all(record.status is Status.OK for record in self.records) else 1


def run_benchmark(
    experiments: Sequence[Experiment],
    *,
    store: Store,
    executor: Executor,
    retry: Retry = NO_RETRY,
    fail_fast: bool = False,
    take_over: bool = False,
    repeats: Collection[int] | None = None,
    spending: Spending | None = None,
    on_event: OnEvent | None = None,
) -> Summary:
    """Run the due runs of these experiments, and return the summary of all runs.

    A KeyboardInterrupt ends the running runs. Another call resumes the benchmark. With `fail_fast`, end the runs in progress after
    the first run that fails, and start no more. With `take_over`, count the runs of a host that has been silent for a long time as
    lost, and run them here. If `repeats` is given, run only these repeats. If the budget of `spending` is over, start no more runs.
    """
    tell = on_event or (lambda event: None)
    store.add(experiments)
    handed_over: Counter[tuple[str, int]] = Counter()
    first_due: set[Job] | None = None
    with _disk_errors_explained(store):
        store.remove_unfinished_claims()
        while True:
            _record_lost(experiments, store, tell, take_over=take_over, retry=NO_RETRY if handed_over else retry)
            if spending is not None and not handed_over:
                spending.note_ended()
            planned = store.plan(experiments, retry=NO_RETRY if handed_over else retry)
            due = [job for job in planned if _is_of_this_call(job, store, repeats, handed_over, first_due)]
            first_due = {*due} if first_due is None else first_due
            held = _held(experiments, store, executor)
            if not due and not held and not _await_others(experiments, store, tell):
                break
            if spending is not None and spending.is_over:
                break
            if due:
                writing.refuse_without_links(store.root)  # the record of a run needs a link, at the run's end
                handed_over.update((job.experiment_id, job.repeat) for job in due)
                tell(Event(kind=EventKind.HANDED_OVER, text=f"{len(due)} run(s) are due", jobs=tuple(due)))
            if (due or held) and not _hand_over([*due, *held], store, executor, tell, fail_fast=fail_fast):
                break
            if spending is not None and spending.is_over:
                left = len(store.plan(experiments))
                tell(Event(kind=EventKind.BUDGET, text=spending.line(left)))
    return replace(_summary(experiments, store, repeats), tried=retry.tried.union(handed_over))


def _is_of_this_call(
    job: Job,
    store: Store,
    repeats: Collection[int] | None,
    handed_over: Counter[tuple[str, int]],
    first_due: Collection[Job] | None,
) -> bool:
    """Return whether this call makes a run that is due: it is one of `repeats`, and may be tried again."""
    return (
        (repeats is None or job.repeat in repeats)
        and handed_over[job.experiment_id, job.repeat] < MAX_HAND_OVERS
        and (first_due is None or job in first_due or not _left_to_next_call(job, store))
    )


def _held(experiments: Sequence[Experiment], store: Store, executor: Executor) -> list[Job]:
    """Return the runs in progress that an earlier call gave to this executor. Only the executor knows whether they still run."""
    if not isinstance(executor, AttachingExecutor):
        return []
    runs = [run for state in (JobState.RUNNING, JobState.SILENT) for run in _runs(experiments, store, state)]
    return [run.job for run in runs if (claim := claims.read_claim(run.job.run_dir)) and executor.holds(claim)]


def _left_to_next_call(job: Job, store: Store) -> bool:
    """Return whether a run must wait for the next call.

    A run must wait if, during this call, its last attempt was cancelled from outside, or failed because files had changed. Only a
    new plan reads changed files again.
    """
    if job.attempt == 1:
        return False
    record = store.run(store.job(job.experiment_id, repeat=job.repeat, attempt=job.attempt - 1)).record
    return record is not None and (record.status is Status.CANCELLED or record.kind in (FILES_CHANGED, NO_ENVIRONMENT))


def _hand_over(due: Sequence[Job], store: Store, executor: Executor, tell: OnEvent, *, fail_fast: bool) -> bool:
    """Run the due jobs. Return False if `fail_fast` ended the benchmark at the first run that failed."""
    told: set[Job] = set()
    failed: RunRecord | None = None
    with closing(ends(executor, due)) as ended:
        for job, state in ended:
            told.add(job)
            run = store.run(job)
            if state is JobState.LOST and run.state is not JobState.ENDED:
                write_record(job.run_dir, unfinished_record(job))
                run = store.run(job)
            if run.record is not None:
                tell(_end_of(job, run.record))
            else:
                tell(Event(kind=EventKind.ATTACHED, text=f"{job.experiment_id} {job.name} runs already", jobs=(job,)))
            if fail_fast and run.record is not None and run.record.status not in _NO_FAILURE:
                failed = run.record
                break
    if failed is None:
        return True
    if isinstance(executor, AttachingExecutor):
        executor.end([job for job in due if job not in told])
    # The executor has ended the runs that were in progress.
    others = [(job, record) for job in due if job not in told and (record := store.run(job).record) is not None]
    for job, record in others:
        tell(_end_of(job, record))
    cancelled = sum(record.status is Status.CANCELLED for _, record in others)
    also = f" and ended {counted(cancelled, 'run')} in progress" if cancelled else ""
    text = f"{failed.experiment_id} failed; --fail-fast starts no more runs{also}; the same command runs the rest"
    tell(Event(kind=EventKind.LEFT, text=text, record=failed))
    return False


def _end_of(job: Job, record: RunRecord) -> Event:
    why = f" ({record.kind}: {record.cause})" if record.kind else ""
    text = f"{job.experiment_id} {job.name}: {record.status}{why}"
    return Event(kind=EventKind.ENDED, text=text, jobs=(job,), record=record)


def _record_lost(
    experiments: Sequence[Experiment], store: Store, tell: OnEvent, *, take_over: bool, retry: Retry
) -> None:
    """End the processes that lost runs left on this machine, and write the records that these runs could not write.

    If `retry` includes runs with unreadable records, move these records aside and treat the runs as lost.
    """
    states = (JobState.LOST, JobState.SILENT) if take_over else (JobState.LOST,)
    lost = {run.job: unfinished_record(run.job) for state in states for run in _runs(experiments, store, state)}
    for job in _unreadable(can_run(experiments), store) if retry.unreadable else ():
        store.refuse_if_hidden(job)
        cause = f"its record could not be read and is now {with_dated_name(job.folder.record).name}"
        if claims.state(job.run_dir) is not JobState.RUNNING:
            lost[job] = replace(unfinished_record(job), cause=cause)
    for job, record in lost.items():
        marker = _marker(job)
        left = end_tree(marker, folder=job.folder) if marker is not None else Ended(count=0)
        if marker is not None:
            remove_container(job.folder)
        left_behind = f"{job.experiment_id} {job.name} had left behind"
        if left.count:
            text = f"ended {counted(left.count, 'process', 'processes')} that {left_behind}"
            tell(Event(kind=EventKind.ENDED_LEFTOVERS, text=text, jobs=(job,)))
        if left.survivors:
            processes = "process" if len(left.survivors) == 1 else "processes"
            text = f"{processes} {', '.join(left.survivors)} that {left_behind} could not be ended and may disturb runs"
            tell(Event(kind=EventKind.LEFT_BEHIND, text=text, jobs=(job,)))
        if write_record(job.run_dir, record):
            text = (
                f"{job.name} was lost"
                if record.status is Status.LOST
                else f"{job.name}: its record was kept, and is now placed"
            )
            tell(Event(kind=EventKind.ENDED, text=text, jobs=(job,), record=store.run(job).record))


def _marker(job: Job) -> str | None:
    """Return the marker of a run's processes, or None if they are not on this machine.

    If the claim is damaged, use the notes of the run's process. They count only if they are of this boot and this container.
    """
    claim = claims.read_claim(job.run_dir)
    if claim is None:
        return noted(job.folder.processes).marker
    return claim.marker if claim.owner.is_here() else None


def _await_others(experiments: Sequence[Experiment], store: Store, tell: OnEvent) -> bool:
    """Wait until a run of another benchmark, here or on another host, ends or becomes silent.

    Return True after the wait. Return False at once if there is no such run.
    """
    _tell_silent(experiments, store, tell)
    running = _runs(experiments, store, JobState.RUNNING)
    here = [run for run in running if all(owner.is_here() for owner in claims.owners(run.job.run_dir))]
    away = tuple(run.job for run in running if run not in here)
    if away:
        places = sorted({owner.place() for job in away for owner in claims.owners(job.run_dir)})
        text = f"{len(away)} run(s) are running elsewhere or for other users ({', '.join(places)}), such as {away[0].run_dir}"
        tell(Event(kind=EventKind.ELSEWHERE, text=text, jobs=away))
    if not here and not away:
        return False
    jobs = tuple(run.job for run in running)
    tell(Event(kind=EventKind.ATTACHED, text=f"waiting for {len(jobs)} run(s) of another benchmark", jobs=jobs))
    while all(claims.state(job.run_dir, clock=claims.file_servers_clock) is JobState.RUNNING for job in jobs):
        time.sleep(_LOOK_AGAIN_S)
    return True


def _tell_silent(experiments: Sequence[Experiment], store: Store, tell: OnEvent) -> None:
    for run in _runs(experiments, store, JobState.SILENT):
        owner = next(iter(claims.owners(run.job.run_dir)), None)
        whose, gone = "another host", "that host is gone"
        if owner is not None:
            whose, gone = f"a process {owner.place()}", "that process is gone"
        if owner is not None and owner.is_hidden():
            whose, gone = f"process {owner.pid} of another user", "that process has ended"
        text = (
            f"{run.job.experiment_id} {run.job.name} belongs to {whose}, which has been silent for over "
            f"{claims.SILENT_AFTER_S / 60:.0f} minutes; if {gone}, --take-over runs it here"
        )
        tell(Event(kind=EventKind.ELSEWHERE, text=text, jobs=(run.job,)))


def _runs(experiments: Sequence[Experiment], store: Store, state: JobState) -> list[StoredRun]:
    """Return the runs in this state. The file server's clock decides whether a host is silent."""
    runs = (run for experiment in experiments for run in store.runs(experiment.id, clock=claims.file_servers_clock))
    return [run for run in runs if run.state is state]


def _unreadable(experiments: Sequence[Experiment], store: Store) -> list[Job]:
    return [run.job for run in _runs(experiments, store, JobState.ENDED) if run.record is None]


def _summary(experiments: Sequence[Experiment], store: Store, repeats: Collection[int] | None) -> Summary:
    records: list[RunRecord] = []
    missing: list[StoredRun | None] = []
    for experiment in experiments:
        last = {run.job.repeat: run for run in store.runs(experiment.id) if run.job.repeat <= experiment.most_repeats}
        ended = [run.record for run in last.values() if run.record is not None]
        records += ended
        asked = range(1, wanted(experiment, ended) + 1) if can_run([experiment]) else ()
        ours = [last.get(repeat) for repeat in asked if repeats is None or repeat in repeats]
        missing += [run for run in ours if run is None or run.record is None]
    return Summary(
        counts=Counter(record.status for record in records),
        records=tuple(records),
        unknown=len(_runs(experiments, store, JobState.SILENT)),
        missing=len(missing),
        unreadable=sum(run is not None and run.state is JobState.ENDED for run in missing),
    )


@contextmanager
def _disk_errors_explained(store: Store) -> Iterator[None]:
    """Raise a ResultsError instead of an OSError if the disk is full, read-only or missing."""
    try:
        yield
    except OSError as error:
        if not store.root.exists():
            raise ResultsError(
                f"{store.root}: the folder was removed while runs were in progress; repeat the command"
            ) from error
        again = "repeat the command, which keeps what was recorded"
        raise ResultsError(f"{error.filename or store.root}: {error.strerror}; {remedy(error)} and {again}") from error
