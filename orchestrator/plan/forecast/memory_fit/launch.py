"""Settings of an experiment that are read in more than one place: number types, division between processes, checkpointing.

A setting that the estimate does not cover raises NotKnown with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from orchestrator.plan.command.parallelism import context_size, distributed_type, replicas
from orchestrator.plan.forecast.memory_fit.read_argument import is_off, plain, word
from orchestrator.plan.forecast.memory_fit.shapes import ModelShape, NotKnown
from orchestrator.records import Experiment
from orchestrator.trainers.argument_names import is_true

BYTES_OF = {"float32": 4, "bfloat16": 2, "float16": 2}
_CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")


class Parallelism(StrEnum):
    """The division of work between processes. `FSDP` is version 2."""

    NONE = "none"
    DDP = "ddp"
    FSDP = "fsdp"


def is_checkpointed(experiment: Experiment) -> bool:
    """Return whether the backward pass computes activations again."""
    return any(is_true(experiment.arguments.get(name)) for name in _CHECKPOINTING) or is_true(
        plain(fsdp_settings(experiment).get("fsdp_activation_checkpointing"))
    )


def is_offloaded(experiment: Experiment) -> bool:
    """Return whether FSDP keeps weights, gradients and states in the host's memory."""
    sharded = experiment.num_gpus > 1 and distributed_type(experiment) == "FSDP"
    return sharded and is_true(plain(fsdp_settings(experiment).get("fsdp_offload_params")))


def quantization_of(experiment: Experiment) -> str | None:
    """Return the form of quantised weights: nf4, fp4, int8 or gptq. Return None if the weights are not quantised."""
    form = word(experiment.arguments, "quantization")
    return None if form is None or is_off(form) else form


def parallelism_of(experiment: Experiment) -> Parallelism:
    """Return how the processes divide the work. Raises NotKnown."""
    requested = str(experiment.accelerate.get("distributed_type", "MULTI_GPU")).upper()
    if experiment.num_gpus == 1:
        return Parallelism.NONE
    if requested not in ("MULTI_GPU", "NO", "MULTI_CPU", "FSDP"):
        raise NotKnown("DeepSpeed" if requested == "DEEPSPEED" else f"distributed_type {requested}")
    if distributed_type(experiment) != "FSDP":
        return Parallelism.DDP
    if replicas(experiment) > 1:
        raise NotKnown("hybrid shards")
    if context_size(experiment.accelerate) > 1:
        raise NotKnown("context parallelism")
    settings = fsdp_settings(experiment)
    if str(settings.get("fsdp_version", "1")) != "2":
        raise NotKnown("FSDP 1")
    if settings.get("fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP") != "TRANSFORMER_BASED_WRAP":
        raise NotKnown("FSDP that does not shard layer by layer")
    if settings.get("fsdp_mixed_precision_policy"):
        raise NotKnown("FSDP with its own precision policy; write bf16: true instead of fsdp_mixed_precision_policy")
    if autocast_of(experiment) is None:
        raise NotKnown("FSDP without autocast; write bf16: true")
    return Parallelism.FSDP


def fsdp_settings(experiment: Experiment) -> Mapping[str, Any]:
    """Return the launcher's settings of FSDP."""
    settings = experiment.accelerate.get("fsdp_config")
    return settings if isinstance(settings, Mapping) else {}


def autocast_of(experiment: Experiment) -> str | None:
    """Return the number type in which autocast computes, or None without autocast. Raises NotKnown."""
    dtypes = {"bf16": "bfloat16", "fp16": "float16"}
    for name, dtype in dtypes.items():
        if is_true(experiment.arguments.get(name)):
            return dtype
    precision = plain(experiment.accelerate.get("mixed_precision"))
    if is_off(precision):
        return None
    if precision not in dtypes:
        raise NotKnown(f"mixed precision {precision}")
    return dtypes[precision]


def dtype_of(experiment: Experiment, shape: ModelShape) -> str:
    """Return the number type of the weights. Raises NotKnown."""
    dtype = word(experiment.arguments, "dtype") or word(experiment.arguments, "torch_dtype") or "float32"
    if dtype == "auto":
        # Random weights have no stored type. The type of stored weights is in the model's configuration. If it is not there, it is
        # unknown until the weights are loaded.
        dtype = "float32" if experiment.model.startswith("config:") else shape.dtype or ""
    if dtype not in BYTES_OF:
        raise NotKnown(f"weights of type {dtype or 'auto'}")
    autocast = autocast_of(experiment)
    if autocast is not None and dtype not in ("float32", autocast):
        raise NotKnown(f"{dtype} weights under autocast to {autocast}")
    return dtype
