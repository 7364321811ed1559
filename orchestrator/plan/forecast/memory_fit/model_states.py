"""Memory on a GPU that does not depend on the batch: weights, gradients, optimizer states, and copies of weights and gradients.

This module covers full fine-tuning and LoRA, with one process, DDP or FSDP 2. DDP keeps a second copy of all gradients in its
buckets. FSDP 2 shards weights, gradients and states. Under autocast, FSDP 2 keeps trained weights in float32. `gathered` computes
the rest of FSDP's memory. `estimate` decides which parts are in memory at which moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from orchestrator.plan.forecast.memory_fit.activations import FLOAT32
from orchestrator.plan.forecast.memory_fit.gathered import held_gradients
from orchestrator.plan.forecast.memory_fit.launch import Parallelism
from orchestrator.plan.forecast.memory_fit.optimizer import (
    state_bytes,
    step_workspace_bytes,
    trained_bytes,
    trained_parameters,
)
from orchestrator.plan.forecast.memory_fit.shapes import Matrix
from orchestrator.plan.forecast.memory_fit.training import Training

# bitsandbytes: how many numbers of a 4-bit matrix share one scale, and how many scales share one scale of the second level.
_BLOCK, _BLOCK_OF_SCALES = 64, 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelStates:
    """Bytes on one GPU that do not depend on the batch.

    - `held`: gradients that exist even before a backward pass.
    - `head_gradient`, `layer_gradient`: the gradients of the output matrix and of one layer.
    - `unpacked`: a quantised matrix while it is multiplied.
    - `forward_copies`, `backward_copies`: autocast's copies of the weights at the end of the forward pass and in the backward pass;
      `layer_copies`: the copies for one layer.
    """

    weights: int
    optimizer: int
    gradients: int
    held: int
    buckets: int
    head_gradient: int
    layer_gradient: int
    forward_copies: int
    backward_copies: int
    layer_copies: int
    unpacked: int
    step_workspace: int

    @classmethod
    def of(cls, training: Training) -> ModelStates:
        number, shape, shards = trained_bytes(training), training.shape, _shards(training)
        gradients = trained_parameters(training) * number // shards if shards else 0
        trains_base = training.adapters is None
        everything, head, layer = _copies(training)
        outer = number * shape.embedding_parameters // shards if trains_base and shards else 0
        one_layer = number * shape.layer_parameters // shards if trains_base and shards else gradients // shape.layers
        whole = held_gradients(training) if training.sharded else gradients
        return cls(
            weights=_weights(training) // shards if shards else 0,
            optimizer=state_bytes(training) // shards if shards else 0,
            gradients=gradients,
            held=whole if training.accumulates else 0,
            buckets=gradients if training.parallelism is Parallelism.DDP else 0,
            head_gradient=outer,
            layer_gradient=one_layer,
            # Casts of trained weights stay in autocast's cache until the forward pass ends; casts of frozen weights do not.
            forward_copies=everything if trains_base or not training.checkpointed else head,
            backward_copies=head if training.checkpointed else everything,
            layer_copies=layer,
            unpacked=training.compute_bytes * max(map(_size, shape.matrices)) if training.quantized else 0,
            # A tied embedding has two gradients, which are added.
            step_workspace=max(step_workspace_bytes(training) // shards, outer if shape.tied else 0) if shards else 0,
        )


def _shards(training: Training) -> int:
    """Return the number of GPUs that share weights, gradients and states. Return 0 if all of this is on the host."""
    if training.offloads:
        return 0
    return training.processes if training.sharded else 1


def _adapter_parameters(training: Training) -> int:
    return training.shape.layers * training.adapters.parameters(training.shape) if training.adapters else 0


def _weights(training: Training) -> int:
    """Return the bytes of all weights between steps."""
    shape, adapters = training.shape, _adapter_parameters(training) * FLOAT32
    if not training.quantized:
        return shape.parameters * training.stored_bytes + adapters
    sizes = [_size(matrix) for matrix in shape.matrices]
    packed = sum(map(partial(_packed, double=training.double_quantized), sizes))
    rest = FLOAT32 * (shape.layer_parameters - sum(sizes))
    return shape.layers * (packed + rest) + FLOAT32 * shape.outside_parameters + adapters


def _size(matrix: Matrix) -> int:
    return matrix.inputs * matrix.outputs


def _packed(size: int, *, double: bool) -> int:
    """Return the bytes of a matrix in 4 bits with its scales.

    The scales are float32. If `double` is true, the scales have 8 bits and scales of their own.
    """
    blocks = -(-size // _BLOCK)
    scales = blocks + FLOAT32 * -(-blocks // _BLOCK_OF_SCALES) if double else FLOAT32 * blocks
    return -(-size // 2) + scales


def _copies(training: Training) -> tuple[int, int, int]:
    """Return three values: the bytes of autocast's copies of all matrices, of the output matrix, and of one layer."""
    shape, adapters = training.shape, _adapter_parameters(training)
    cast_adapters = adapters * training.compute_bytes if training.autocast and training.copies_for_adapters else 0
    one_layer = cast_adapters // shape.layers
    if not training.casts:
        return cast_adapters, 0, one_layer
    head = training.compute_bytes * shape.embedding_parameters
    if training.quantized:  # products of quantised matrices use 16-bit numbers even without autocast
        return one_layer * shape.layers + head, head, one_layer
    layer = training.compute_bytes * sum(matrix.parameters for matrix in shape.matrices) + one_layer
    return layer * shape.layers + head, head, layer
