"""The runs of a plan that are due: how many, and how long they may take, with their GPU-hours and their cost.

A run is expected to take as long as similar earlier runs (`time_left`). If no run has ended yet, the time of a training on GPUs is
computed from its FLOPs (`plan/forecast`). Other runs have no expected time before the first run has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.campaign.status.experiment import took
from orchestrator.campaign.status.time_left import Expectation
from orchestrator.files.printable_text import counted
from orchestrator.machine.provenance import Machine
from orchestrator.measure.metrics import Show
from orchestrator.measure.metrics.shown import text
from orchestrator.plan.forecast.earlier_runs import EarlierRuns
from orchestrator.plan.forecast.gpu_hours import gpu_hours
from orchestrator.plan.forecast.memory_fit.shapes import NotKnown
from orchestrator.plan.forecast.outlook import hours_text
from orchestrator.records import Device, Experiment, JobState
from orchestrator.records.price import HOUR_S, Per, Price
from orchestrator.results.due_runs import Retry, can_run
from orchestrator.results.store import Store
from orchestrator.results.table.sources.costs import price_of


def expected_s(experiment: Experiment, expectation: Expectation, machine: Machine | None) -> float | None:
    """Return the seconds that a run may take, or None. Without a machine, only earlier runs count."""
    known = expectation.run_s(experiment)
    if known is not None or machine is None or not machine.gpus or experiment.device is not Device.CUDA:
        return known
    try:
        forecast = gpu_hours(experiment, machine, EarlierRuns())
    except NotKnown:
        return None
    return forecast.hours * HOUR_S / forecast.runs / experiment.num_gpus


def gpus_of(experiment: Experiment) -> int:
    """Return the number of GPUs of a run; 0 if it uses CPUs."""
    return experiment.num_gpus if experiment.device is Device.CUDA else 0


def due_lines(
    experiments: Sequence[Experiment], root: Path | None, *, retry: Retry, machine: Machine | None, price: Price | None
) -> Iterator[str]:
    """Yield sentences about the due runs of a plan. Without a results folder, all runs of the plan are due.

    The first sentence says how many runs have ended in the folder, are running, and are due. The second one says how long the due
    runs may take. It is left out if no time is known, or without a machine. The folder's own price counts if none is given.
    """
    ready = can_run(experiments)
    if root is None:
        if machine is not None:
            yield from _expected(
                Counter({one.id: one.repeats for one in ready}), ready, Expectation(()), machine, price
            )
        return
    store, most = Store.resume(root), {one.id: one.most_repeats for one in ready}
    due = {(job.experiment_id, job.repeat) for job in store.plan(experiments, retry=retry)}
    contents = store.contents().experiments
    states = {
        (stored.experiment.id, run.job.repeat): run.state
        for stored in contents
        for run in stored.runs
        if run.job.repeat <= most.get(stored.experiment.id, 0)
    }
    rest = Counter(state for run, state in states.items() if run not in due)
    ended, under_way = rest[JobState.ENDED], rest[JobState.RUNNING] + rest[JobState.SILENT]
    running = f", {under_way} are running" if under_way else ""
    yield f"{root}: of {len(due) + rest.total()} runs {ended} have ended there{running}, and {len(due)} would run."
    if machine is None:
        return
    earlier = (took(stored.experiment, run) for stored in contents for run in stored.runs)
    expectation, price = Expectation([run for run in earlier if run is not None]), price or price_of(store.suite())
    yield from _expected(Counter(name for name, _ in due), ready, expectation, machine, price)


def _expected(
    due: Counter[str], ready: Sequence[Experiment], expectation: Expectation, machine: Machine, price: Price | None
) -> Iterator[str]:
    """Yield a sentence about the time, the GPU-hours and the cost of these runs, if a time is known."""
    seconds = gpu_s = cost = 0.0
    unknown = 0
    for one in ready:
        took_s = expected_s(one, expectation, machine) if due[one.id] else 0.0
        unknown += due[one.id] if took_s is None else 0
        in_all_s = (took_s or 0.0) * due[one.id]
        seconds, gpu_s = seconds + in_all_s, gpu_s + in_all_s * gpus_of(one)
        cost += (price and price.of_time(in_all_s, gpus=gpus_of(one), nodes=one.num_nodes)) or 0.0
    if not seconds:
        return
    parts = [f"{hours_text(gpu_s / HOUR_S)} GPU-hours"] if gpu_s else []
    if price is not None:
        has_cost = gpu_s or price.per is Per.NODE_HOUR
        parts.append(f"{price.shown(cost)} at {price}" if has_cost else f"without a cost, as {price} counts GPUs only")
    also = f" ({', '.join(parts)})" if parts else ""
    rest = f", and {counted(unknown, 'run')} for which no time is known" if unknown else ""
    yield f"One after the other, these runs may take {text(seconds, Show.SECONDS)}{also}{rest}."
