"""The work of an experiment: the FLOPs of one optimizer step on each GPU, and the number of steps.

`measure.flops` has the formulas. In a run, the instrument reads the formulas' inputs from the built model. Here the inputs come
from the model's configuration. Like the estimate of memory, this assumes that every row has `max_seq_len` tokens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.measure.flops import model_flops_per_token
from orchestrator.plan.cells import ACCUMULATION, BATCH, TRAINER_BATCH_DEFAULT
from orchestrator.plan.command.parallelism import context_size
from orchestrator.plan.forecast.memory_fit.adapters import Adapters, adapters_of
from orchestrator.plan.forecast.memory_fit.launch import is_checkpointed
from orchestrator.plan.forecast.memory_fit.read_argument import whole, word
from orchestrator.plan.forecast.memory_fit.shapes import ModelShape, NotKnown, hub_folder, read_shape
from orchestrator.records import Device, Experiment, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The FLOPs of one optimizer step on each GPU, and the number of steps of one run."""

    flops_per_step: float
    steps: int

    @property
    def flops(self) -> float:
        """The FLOPs of one run on each GPU."""
        return self.flops_per_step * self.steps


def work_of(experiment: Experiment) -> Work:
    """Return the work of one run of the experiment. Raises NotKnown."""
    if experiment.device is not Device.CUDA:
        raise NotKnown("the run uses a CPU")
    if experiment.trainer != "huggingface":
        raise NotKnown(f"trainer {experiment.trainer}")
    arguments = experiment.arguments
    hub = hub_folder(experiment.env)
    shape = read_shape(experiment.model, arguments, revision=word(arguments, "revision"), hub=hub)
    length = whole(arguments, "max_seq_len", None)
    facts = architecture(shape, adapters_of(arguments, shape), checkpointed=is_checkpointed(experiment))
    per_token = model_flops_per_token(facts, squares_per_token=length, longest=length)
    if per_token is None:
        raise NotKnown("sequences longer than the window of attention")
    rows = whole(arguments, BATCH, TRAINER_BATCH_DEFAULT) * whole(arguments, ACCUMULATION, 1)
    tokens = rows * length / context_size(experiment.accelerate)  # ranks that divide a sequence divide its work
    return Work(flops_per_step=per_token * tokens, steps=_steps(experiment, arguments))


def architecture(shape: ModelShape, adapters: Adapters | None, *, checkpointed: bool = False) -> dict[str, Any]:
    """Return those facts of `workers/instrument/model/architecture.py` and `backward.py` that determine the FLOPs.

    With checkpointing, transformers makes gradients reach the embedding, so they reach every matrix.
    """
    linear = sum(matrix.inputs * matrix.outputs for matrix in shape.matrices)
    everything = shape.layers * (linear + shape.router_parameters) + shape.embedding_parameters
    experts = shape.layers * shape.expert_parameters
    trained = adapters is None
    added = shape.layers * adapters.parameters(shape) if adapters else 0
    return {
        "frozen": 0 if trained else everything,
        "trainable": everything if trained else added,
        "expert_frozen": 0 if trained else experts,
        "expert_trainable": experts if trained else 0,
        "experts": shape.experts or None,
        "experts_per_token": shape.experts_per_token or None,
        "attention_width": shape.layers * shape.query_width,
        "causal": True,
        "window": shape.window,
        **(_unreached(shape, adapters) if adapters and not checkpointed else {}),
    }


def _unreached(shape: ModelShape, adapters: Adapters) -> dict[str, int]:
    """Return the part of the first layer that gets no gradients, because no adapter comes before it."""
    queries, keys, values = (name in adapters.targets for name in ("q_proj", "k_proj", "v_proj"))
    cut: set[str] = set()
    for names in (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)):
        if cut.isdisjoint(adapters.targets):
            cut |= set(names)
    matrices = (matrix for matrix in shape.matrices if matrix.name in cut)
    ranks = {name: adapters.rank for name in adapters.targets}
    products = (not queries) + (not keys) + (not values) + (not queries and not keys)
    return {
        "unreached": sum(matrix.inputs * (matrix.outputs + ranks.get(matrix.name, 0)) for matrix in matrices),
        "attention_unreached": products * shape.query_width,
    }


def _steps(experiment: Experiment, arguments: Mapping[str, Text]) -> int:
    given = str(arguments.get("max_steps", "-1"))
    limits = [whole(arguments, "max_steps", None)] if re.fullmatch(r"0*[1-9]\d*", given) else []
    if experiment.measure and experiment.measure.at_most_steps:
        limits.append(experiment.measure.at_most_steps)
    if not limits:
        raise NotKnown("neither max_steps nor measure.at_most_steps")
    return min(limits)
