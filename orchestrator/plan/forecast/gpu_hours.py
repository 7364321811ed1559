"""The GPU-hours of an experiment, from its FLOPs, its start-up time, and the share of the GPU's peak that training reaches (MFU).

MFU and start-up time come from earlier runs of the same model, framework configuration and kind of training. Without such runs, MFU
and start-up time are assumed. The assumptions are round numbers near measurements of a Llama of 1.1 billion parameters on one H100
(docs/method.md). The assumed MFU is 33 % for full fine-tuning, 19 % for LoRA, and about 0.8 of these values with checkpointing. The
factors for quantised weights and for experts are guesses.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.machine.provenance import Machine
from orchestrator.measure.flops import peak_flops
from orchestrator.plan.forecast.earlier_runs import EarlierRuns, Measured, kind_of
from orchestrator.plan.forecast.memory_fit.launch import autocast_of, dtype_of
from orchestrator.plan.forecast.memory_fit.read_argument import word
from orchestrator.plan.forecast.memory_fit.shapes import ModelShape, NotKnown, hub_folder, read_shape
from orchestrator.plan.forecast.work import work_of
from orchestrator.records import Experiment

FULL, LORA = 0.33, 0.19
CHECKPOINTED, QUANTISED, EXPERTS = 0.8, 0.8, 0.6
STARTUP_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuHours:
    """The GPU-hours of all runs of an experiment, and the inputs of the calculation.

    `mfu` and `startup_s` are values of a single run. `source` names the earlier runs that gave these values, or the kind of
    training for which they are assumed.
    """

    hours: float
    runs: int
    flops: float
    mfu: float
    startup_s: float
    assumed: bool
    source: str


def gpu_hours(experiment: Experiment, machine: Machine, earlier: EarlierRuns) -> GpuHours:
    """Return the GPU-hours of all runs on GPUs of this machine's kind, or raise NotKnown.

    All rows are assumed to have `max_seq_len` tokens. Adaptive repeats count with their maximum. A run that may end early counts
    with all its steps.
    """
    work = work_of(experiment)
    shape = _shape(experiment)
    speed = earlier.like(experiment) or _assumed(experiment, shape)
    peak = _peak(experiment, machine, shape)
    seconds = work.flops / (peak * speed.mfu) + speed.startup_s
    runs = experiment.most_repeats
    return GpuHours(
        hours=runs * experiment.num_gpus * seconds / 3600,
        runs=runs,
        flops=work.flops,
        mfu=speed.mfu,
        startup_s=speed.startup_s,
        assumed=earlier.like(experiment) is None,
        source=speed.source,
    )


def _shape(experiment: Experiment) -> ModelShape:
    revision = word(experiment.arguments, "revision")
    return read_shape(experiment.model, experiment.arguments, revision=revision, hub=hub_folder(experiment.env))


def _peak(experiment: Experiment, machine: Machine, shape: ModelShape) -> float:
    device = machine.gpus[0].name if machine.gpus else ""
    if not device:
        raise NotKnown("GPUs without a type have no known peak; name a type, such as 8xH100")
    precision = {"dtype": dtype_of(experiment, shape), "mixed_precision": autocast_of(experiment)}
    peak = peak_flops(device, **precision)
    if peak is None:
        raise NotKnown("matrix products in 32 bits")
    return peak


def _assumed(experiment: Experiment, shape: ModelShape) -> Measured:
    kind = kind_of(experiment)
    if kind.offloaded:
        raise NotKnown("with weights on the host, the host limits the speed")
    factors = {
        "quantised": QUANTISED if kind.quantised else None,
        "checkpointed": CHECKPOINTED if kind.checkpointed else None,
        "experts": EXPERTS if shape.experts else None,
    }
    mfu, words = (LORA if kind.adapters else FULL), ["LoRA" if kind.adapters else "full"]
    for name, factor in factors.items():
        if factor is not None:
            mfu, words = mfu * factor, [*words, name]
    return Measured(mfu=mfu, startup_s=STARTUP_S, source=", ".join(words))
