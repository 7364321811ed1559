"""What it costs to run side by side, measured before a campaign does (`--parallel auto`): one cell alone, then copies at once.

The copies are runs like any other, in a results folder of their own inside the campaign's (`packing/`). The cost is of this cell
on this machine, now; one that needs more of what neighbours share (data loading, power, PCIe) may lose more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from orchestrator import cores, trainers
from orchestrator.benchmark import OnEvent, run_benchmark
from orchestrator.executors import Executor
from orchestrator.executors.local import LocalExecutor
from orchestrator.gpus import visible_gpus
from orchestrator.records import Device, Experiment, Measure
from orchestrator.results_folder import is_ours
from orchestrator.store import Store

PACKING = "packing"
SPEED = "tokens_per_s"
MEASURE = Measure(discard_steps=10, at_least_steps=20, at_most_steps=50)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Tokens per second of the cell alone, and the mean of so many copies at once."""

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
    """How many of the smallest cells that are to run this machine has room for: GPUs, or physical cores for CPU processes."""
    due = [one for one in experiments if one.skip is None and one.cannot_run_here is None]
    on_gpus = [one.num_gpus for one in due if one.device is Device.CUDA]
    if on_gpus:
        return max(1, len(visible_gpus()) // min(on_gpus))
    physical = sum(len(node) for node in cores.physical_cores().values())
    return max(1, physical // min((one.num_gpus for one in due), default=1))


def cost(
    experiments: Sequence[Experiment], *, store: Store, copies: int, on_event: OnEvent, alone: Executor | None = None
) -> Cost | None:
    """Measures the first of the smallest cells whose run is owed; None where none can be measured so, or a run failed."""
    owed = {job.experiment_id for job in store.plan(experiments)}
    fit = [one for one in experiments if one.id in owed and trainers.get(one.trainer).instrumented]
    if not fit or copies < 2:
        return None
    cell = min(fit, key=lambda one: one.num_gpus)
    inner = _inside(store)
    single = _copy(cell, "alone")
    run_benchmark([single], store=inner, executor=alone or LocalExecutor(), on_event=on_event)
    packed = [_copy(cell, f"packed{number}of{copies}") for number in range(1, copies + 1)]
    run_benchmark(packed, store=inner, executor=LocalExecutor(parallel=copies), on_event=on_event)
    speeds = [_speed(inner, one) for one in (single, *packed)]
    known = [speed for speed in speeds if speed is not None]
    if len(known) < len(speeds):
        return None
    return Cost(experiment_id=cell.id, copies=copies, alone=known[0], packed=fmean(known[1:]))


def _copy(cell: Experiment, name: str) -> Experiment:
    return replace(cell, id=f"{cell.id}.{name}", measure=MEASURE, repeats=1, adaptive=None, monitors=())


def _speed(store: Store, experiment: Experiment) -> float | None:
    records = [run.record for run in store.runs(experiment.id) if run.record is not None]
    values = {number.name: number.value for number in records[-1].measurements} if records else {}
    value = values.get(SPEED)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


def _inside(store: Store) -> Store:
    root = store.root / PACKING
    return Store.resume(root) if is_ours(root) else Store.create(root, {"packing_of": str(store.root)})
