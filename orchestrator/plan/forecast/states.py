"""The forecast for each experiment on an assumed machine: whether it runs there, and how many GPU-hours it takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.errors import SelectionError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.forecast.earlier_runs import EarlierRuns
from orchestrator.plan.forecast.gpu_hours import GpuHours, gpu_hours
from orchestrator.plan.forecast.memory_fit import Estimate, Fit, Unknown, estimate, fits
from orchestrator.plan.forecast.memory_fit.estimate import GIB
from orchestrator.plan.forecast.memory_fit.shapes import NotKnown
from orchestrator.records import Device, Experiment, Reason


class State(StrEnum):
    """The state of an experiment on a machine. `UNKNOWN` means that the experiment's memory has no estimate."""

    RUNS = "runs"
    DOES_NOT_FIT = "does not fit"
    MAY_NOT_FIT = "may not fit"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """The forecast for an experiment on a machine.

    `reason` says why the experiment is skipped, or why its state is unknown. `memory` is None if the experiment is skipped, uses no
    GPU, or has no estimate. `hours` is None if the experiment cannot run, or if the GPU-hours are unknown. `no_hours` says why the
    GPU-hours are unknown.
    """

    state: State
    reason: Reason | None = None
    memory: Estimate | None = None
    hours: GpuHours | None = None
    no_hours: str | None = None


def forecast(experiment: Experiment, machine: Machine, earlier: EarlierRuns) -> Forecast:
    """Return the forecast for an experiment that was planned for this machine. All GPUs of the machine are of one kind."""
    cannot = experiment.skip or experiment.cannot_run_here
    if cannot:
        return Forecast(state=State.SKIPPED, reason=cannot)
    if experiment.device is not Device.CUDA:
        return Forecast(state=State.RUNS, no_hours="the run uses a CPU")
    memory = estimate(experiment)
    state, reason = _state(memory, machine)
    found = memory if isinstance(memory, Estimate) else None
    if state is State.DOES_NOT_FIT:
        return Forecast(state=state, memory=found)
    try:
        hours = gpu_hours(experiment, machine, earlier)
    except NotKnown as error:
        return Forecast(state=state, reason=reason, memory=found, no_hours=str(error))
    return Forecast(state=state, reason=reason, memory=found, hours=hours)


def _state(memory: Estimate | Unknown, machine: Machine) -> tuple[State, Reason | None]:
    if isinstance(memory, Unknown):
        return State.UNKNOWN, Reason(kind="no_estimate", text=memory.reason)
    states = {Fit.FITS: State.RUNS, Fit.DOES_NOT_FIT: State.DOES_NOT_FIT, Fit.MAY_NOT_FIT: State.MAY_NOT_FIT}
    return states[fits(memory, machine.gpus[0].memory_bytes or 0)], None


def leave_out_what_may_not_fit(experiments: Sequence[Experiment], machine: Machine) -> tuple[Experiment, ...]:
    """Return all experiments. Experiments that may not fit are marked as unable to run here.

    An experiment may not fit if its estimate exceeds the smallest GPU's memory or is too close to that memory. Experiments without
    an estimate are not changed. Raises SelectionError if the memory of the GPUs is unknown.
    """
    if not machine.gpus_known:
        raise SelectionError(
            "--fit-only needs the GPUs of a node; write them into the site file, such as `node: 4xH100`, or leave --fit-only out"
        )
    sizes = [gpu.memory_bytes or 0 for gpu in machine.gpus]
    if sizes and not min(sizes):
        raise SelectionError(
            "--fit-only needs the memory of the GPUs, and NVML does not report it; leave --fit-only out"
        )
    return tuple(_marked(experiment, min(sizes)) if sizes else experiment for experiment in experiments)


def leave_out_what_does_not_fit(
    experiments: Sequence[Experiment], machine: Machine, limit_bytes: float | None = None
) -> tuple[Experiment, ...]:
    """Return all experiments. Those that certainly need more memory than the smallest GPU has, or than the limit, are marked."""
    sizes = [gpu.memory_bytes for gpu in machine.gpus if gpu.memory_bytes] + [limit_bytes or 0]
    least = int(min(filter(None, sizes), default=0))
    if not least:
        return tuple(experiments)
    return tuple(_marked(one, least, but=(Fit.FITS, Fit.MAY_NOT_FIT), option="") for one in experiments)


def _marked(
    experiment: Experiment,
    memory_bytes: int,
    *,
    but: Collection[Fit] = (Fit.FITS,),
    option: str = " (--fit-only)",
) -> Experiment:
    memory = estimate(experiment)
    if experiment.skip or experiment.cannot_run_here or isinstance(memory, Unknown):
        return experiment
    verdict = fits(memory, memory_bytes)
    if verdict in but:
        return experiment
    text = f"{verdict}: {memory.device_bytes / GIB:.1f} GiB on GPUs of {memory_bytes / GIB:.1f} GiB{option}"
    return replace(experiment, cannot_run_here=Reason(kind=verdict.replace(" ", "_"), text=text))
