"""The peak of torch's allocated memory on one GPU: the moments of a training step, and the largest of them.

A step has few moments that can be its peak, and each holds other parts: when the loss is differentiated, all activations
and three copies of the logits in float32 lie there, but no gradient; when the optimizer moves the weights, all gradients and
no activation. So the parts are not added up: every moment is, and the largest is the estimate. Weights, optimizer states
and buckets are in each of them. The first step is lower, since the states are made at its end.

Pure: an experiment in, an Estimate or Unknown out. One estimate is made for all experiments that are alike in what matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from orchestrator.plan.memory_fit import activations
from orchestrator.plan.memory_fit.activations import FLOAT32
from orchestrator.plan.memory_fit.shapes import NotKnown
from orchestrator.plan.memory_fit.standing import Standing
from orchestrator.plan.memory_fit.training import Training, training_of
from orchestrator.records import Experiment

GIB = 1 << 30

RESERVE_SHARE = 0.15
"""What the allocator holds beyond the tensors, as a share of them: 6 to 19 % in all measured configurations but one, 31 %
in one of 9.6 GiB. It is given back before memory runs out, so this is comfort and no need."""

CONTEXT_BYTES = int(0.75 * GIB)
"""CUDA context, kernels and libraries: 0.75 GiB in all measured runs of one process on an H100; 0.82 on an H200."""

COMMUNICATION_BYTES = int(1.25 * GIB)
"""NCCL's buffers and more contexts, with several processes: together with CONTEXT_BYTES 1.6 to 1.9 GiB in the four measured."""

CUBLAS_BYTES = 2 * (32 << 20)
"""cuBLAS' workspaces, which torch takes from its allocator: 32 MiB on Hopper (8 on others), one for the thread of the forward
pass and one for that of the backward pass."""


class Moment(StrEnum):
    """When a training step holds most."""

    FORWARD = "end of the forward pass"
    LOSS = "backward pass of the loss"
    TOP_LAYER = "backward pass of the last layer"
    BOTTOM_LAYER = "backward pass of the first layer"
    STEP = "optimizer step"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Bytes on each GPU at the fullest moment of a step, by what holds them.

    `weights_bytes` has adapters, autocast's copies and what FSDP gathers in it, `gradients_bytes` DDP's buckets.
    """

    moment: Moment
    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    logits_bytes: int
    workspace_bytes: int
    processes: int

    @property
    def peak_allocated_bytes(self) -> int:
        """The sum: torch's peak allocated memory."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
            + self.logits_bytes
            + self.workspace_bytes
        )

    @property
    def context_bytes(self) -> int:
        """What torch's allocator does not see."""
        return CONTEXT_BYTES + (COMMUNICATION_BYTES if self.processes > 1 else 0)

    @property
    def device_bytes(self) -> int:
        """What the card shows as used when nothing is short: the sum, the allocator's reserve, contexts and libraries."""
        return round(self.peak_allocated_bytes * (1 + RESERVE_SHARE)) + self.context_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """No estimate, and why, in a few words."""

    reason: str


def estimate(experiment: Experiment) -> Estimate | Unknown:
    """The experiment's peak on each of its GPUs, with all rows as long as `max_seq_len` allows."""
    try:
        return _estimate(training_of(experiment))
    except NotKnown as error:
        return Unknown(reason=str(error))


@lru_cache(maxsize=4096)
def _estimate(training: Training) -> Estimate:
    return max(_moments(training), key=lambda moment: moment.peak_allocated_bytes)


def _moments(training: Training) -> Iterator[Estimate]:
    standing = Standing.of(training)
    kept, tokens = activations.kept_bytes(training), training.tokens
    layer = activations.layer_bytes(training) * tokens
    workspace = activations.backward_bytes(training) * tokens + standing.unsharded
    in_forward, in_backward = _logits(training)
    yield _at(Moment.FORWARD, training, kept=kept, logits=in_forward, copies=standing.forward_copies)
    yield _at(Moment.LOSS, training, kept=kept, logits=in_backward, copies=standing.backward_copies)
    if training.checkpointed:
        # In float32 the first norm's input is the checkpoint itself.
        shared = activations.checkpoint_bytes(training) * tokens if training.weight_bytes == FLOAT32 else 0
        inputs = activations.checkpoint_bytes(training) * tokens * training.shape.layers
        top, bottom = inputs + layer - shared, inputs // training.shape.layers + layer - shared
        copies = standing.backward_copies + standing.layer_copies
    else:
        top, bottom, copies = kept, layer, standing.backward_copies
    for moment, held, gradients in (
        (Moment.TOP_LAYER, top, standing.head_gradient),
        (Moment.BOTTOM_LAYER, bottom, standing.gradients_above),
    ):
        yield _at(moment, training, kept=held, gradients=gradients, workspace=workspace, copies=copies)
    yield _at(Moment.STEP, training, gradients=standing.gradients, workspace=standing.step_workspace)


def _at(
    moment: Moment,
    training: Training,
    *,
    kept: int = 0,
    logits: int = 0,
    gradients: int = 0,
    workspace: int = 0,
    copies: int = 0,
) -> Estimate:
    """The estimate of one moment: what stands, and what this moment has besides."""
    standing = Standing.of(training)
    return Estimate(
        moment=moment,
        weights_bytes=standing.weights + copies,
        gradients_bytes=max(gradients, standing.held) + standing.buckets,
        optimizer_bytes=standing.optimizer,
        activations_bytes=kept,
        logits_bytes=logits,
        workspace_bytes=workspace + CUBLAS_BYTES,
        processes=training.processes,
    )


def _logits(training: Training) -> tuple[int, int]:
    """Logits and what the loss makes of them: at the end of the forward pass and in its backward pass.

    Forward: the logits, log-softmax in float32, and the float32 copy that the loss takes (or, after it, the one that
    accelerate makes of a model's 16-bit outputs). Backward: log-softmax and two gradients. Compiled, only the logits and one
    gradient of them. Liger's loss never has them whole: it leaves the gradients of its inputs, and a chunk lies there at a time.
    """
    shape, compute, tokens = training.shape, training.compute_bytes, training.tokens
    one = tokens * shape.vocab_size
    if training.liger:
        inputs = compute * tokens * shape.hidden_size
        weight = training.weight_bytes * shape.embedding_parameters if training.adapters is None else 0
        chunk = min(tokens, _next_power_of_two(-(-tokens // -(-shape.vocab_size // shape.hidden_size))))
        return inputs + weight + 2 * compute * chunk * shape.vocab_size, inputs + weight
    if training.compiled:
        copy = FLOAT32 if training.autocast else 0
        return (compute + copy) * one, 2 * compute * one
    copy = FLOAT32 if compute < FLOAT32 else 0
    return (compute + FLOAT32 + copy) * one, 3 * FLOAT32 * one


def _next_power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
