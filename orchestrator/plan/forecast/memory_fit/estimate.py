"""The estimated peak of torch's allocated memory on one GPU: the largest sum at any moment of a training step.

The peak can only be at a few moments of a step. At each of these moments, memory has different parts. In the backward pass of the
loss, all activations and three float32 copies of the logits are in memory, but no gradient. In the optimizer step, all gradients
are in memory, but no activation. So this module adds up the parts of each moment. The largest sum is the estimate. Weights,
optimizer states and buckets are part of every moment. The first step is left out: its peak is lower, because the optimizer
states are made only at its end.

The function `estimate` returns an Estimate or Unknown for an experiment. Experiments with the same `Training` share one estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache, partial

from orchestrator.plan.forecast.memory_fit import activations, gathered
from orchestrator.plan.forecast.memory_fit.activations import FLOAT32
from orchestrator.plan.forecast.memory_fit.gathered import Gathered, Units
from orchestrator.plan.forecast.memory_fit.model_states import ModelStates
from orchestrator.plan.forecast.memory_fit.shapes import NotKnown
from orchestrator.plan.forecast.memory_fit.training import Training, training_of
from orchestrator.records import Experiment

GIB = 1 << 30

# The allocator's reserve as a share of the tensors. Measured: 6 to 19 %, and 31 % in one configuration of 9.6 GiB. The allocator
# frees the reserve before memory runs out, so a run does not need the reserve.
RESERVE_SHARE = 0.15

# CUDA context, kernels and libraries: 0.75 GiB in all measured runs of one process on an H100; 0.82 on an H200.
CONTEXT_BYTES = int(0.75 * GIB)

# NCCL's buffers and contexts, if there are several processes. Together with CONTEXT_BYTES: 1.6 to 1.9 GiB in four measurements.
COMMUNICATION_BYTES = int(1.25 * GIB)

# cuBLAS workspaces in torch's allocator: 32 MiB on Hopper (8 MiB on other GPUs) for the thread of the forward pass, and as much for
# the thread of the backward pass.
CUBLAS_BYTES = 2 * (32 << 20)


class Moment(StrEnum):
    """The moment of a training step with the most memory in use."""

    FORWARD = "end of the forward pass"
    GATHERING = "gathering of the last layer or the output matrix"
    LOSS = "backward pass of the loss"
    TOP_LAYER = "backward pass of the last layer"
    BOTTOM_LAYER = "backward pass of the first layer"
    EMBEDDING = "backward pass of the embedding"
    STEP = "optimizer step"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Bytes on each GPU at the fullest moment of a step, one field for each use of memory.

    `weights_bytes` includes adapters, autocast's copies and FSDP's gathered weights; `gradients_bytes` includes DDP's buckets.
    `unmeasured` names parts that were not yet compared with a run on a GPU.
    """

    moment: Moment
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int
    workspace_bytes: int
    processes: int
    unmeasured: tuple[str, ...]

    @property
    def peak_allocated_bytes(self) -> int:
        """Torch's peak allocated memory: the sum of the parts."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """Name of a field → bytes, for each part of the sum."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name.endswith("_bytes")}

    @property
    def context_bytes(self) -> int:
        """Memory outside torch's allocator."""
        return CONTEXT_BYTES + (COMMUNICATION_BYTES if self.processes > 1 else 0)

    @property
    def device_bytes(self) -> int:
        """The memory that the GPU shows as used: the peak, the allocator's reserve, contexts and libraries."""
        return round(self.peak_allocated_bytes * (1 + RESERVE_SHARE)) + self.context_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """The reason, in a few words, why there is no estimate."""

    reason: str


def estimate(experiment: Experiment) -> Estimate | Unknown:
    """Return the experiment's peak on each GPU, assuming that all rows have `max_seq_len` tokens."""
    try:
        return _estimate(training_of(experiment))
    except NotKnown as error:
        return Unknown(reason=str(error))


@lru_cache(maxsize=4096)
def _estimate(training: Training) -> Estimate:
    return max(_moments(training), key=lambda moment: moment.peak_allocated_bytes)


def _moments(training: Training) -> Iterator[Estimate]:
    states, layers = ModelStates.of(training), training.shape.layers
    at, kept = partial(_at, training, states), activations.kept_bytes(training)
    in_forward, in_backward = _logits(training)
    yield at(Moment.FORWARD, gathered.in_forward(training), kept=kept, logits=in_forward, copies=states.forward_copies)
    if training.sharded:
        layer = activations.checkpoint_bytes(training) if training.checkpointed else activations.layer_bytes(training)
        most = (layers - 1) * layer * training.tokens
        yield at(Moment.GATHERING, gathered.when_gathering(training, tail=False), kept=most)
        yield at(Moment.GATHERING, gathered.when_gathering(training, tail=True), kept=kept)
    yield at(Moment.LOSS, gathered.in_loss(training), kept=kept, logits=in_backward, copies=states.backward_copies)
    for above in sorted({0, min(1, layers - 1), max(layers - 2, 0), layers - 1}):
        yield from _in_layer(training, states, _kept_below(training, kept, above), above=above)
    if training.sharded and training.adapters is None:
        outer = 0 if training.shape.tied else states.head_gradient
        yield at(Moment.EMBEDDING, gathered.in_embedding(training), gradients=states.gradients - outer)
    yield at(Moment.STEP, Gathered(), gradients=states.gradients, workspace=states.step_workspace)


def _in_layer(training: Training, states: ModelStates, kept: int, *, above: int) -> Iterator[Estimate]:
    """Yield an estimate for each phase of one layer's backward pass. The layer has `above` layers above it."""
    moment = Moment.TOP_LAYER if above < min(2, training.shape.layers - 1) else Moment.BOTTOM_LAYER
    own = Units.of(training).layer_gradient if training.sharded else states.layer_gradient
    for phase in activations.phases(training):
        yield _at(
            training,
            states,
            moment,
            gathered.in_layer(training, above=above),
            kept=kept - phase.freed * training.tokens,
            gradients=states.head_gradient + above * states.layer_gradient,
            workspace=phase.needed * training.tokens + round(phase.gradients * own) + states.unpacked,
            copies=states.backward_copies + (states.layer_copies if training.checkpointed else 0),
        )


def _at(
    training: Training,
    states: ModelStates,
    moment: Moment,
    found: Gathered,
    *,
    kept: int = 0,
    logits: int = 0,
    gradients: int = 0,
    workspace: int = 0,
    copies: int = 0,
) -> Estimate:
    return Estimate(
        moment=moment,
        weights_bytes=states.weights + copies + found.weights,
        gradients_bytes=max(gradients, 0 if moment is Moment.STEP else states.held) + states.buckets,
        optimizer_bytes=states.optimizer,
        activations_bytes=kept,
        logits_bytes=logits,
        workspace_bytes=workspace + found.gradients + CUBLAS_BYTES,
        processes=training.processes,
        unmeasured=training.unmeasured,
    )


def _kept_below(training: Training, kept: int, above: int) -> int:
    """Return the bytes of activations that exist in the backward pass of the layer with `above` layers above it.

    `kept` is the number of bytes of all activations.
    """
    below = training.shape.layers - above
    layer = activations.layer_bytes(training) * training.tokens
    if training.checkpointed:
        checkpoint = activations.checkpoint_bytes(training) * training.tokens
        # With float32 weights the input of the first norm is the checkpoint itself.
        return checkpoint * below + layer - (checkpoint if training.weight_bytes == FLOAT32 else 0)
    return kept if above == 0 else below * layer


def _logits(training: Training) -> tuple[int, int]:
    """Return the bytes of logits and loss at two moments: at the end of the forward pass, and in the backward pass of the loss.

    At the end of the forward pass, memory has the logits, log-softmax in float32, and a float32 copy of 16-bit logits. Either the
    loss function or accelerate makes this copy. In the backward pass, memory has log-softmax and two gradients; with compilation,
    it has only the logits and one gradient. Liger's loss works on chunks of the logits. So memory has only one chunk, and the
    gradients of the loss's inputs.
    """
    shape, compute, tokens = training.shape, training.compute_bytes, training.tokens
    logits = tokens * shape.vocab_size
    if training.liger:
        inputs = compute * tokens * shape.hidden_size
        weight = training.weight_bytes * shape.embedding_parameters if training.adapters is None else 0
        chunk = min(tokens, _next_power_of_two(-(-tokens // -(-shape.vocab_size // shape.hidden_size))))
        return inputs + weight + 2 * compute * chunk * shape.vocab_size, inputs + weight
    if training.compiled:
        copy = FLOAT32 if training.autocast else 0
        return (compute + copy) * logits, 2 * compute * logits
    copy = FLOAT32 if compute < FLOAT32 else 0
    return (compute + FLOAT32 + copy) * logits, 3 * FLOAT32 * logits


def _next_power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
