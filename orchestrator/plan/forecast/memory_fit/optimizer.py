"""Memory of an optimizer for the whole model: its states, and the extra memory of its step.

Paged states of bitsandbytes are outside torch's allocator, and the driver moves them to the host when memory runs short. So paged
states are not counted. Small states are never paged, so they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from orchestrator.plan.forecast.memory_fit.activations import FLOAT32
from orchestrator.plan.forecast.memory_fit.training import Training

ADAMW = frozenset({"adamw_torch", "adamw_torch_fused"})
EIGHT_BIT = frozenset({"adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"})
PAGED = frozenset({"paged_adamw_8bit", "paged_adamw_32bit", "paged_adamw"})

# bitsandbytes: how many numbers of an 8-bit state share one scale; the smallest state in 8 bits; the smallest paged state.
_BLOCK, _LEAST_8_BIT, _LEAST_PAGED = 256, 4096, 100_000


@dataclass(frozen=True, slots=True)
class Tensors:
    """Several (`count`) trained tensors of one shape."""

    count: int
    shape: tuple[int, ...]
    embedding: bool = False

    @property
    def size(self) -> int:
        return prod(self.shape)


def trained_tensors(training: Training) -> Iterator[Tensors]:
    """Yield the tensors that are trained: all weights, or the two matrices of each adapter."""
    shape, adapters = training.shape, training.adapters
    hidden, layers = shape.hidden_size, shape.layers
    if adapters is not None:
        for matrix in shape.matrices:
            if matrix.name in adapters.targets:
                yield Tensors(layers, (adapters.rank, matrix.inputs))
                yield Tensors(layers, (matrix.outputs, adapters.rank))
        return
    for matrix in shape.matrices:
        yield Tensors(layers, (matrix.outputs, matrix.inputs))
        if matrix.bias:
            yield Tensors(layers, (matrix.outputs,))
    if shape.experts:
        yield Tensors(layers, (shape.experts, hidden))
        yield Tensors(layers, (shape.experts, 2 * shape.intermediate_size, hidden))
        yield Tensors(layers, (shape.experts, hidden, shape.intermediate_size))
    if shape.head_norms:
        yield Tensors(2 * layers, (shape.head_dim,))
    yield Tensors(2 * layers + 1, (hidden,))
    yield Tensors(1, (shape.vocab_size, hidden), embedding=True)
    if not shape.tied:
        yield Tensors(1, (shape.vocab_size, hidden))


def trained_bytes(training: Training) -> int:
    """Return the bytes of one trained number. PEFT keeps adapters in float32."""
    return FLOAT32 if training.adapters is not None else training.stored_bytes


def trained_parameters(training: Training) -> int:
    """Return the number of trained parameters."""
    return sum(tensors.count * tensors.size for tensors in trained_tensors(training))


def state_bytes(training: Training) -> int:
    """Return the bytes of the optimizer's states."""
    return sum(tensors.count * _of_one(tensors, training) for tensors in trained_tensors(training))


def _of_one(tensors: Tensors, training: Training) -> int:
    optimizer, size = training.optimizer, tensors.size
    if optimizer in ADAMW:
        return 2 * trained_bytes(training) * size
    if optimizer == "adafactor":  # one row and one column for each matrix; norms and biases in full
        *_, rows, columns = (1, *tensors.shape)
        return FLOAT32 * (size // rows + size // columns if len(tensors.shape) > 1 else size)
    if optimizer not in EIGHT_BIT | PAGED:
        return 0  # sgd, without momentum
    paged = optimizer in PAGED and size >= _LEAST_PAGED
    if optimizer not in EIGHT_BIT or tensors.embedding or size < _LEAST_8_BIT:
        return 0 if paged else 2 * FLOAT32 * size
    return 2 * FLOAT32 * -(-size // _BLOCK) + (0 if paged else 2 * size)


def step_workspace_bytes(training: Training) -> int:
    """Return the bytes that the optimizer step needs in addition to the states.

    AdamW, and SGD with weight decay, copy all weights. The fused AdamW and the optimizers of bitsandbytes copy nothing. Adafactor
    makes two float32 updates of one weight at a time, and float32 copies of a 16-bit gradient and weight.
    """
    number = trained_bytes(training)
    if training.optimizer == "adamw_torch" or (training.optimizer == "sgd" and training.decays):
        return number * trained_parameters(training)
    if training.optimizer == "adafactor":
        largest = max(tensors.size for tensors in trained_tensors(training))
        return (4 if number < FLOAT32 else 2) * FLOAT32 * largest
    return 0
