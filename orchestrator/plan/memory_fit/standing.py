"""What lies on a GPU whatever the batch: weights, gradients, optimizer states, and the copies that are made of them.

Counted for full fine-tuning and LoRA, for one process, DDP (which keeps a second copy of all gradients, its buckets) and
FSDP 2 (which spreads all three, keeps them in float32 under autocast, and gathers weights in the compute type). When each of
it lies there is `estimate`'s affair.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.plan.memory_fit.activations import FLOAT32
from orchestrator.plan.memory_fit.training import Spread, Training

_BLOCK = 256
"""Numbers of an 8-bit state that share one scale, as bitsandbytes has it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Bytes that do not depend on the batch, on one GPU.

    `held` gradients lie there even before a backward pass. `forward_copies` and `backward_copies` are autocast's copies of
    the weights at the end of the forward pass and in the backward pass, `layer_copies` those of one layer; `unsharded` are
    the gradients of one layer before FSDP spreads them, `gradients_above` all but those of the first layer and the embedding.
    """

    weights: int
    optimizer: int
    gradients: int
    held: int
    buckets: int
    head_gradient: int
    gradients_above: int
    forward_copies: int
    backward_copies: int
    layer_copies: int
    unsharded: int
    step_workspace: int

    @classmethod
    def of(cls, training: Training) -> Standing:
        trained, number = _trained(training)
        shards = training.processes if training.spread is Spread.SHARDS else 1
        gradients = trained * number // shards
        trains_base = training.adapters is None
        everything, head, layer = _copies(training)
        outer = number * training.shape.embedding_parameters // shards if trains_base else 0
        one_layer = (
            number * training.shape.layer_parameters // shards if trains_base else gradients // training.shape.layers
        )
        tied = training.shape.tied
        gathered_layer = training.compute_bytes * training.shape.layer_parameters
        return cls(
            weights=_weights(training),
            optimizer=_states(training) // shards,
            gradients=gradients,
            held=gradients if training.accumulates else 0,
            buckets=gradients if training.spread is Spread.REPLICAS else 0,
            head_gradient=outer,
            gradients_above=gradients - one_layer - (0 if tied else outer),
            # Casts of trained weights stay in autocast's cache until the forward pass ends, those of frozen ones do not.
            forward_copies=everything if trains_base or not training.checkpointed else head,
            backward_copies=head if training.checkpointed else everything,
            layer_copies=layer,
            unsharded=2 * gathered_layer if training.spread is Spread.SHARDS else 0,
            # A tied embedding gets its two gradients one after the other, and they are added up.
            step_workspace=max(step_workspace_bytes(training) // shards, outer if tied else 0),
        )


def _adapter_parameters(training: Training) -> int:
    adapters, shape = training.adapters, training.shape
    if adapters is None:
        return 0
    widths = sum(matrix.inputs + matrix.outputs for matrix in shape.matrices if matrix.name in adapters.targets)
    return shape.layers * adapters.rank * widths


def _trained(training: Training) -> tuple[int, int]:
    """How many numbers are trained, and the bytes of each: PEFT keeps adapters in float32."""
    if training.adapters is not None:
        return _adapter_parameters(training), FLOAT32
    return training.shape.parameters, training.stored_bytes


def _weights(training: Training) -> int:
    """Weights as they lie on one GPU; with FSDP its shard, the parts around the layers, and two layers gathered ahead."""
    shape = training.shape
    if training.spread is not Spread.SHARDS:
        return shape.parameters * training.stored_bytes + _adapter_parameters(training) * FLOAT32
    layers = shape.layers if training.keeps_gathered else min(2, shape.layers)
    gathered = shape.outside_parameters + layers * shape.layer_parameters
    return shape.parameters * training.stored_bytes // training.processes + gathered * training.compute_bytes


def _copies(training: Training) -> tuple[int, int, int]:
    """Autocast's copies in the compute type: of all matrices, of the output matrix, of one layer's."""
    shape, adapters = training.shape, _adapter_parameters(training)
    cast_adapters = adapters * training.compute_bytes if training.autocast else 0
    one_layer = cast_adapters // shape.layers
    if not training.casts:
        return cast_adapters, 0, one_layer
    head = training.compute_bytes * shape.embedding_parameters
    layer = training.compute_bytes * sum(matrix.parameters for matrix in shape.matrices) + one_layer
    return layer * shape.layers + head, head, layer


def _states(training: Training) -> int:
    """The optimizer's states, of the whole model."""
    trained, number = _trained(training)
    if training.optimizer in ("adamw_torch", "adamw_torch_fused"):
        return 2 * number * trained
    if training.optimizer in ("adamw_bnb_8bit", "adamw_8bit"):
        embedding = training.shape.embedding_parameters if training.adapters is None else 0  # kept in 32 bits
        return 2 * FLOAT32 * embedding + round(2 * (1 + FLOAT32 / _BLOCK) * (trained - embedding))
    if training.optimizer == "adafactor":
        return FLOAT32 * _factors(training)
    return 0  # sgd, without momentum


def _factors(training: Training) -> int:
    """Rows and columns of Adafactor's factored states: those of every matrix, and norms and biases whole."""
    shape, adapters = training.shape, training.adapters
    if adapters is not None:
        adapted = [matrix for matrix in shape.matrices if matrix.name in adapters.targets]
        return shape.layers * sum(matrix.inputs + matrix.outputs + 2 * adapters.rank for matrix in adapted)
    sides = sum(matrix.inputs + matrix.outputs for matrix in shape.matrices)
    vectors = shape.layer_parameters - sum(matrix.inputs * matrix.outputs for matrix in shape.matrices)
    outside = (1 if shape.tied else 2) * (shape.vocab_size + shape.hidden_size) + shape.hidden_size
    return shape.layers * (sides + vectors) + outside


def step_workspace_bytes(training: Training) -> int:
    """What the optimizer makes beside its states, for the whole model.

    AdamW and SGD (with weight decay) work on lists of all weights and make one more of them; the fused AdamW and the 8-bit
    one make nothing. Adafactor takes one weight at a time, in float32: two updates, and 16-bit gradient and weight as well.
    """
    trained, number = _trained(training)
    if training.optimizer == "adamw_torch" or (training.optimizer == "sgd" and training.decays):
        return number * trained
    if training.optimizer == "adafactor":
        shape = training.shape
        largest = max(shape.embedding_parameters, shape.hidden_size * shape.intermediate_size)
        if training.adapters is not None:
            largest = training.adapters.rank * max(shape.hidden_size, shape.intermediate_size, shape.query_width)
        return (4 if number < FLOAT32 else 2) * FLOAT32 * largest
    return 0
