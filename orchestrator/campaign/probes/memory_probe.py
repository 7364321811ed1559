"""Short runs that show what fits in memory: two steps of each cell, or a search for the largest batch that fits.

Each probe is a recorded run, so probes are resumed and reported like other runs. Their results folders (`probes/`, `batches/`) are
inside the campaign's folder, so probes are never mixed with measurements. Two optimizer steps show the peak: the first step makes
the optimizer's states, and the second step has everything in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator import trainers
from orchestrator.campaign.loop import Event, EventKind, OnEvent, run_benchmark
from orchestrator.errors import ResultsError, SelectionError
from orchestrator.executors import Executor
from orchestrator.plan.cells import BATCH, TRAINER_BATCH_DEFAULT
from orchestrator.records import Experiment, Job, Measure, RunRecord, Status
from orchestrator.records.labels import labels
from orchestrator.results import claims
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.folder import is_ours
from orchestrator.results.store import Store, write_record

PROBES, BATCHES = "probes", "batches"
STEPS = 2
LARGEST_BATCH = 4096
TOO_LARGE = ("oom_cuda", "oom_host")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The result of the search for a cell's largest per-device batch.

    `batch` is the largest batch that fits, or None if no probe succeeded. `record` is the record of the probe with this batch.
    `too_large` is the smallest batch that did not fit. `failure` says why a probe failed for a reason other than memory. Such a
    failure ends the search.
    """

    experiment: Experiment
    batch: int | None
    record: RunRecord | None
    too_large: int | None
    failure: str | None


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
    return [experiment for experiment in experiments if experiment.id in due and _is_instrumented(experiment)]


def _is_instrumented(experiment: Experiment) -> bool:
    return trainers.get(experiment.trainer).instrumented


def short(experiment: Experiment) -> Experiment:
    """Return the same training with two steps and one repeat."""
    measure = Measure(discard_steps=0, at_most_steps=STEPS)
    return replace(experiment, measure=measure, repeats=1, adaptive=None, monitors=(), keep="none")


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


def largest_batches(
    experiments: Sequence[Experiment], *, store: Store, executor: Executor, retry: Retry, on_event: OnEvent
) -> Iterator[Found]:
    """Find each cell's largest per-device batch, and yield the results. Double the batch until it does not fit, then bisect.

    `retry` says which failed probes of an earlier call are tried again.
    """
    probes = store_inside(store, BATCHES)

    def probed(experiment: Experiment, batch: int) -> RunRecord | None:
        probe = with_batch(experiment, batch)
        run_benchmark([probe], store=probes, executor=executor, retry=retry, on_event=on_event)
        return last_record(probes, probe.id)

    for experiment in experiments:
        if experiment.skip is None and experiment.cannot_run_here is None:
            yield largest_batch(experiment, probed)


def largest_batch(experiment: Experiment, probed: Callable[[Experiment, int], RunRecord | None]) -> Found:
    """Return the result of the search for one cell. `probed` makes one probe and returns its record."""
    largest, too_large = 0, None
    fitting: RunRecord | None = None
    failure: str | None = None
    batch = starting_batch(experiment)
    while largest < LARGEST_BATCH and (too_large is None or too_large - largest > 1):
        record = probed(experiment, batch)
        if record is not None and record.status is Status.OK:
            largest, fitting = batch, record
        elif record is not None and record.kind in TOO_LARGE:
            too_large = batch
        else:
            failure = "its record cannot be read" if record is None else f"{record.kind}: {record.cause}"
            break
        batch = min(2 * largest, LARGEST_BATCH) if too_large is None else max(1, (largest + too_large) // 2)
    return Found(experiment=experiment, batch=largest or None, record=fitting, too_large=too_large, failure=failure)


def starting_batch(experiment: Experiment) -> int:
    """Return the cell's own batch. The search begins with it."""
    value = experiment.arguments.get(BATCH, str(TRAINER_BATCH_DEFAULT))
    if not isinstance(value, str) or not value.isdecimal() or int(value) < 1:
        raise SelectionError(
            f"scenario {experiment.scenario!r}: the search cannot begin with {BATCH} {value!r}; write a whole number from 1"
        )
    return min(int(value), LARGEST_BATCH)


def with_batch(experiment: Experiment, batch: int) -> Experiment:
    """Return a probe of the cell. The probe has this per-device batch and its own id."""
    probe = short(experiment) if _is_instrumented(experiment) else replace(experiment, repeats=1, adaptive=None)
    arguments = {**experiment.arguments, BATCH: str(batch)}
    return replace(probe, id=f"{experiment.id}.batch{batch}", arguments=arguments, global_batch=None)


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


def batch_lines(results: Sequence[Found]) -> Iterator[str]:
    """Yield a line for each cell: its largest batch, and the memory that this batch needs."""
    names = labels([found.experiment for found in results])
    for found in results:
        label = names[found.experiment.id]
        fits = f"{BATCH} {found.batch} fits{_peak(found)}"
        if found.batch is None:
            text = f"unknown, a probe failed ({found.failure})" if found.failure else "not even 1 fits"
        elif found.failure:
            text = f"{fits}, and a larger one could not be tried ({found.failure})"
        elif found.too_large:
            text = f"{fits}, {found.too_large} does not"
        else:
            text = f"{fits}, {LARGEST_BATCH} is the largest that is tried"
        yield f"{found.experiment.id}{label and f' ({label})'}: {text}"


def _peak(found: Found) -> str:
    values = {number.name: number.value for number in found.record.measurements} if found.record else {}
    peak = values.get("peak_reserved_bytes")
    return f" with {peak / 2**30:.1f} GiB reserved" if isinstance(peak, (int, float)) else ""
