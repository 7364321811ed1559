"""The cost of concurrent runs, measured before a campaign uses them (`--parallel auto`): one cell by itself, then copies at once.

The copies are runs like any other, in a results folder of their own inside the campaign's (`packing/`). The cost is of this cell
on this machine, now; one that needs more of what neighbours share (data loading, power, PCIe) may lose more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from orchestrator import trainers
from orchestrator.campaign.loop import OnEvent, run_benchmark
from orchestrator.executors import Executor
from orchestrator.machine import cores
from orchestrator.machine.gpus import visible_gpus
from orchestrator.records import Device, Experiment, Measure, RunRecord, Status
from orchestrator.results.folder import is_ours
from orchestrator.results.store import Store

PACKING = "packing"
SPEED = "tokens_per_s"
MEASURE = Measure(discard_steps=10, at_least_steps=20, at_most_steps=50)
MOST_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Tokens per second of the cell by itself, and the mean of so many copies at once."""

    experiment_id: str
    copies: int
    alone: float
    packed: float

    def __str__(self) -> str:
        change = (self.packed / self.alone - 1) * 100
        return (
            f"{self.copies} at once: {change:+.1f} % tokens/s for each ({self.packed:,.0f} beside others, {self.alone:,.0f} alone, "
            f"by {self.experiment_id})"
        )


def places(experiments: Sequence[Experiment]) -> int:
    """Return how many of the smallest due cells fit on this machine, by GPUs, or by physical cores for CPU processes."""
    due = [one for one in experiments if one.skip is None and one.cannot_run_here is None]
    on_gpus = [one.num_gpus for one in due if one.device is Device.CUDA]
    if on_gpus:
        return max(1, len(visible_gpus()) // min(on_gpus))
    physical = sum(len(node) for node in cores.physical_cores().values())
    return max(1, physical // min((one.num_gpus for one in due), default=1))


def cost(
    experiments: Sequence[Experiment],
    *,
    store: Store,
    copies: int,
    on_event: OnEvent,
    executor_of: Callable[[int], Executor],
) -> Cost | str | None:
    """Measure the first of the smallest due cells: by itself, then so many copies at once. Return the cost.

    A sentence where some of them have no speed, None where there is nothing to measure so. `executor_of` makes an executor for
    so many runs at once.
    """
    owed = {job.experiment_id for job in store.plan(experiments)}
    fit = [one for one in experiments if one.id in owed and trainers.get(one.trainer).instrumented]
    if not fit or copies < 2:
        return None
    cell = min(fit, key=lambda one: one.num_gpus)
    inner = _inside(store)
    together = [_copy(cell, f"packed{number}of{copies}") for number in range(1, copies + 1)]
    found: list[list[float]] = []
    for side in ([_copy(cell, "alone")], together):
        speeds = _speeds(side, inner, executor=executor_of(len(side)), on_event=on_event)
        if isinstance(speeds, str):
            return speeds
        found.append(speeds)
    return Cost(experiment_id=cell.id, copies=copies, alone=found[0][0], packed=fmean(found[1]))


def _speeds(side: Sequence[Experiment], inner: Store, *, executor: Executor, on_event: OnEvent) -> list[float] | str:
    """Return tokens/s of each, or a sentence on one that has none.

    If a run found no steady state, all runs are made again, at most MOST_TRIES times: the disturbance may be over.
    """
    without: list[tuple[Experiment, RunRecord | None]] = []
    for times in range(1, MOST_TRIES + 1):
        again = [replace(one, repeats=times) for one in side]
        run_benchmark(again, store=inner, executor=executor, on_event=on_event)
        last = [(one, _last(inner, one)) for one in again]
        speeds = [_speed(record) for _, record in last]
        if None not in speeds:
            return [speed for speed in speeds if speed is not None]
        without = [pair for pair, speed in zip(last, speeds, strict=True) if speed is None]
        if any(record is None or record.status is not Status.OK for _, record in without):
            break
    one, record = without[0]
    return f"{one.id}: {_reason(record)}"


def _reason(record: RunRecord | None) -> str:
    if record is None:
        return "its run left no record"
    if record.status is not Status.OK:
        return f"{record.status} ({record.kind}: {record.cause})"
    why = [number.missing for number in record.measurements if number.name == SPEED and number.missing]
    return why[0].sentence if why else "its run has no speed"


def _copy(cell: Experiment, name: str) -> Experiment:
    return replace(cell, id=f"{cell.id}.{name}", measure=MEASURE, repeats=1, adaptive=None, monitors=())


def _last(store: Store, experiment: Experiment) -> RunRecord | None:
    records = [run.record for run in store.runs(experiment.id) if run.record is not None]
    return records[-1] if records else None


def _speed(record: RunRecord | None) -> float | None:
    value = {number.name: number.value for number in record.measurements}.get(SPEED) if record else None
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _inside(store: Store) -> Store:
    root = store.root / PACKING
    return Store.resume(root) if is_ours(root) else Store.create(root, {"packing_of": str(store.root)})
