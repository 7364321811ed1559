"""Short runs that show what fits in memory: two steps of each cell. The search in `largest_value.py` is made of such runs, too.

Each probe is a recorded run, so probes are resumed and reported like other runs. Their results folder (`probes/`) is inside the
campaign's folder, so probes are never mixed with measurements. Two optimizer steps show the peak: the first step makes the
optimizer's states, and the second step has everything in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from orchestrator import trainers
from orchestrator.campaign.loop import Event, EventKind, OnEvent, run_benchmark
from orchestrator.errors import ResultsError
from orchestrator.executors import Executor
from orchestrator.records import Experiment, Job, Measure, RunRecord
from orchestrator.results import claims
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.folder import is_ours
from orchestrator.results.store import Store, write_record

PROBES = "probes"
STEPS = 2
TOO_LARGE = ("oom_cuda", "oom_host")


def mark_what_does_not_fit(
    experiments: Sequence[Experiment],
    *,
    store: Store,
    executor: Executor,
    retry: Retry = NO_RETRY,
    on_probe: OnEvent,
    on_event: OnEvent,
) -> Iterator[Job]:
    """Probe the cells that have due runs. Record the due runs of cells that run out of memory as failed, and yield these runs.

    A trainer without the instrument cannot be ended after two steps, so its cells are not probed. `retry` says which failed runs
    are due, and which failed probes of an earlier call are tried again. `on_probe` gets the events of probes, and `on_event` the
    ends of the runs.
    """
    probed = due_and_instrumented(experiments, store, retry)
    probes = store_inside(store, PROBES)
    run_benchmark(
        [short(experiment) for experiment in probed], store=probes, executor=executor, retry=retry, on_event=on_probe
    )
    for experiment in probed:
        record = last_record(probes, experiment.id)
        if record is not None and record.kind in TOO_LARGE:
            for job in store.plan([experiment], retry=retry):
                if _mark(job, record, on_event=on_event):
                    yield job


def due_and_instrumented(experiments: Sequence[Experiment], store: Store, retry: Retry = NO_RETRY) -> list[Experiment]:
    """Return the experiments that have a due run and a trainer with the instrument."""
    due = {job.experiment_id for job in store.plan(experiments, retry=retry)}
    return [experiment for experiment in experiments if experiment.id in due and is_instrumented(experiment)]


def is_instrumented(experiment: Experiment) -> bool:
    """Return whether the experiment's trainer has the instrument, which can end a training after two steps."""
    return trainers.get(experiment.trainer).instrumented


def short(experiment: Experiment) -> Experiment:
    """Return the same training with two steps and one repeat."""
    measure = Measure(discard_steps=0, at_most_steps=STEPS)
    return replace(experiment, measure=measure, target=None, repeats=1, adaptive=None, monitors=(), keep="none")


def _mark(job: Job, record: RunRecord, *, on_event: OnEvent) -> bool:
    """Record a due run as failed, for the reason in the record of its probe. Return False if another benchmark runs it."""
    if claims.claim(job, executor="probe") is None:
        return False
    cause = f"it did not fit in a probe of {STEPS} steps: {record.cause}"
    own = replace(record, repeat=job.repeat, attempt=job.attempt, cause=cause, measurements=(), ranks=(), devices=())
    write_record(job.run_dir, own)
    text = f"{job.experiment_id} {job.name}: {record.kind}, by its probe"
    on_event(Event(kind=EventKind.ENDED, text=text, jobs=(job,), record=own))
    return True


def store_inside(store: Store, name: str) -> Store:
    """Return the results folder of this name inside the campaign's folder. Create it if it does not exist."""
    root = store.root / name
    if not is_ours(root):
        try:
            return Store.create(root, {"probes_of": str(store.root)})
        except ResultsError:
            if not is_ours(root):  # else another call has just made it
                raise
    return Store.resume(root)


def last_record(store: Store, experiment_id: str) -> RunRecord | None:
    """Return the record of the last run. Return None if it cannot be read."""
    runs = store.runs(experiment_id)
    return runs[-1].record if runs else None
