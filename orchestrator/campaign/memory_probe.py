"""Short runs that find out what fits, before hours are spent: two steps of each cell, or the largest batch by bisection.

Each probe is a recorded run like any other, in a results folder of its own inside the campaign's (`probes/`, `batches/`), so
that it is looked at, resumed and reported in the same way, and never mixed with measurements. Two optimizer steps show the
peak: the first makes the optimizer's states, the second holds all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator import trainers
from orchestrator.campaign.loop import Event, EventKind, OnEvent, run_benchmark
from orchestrator.errors import SelectionError
from orchestrator.executors import Executor
from orchestrator.plan.cells import BATCH, TRAINER_BATCH_DEFAULT
from orchestrator.records import Experiment, Measure, RunRecord, Status
from orchestrator.results import claims
from orchestrator.results.folder import is_ours
from orchestrator.results.store import Store, write_record

PROBES, BATCHES = "probes", "batches"
STEPS = 2
LARGEST_BATCH = 4096
TOO_LARGE = ("oom_cuda", "oom_host")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The largest per-device batch of a cell that fits, with its record, and the smallest that was seen not to.

    `batch` is None where not even 1 fits, or where the first probe failed for another reason. `failure`: the probe that did, which
    ended the search.
    """

    experiment: Experiment
    batch: int | None
    record: RunRecord | None
    too_large: int | None
    failure: RunRecord | None


def mark_what_does_not_fit(
    experiments: Sequence[Experiment], *, store: Store, executor: Executor, on_event: OnEvent
) -> int:
    """Probes every cell with a run that is owed, and records those that ran out of memory as failed. Returns how many.

    A cell whose trainer has no instrument can't be ended after two steps and is not probed.
    """
    owed = {job.experiment_id for job in store.plan(experiments)}
    probed = [short(one) for one in experiments if one.id in owed and trainers.get(one.trainer).instrumented]
    inner = _inside(store, PROBES)
    run_benchmark(probed, store=inner, executor=executor, on_event=on_event)
    marked = 0
    for one in probed:
        record = _last(inner, one.id)
        if record is not None and record.kind in TOO_LARGE:
            marked += _mark(one, record, store=store, experiments=experiments, on_event=on_event)
    return marked


def short(experiment: Experiment) -> Experiment:
    """The same training, ended after two steps, once."""
    measure = Measure(discard_steps=0, at_most_steps=STEPS)
    return replace(experiment, measure=measure, repeats=1, adaptive=None, monitors=(), keep="none")


def _mark(
    probe: Experiment, record: RunRecord, *, store: Store, experiments: Sequence[Experiment], on_event: OnEvent
) -> int:
    asked = [one for one in experiments if one.id == probe.id]
    marked = 0
    for job in store.plan(asked):
        if claims.claim(job, executor="probe") is None:
            continue
        cause = f"it did not fit in a probe of {STEPS} steps: {record.cause}"
        own = replace(
            record, repeat=job.repeat, attempt=job.attempt, cause=cause, measurements=(), ranks=(), devices=()
        )
        write_record(job.run_dir, own)
        text = f"{job.experiment_id} {job.name}: {record.kind}, by its probe"
        on_event(Event(kind=EventKind.ENDED, text=text, jobs=(job,), record=own))
        marked += 1
    return marked


def largest_batches(
    experiments: Sequence[Experiment], *, store: Store, executor: Executor, on_event: OnEvent
) -> Iterator[Found]:
    """For each cell the largest per-device batch that fits: doubled until one does not, then bisected."""
    inner = _inside(store, BATCHES)

    def probed(experiment: Experiment, batch: int) -> RunRecord | None:
        one = with_batch(experiment, batch)
        run_benchmark([one], store=inner, executor=executor, on_event=on_event)
        return _last(inner, one.id)

    for experiment in experiments:
        if experiment.skip is None and experiment.cannot_run_here is None:
            yield largest_batch(experiment, probed)


def largest_batch(experiment: Experiment, probed: Callable[[Experiment, int], RunRecord | None]) -> Found:
    """The search itself; `probed` makes one probe and returns its record."""
    fits: tuple[int, RunRecord] | None = None
    too_large: int | None = None
    batch = starting_batch(experiment)
    while True:
        record = probed(experiment, batch)
        if record is None or (record.status is not Status.OK and record.kind not in TOO_LARGE):
            largest, seen = fits or (None, None)
            return Found(experiment=experiment, batch=largest, record=seen, too_large=too_large, failure=record)
        if record.status is Status.OK:
            fits = (batch, record)
        else:
            too_large = batch
        lowest, highest = fits[0] if fits else 0, too_large
        if lowest >= LARGEST_BATCH or (highest is not None and highest - lowest <= 1):
            break
        batch = min(2 * lowest, LARGEST_BATCH) if highest is None else max(1, (lowest + highest) // 2)
    found = fits or (None, None)
    return Found(experiment=experiment, batch=found[0], record=found[1], too_large=too_large, failure=None)


def starting_batch(experiment: Experiment) -> int:
    """The cell's own batch, by which the search begins."""
    value = experiment.arguments.get(BATCH, str(TRAINER_BATCH_DEFAULT))
    if not isinstance(value, str) or not value.isdecimal() or int(value) < 1:
        raise SelectionError(f"scenario {experiment.scenario!r}: {BATCH} {value!r} is no batch to begin a search with")
    return min(int(value), LARGEST_BATCH)


def with_batch(experiment: Experiment, batch: int) -> Experiment:
    """A probe of the cell with this per-device batch, under an id of its own."""
    instrumented = trainers.get(experiment.trainer).instrumented
    one = short(experiment) if instrumented else replace(experiment, repeats=1, adaptive=None)
    arguments = {**experiment.arguments, BATCH: str(batch)}
    return replace(one, id=f"{experiment.id}.batch{batch}", arguments=arguments, global_batch=None)


def _inside(store: Store, name: str) -> Store:
    root = store.root / name
    return Store.resume(root) if is_ours(root) else Store.create(root, {"probes_of": str(store.root)})


def _last(store: Store, experiment_id: str) -> RunRecord | None:
    records = [run.record for run in store.runs(experiment_id) if run.record is not None]
    return records[-1] if records else None
