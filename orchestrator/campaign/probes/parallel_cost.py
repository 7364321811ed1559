"""Measure how much concurrent runs slow each other down, before a campaign runs several at once (`--parallel auto`).

One cell runs by itself, then several copies of it run at once. These are recorded runs in the results folder `packing/`, which is
inside the campaign's folder. The cost is valid only for this cell, on this machine, at this time. Concurrent runs share data
loading, power and PCIe. A cell that uses these resources more may lose more speed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from orchestrator.campaign.loop import OnEvent, run_benchmark
from orchestrator.campaign.probes.memory_probe import due_and_instrumented, last_record, store_inside
from orchestrator.executors import Executor
from orchestrator.machine import cores
from orchestrator.machine.gpus import visible_gpus
from orchestrator.records import Device, Experiment, Measure, RunRecord, Status, unsteady
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.neighbour_cost import COST_FILE, PACKING
from orchestrator.results.store import Store

SPEED = "tokens_per_s"
MEASURE = Measure(discard_steps=10, at_least_steps=20, at_most_steps=50)
MOST_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """`single` is the tokens/s of a cell by itself. `packed` is the mean tokens/s of `copies` copies that run at once."""

    experiment_id: str
    copies: int
    single: float
    packed: float

    def __str__(self) -> str:
        change = (self.packed / self.single - 1) * 100
        return (
            f"{self.copies} runs at once: {change:+.1f} % tokens/s for each run ({self.packed:,.0f} concurrently, "
            f"{self.single:,.0f} by itself; measured with {self.experiment_id})"
        )


def places(experiments: Sequence[Experiment]) -> int:
    """Return how many runs of the cell with the fewest GPUs fit on this machine at once.

    The limit is the number of GPUs. For CPU processes, the limit is the number of physical cores.
    """
    able = [experiment for experiment in experiments if not (experiment.skip or experiment.cannot_run_here)]
    on_gpus = [experiment.num_gpus for experiment in able if experiment.device is Device.CUDA]
    if on_gpus:
        return max(1, len(visible_gpus()) // min(on_gpus))
    physical = sum(len(node) for node in cores.physical_cores().values())
    return max(1, physical // min((experiment.num_gpus for experiment in able), default=1))


def cost(
    experiments: Sequence[Experiment],
    *,
    store: Store,
    copies: int,
    on_event: OnEvent,
    executor_of: Callable[[int], Executor],
    retry: Retry = NO_RETRY,
) -> Cost | str | None:
    """Run the due cell with the fewest GPUs by itself, then run `copies` of it at once. Return the cost.

    If a run has no speed, return a sentence. If there is nothing to measure, return None. `executor_of` returns an executor for the
    given number of concurrent runs. `retry` says which failed runs are due.
    """
    fit = due_and_instrumented(experiments, store, retry)
    if not fit or copies < 2:
        return None
    cell = min(fit, key=lambda experiment: experiment.num_gpus)
    inner = store_inside(store, PACKING)
    found: list[list[float]] = []
    for count in (1, copies):
        speeds = _speeds(_copies(cell, count), inner, executor=executor_of(count), on_event=on_event)
        if isinstance(speeds, str):
            return speeds
        found.append(speeds)
    measured = Cost(experiment_id=cell.id, copies=copies, single=found[0][0], packed=fmean(found[1]))
    inner.write(COST_FILE, json.dumps(asdict(measured), indent=2) + "\n")
    return measured


def _speeds(side: Sequence[Experiment], inner: Store, *, executor: Executor, on_event: OnEvent) -> list[float] | str:
    """Return the tokens/s of each experiment. If an experiment has no speed, return a sentence about it.

    If a run found no steady state, repeat all runs, because the disturbance may be over. Try at most MOST_TRIES times.
    """
    reason = ""
    for times in range(1, MOST_TRIES + 1):
        again = [replace(experiment, repeats=times) for experiment in side]
        run_benchmark(again, store=inner, executor=executor, on_event=on_event)
        records = [last_record(inner, experiment.id) for experiment in again]
        speeds = [speed for record in records if (speed := _speed(record)) is not None]
        if len(speeds) == len(records):
            return speeds
        without = [
            (experiment.id, record) for experiment, record in zip(again, records, strict=True) if not _speed(record)
        ]
        reason = f"{without[0][0]}: {_reason(without[0][1])}"
        if any(record is None or record.status is not Status.OK for _, record in without):
            break
    return reason


def _reason(record: RunRecord | None) -> str:
    if record is None:
        return "the run left no record"
    if record.status is not Status.OK:
        return f"{record.status} ({record.kind}: {record.cause})"
    why = unsteady(record.warnings)
    return why.sentence if why else "the run has no speed"


def _copies(cell: Experiment, count: int) -> list[Experiment]:
    copy = replace(cell, measure=MEASURE, repeats=1, adaptive=None, monitors=())
    return [replace(copy, id=f"{cell.id}.packed{number}of{count}") for number in range(1, count + 1)]


def _speed(record: RunRecord | None) -> float | None:
    if record is None or record.status is not Status.OK:
        return None
    value = {number.name: number.value for number in record.measurements}.get(SPEED)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
