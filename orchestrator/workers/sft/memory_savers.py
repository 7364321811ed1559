"""Less memory for a training: a loss in chunks, and activations in the host's memory. And the choice of sdpa's kernel.

transformers has no option for these. Each function uses what torch offers, and changes nothing unless it is asked for.
"""

from __future__ import annotations

import contextlib
from typing import Any, Optional

import torch
from arguments import ArgumentError, Own
from torch import nn
from torch.utils.checkpoint import checkpoint

# Rows of logits (one for each token) that are in memory as float32 at the same time.
CHUNK_ROWS = 1024
# Trainer arguments with which the Trainer or the model computes another loss.
OTHER_LOSSES = ("use_liger_kernel", "label_smoothing_factor")


def chunked_loss(
    logits: Any,
    labels: Any,
    vocab_size: int,
    num_items_in_batch: Any = None,
    ignore_index: int = -100,
    shift_labels: Optional[Any] = None,
    **_: Any,
) -> Any:
    """Return the loss of a causal language model. Float32 copies of the logits exist for one chunk of rows at a time.

    The backward pass computes the copies of a chunk again. The result is that of transformers' `ForCausalLMLoss`.
    """
    if shift_labels is None:
        shift_labels = nn.functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    rows, targets = logits.reshape(-1, vocab_size), shift_labels.reshape(-1).to(logits.device)

    def sum_of(chunk: Any, wanted: Any) -> Any:
        return nn.functional.cross_entropy(chunk.float(), wanted, ignore_index=ignore_index, reduction="sum")

    chunks = zip(rows.split(CHUNK_ROWS), targets.split(CHUNK_ROWS))  # noqa: B905 (Python 3.9)
    total = torch.stack([checkpoint(sum_of, chunk, wanted, use_reentrant=False) for chunk, wanted in chunks]).sum()
    return total / ((targets != ignore_index).sum() if num_items_in_batch is None else num_items_in_batch)


def set_loss(model: Any, own: Own, args: Any) -> None:
    """Give the model the loss in chunks if it is asked for. Raise ArgumentError if another argument replaces the loss."""
    if not own.chunked_loss:
        return
    for name in OTHER_LOSSES:
        if getattr(args, name, None):
            raise ArgumentError(f"--chunked_loss and --{name} exclude each other: both replace the loss; choose one.")
    if not hasattr(model, "loss_function"):
        raise ArgumentError("--chunked_loss: this model's loss cannot be replaced; use transformers 4.46 or newer.")
    model.loss_function = chunked_loss


def use_backend(own: Own) -> None:
    """Allow sdpa a single kernel. If the kernel cannot compute the model's attention, the training fails and says so."""
    if own.sdpa_backend is None:
        return
    switches = {"flash": "flash", "efficient": "mem_efficient", "math": "math", "cudnn": "cudnn"}
    for name, switch in switches.items():
        getattr(torch.backends.cuda, f"enable_{switch}_sdp")(name == own.sdpa_backend)


def offloading(trainer_class: Any) -> Any:
    """Return a class of Trainer that keeps the tensors for the backward pass in the host's memory."""

    class OffloadingTrainer(trainer_class):  # type: ignore[misc]
        def compute_loss_context_manager(self) -> Any:
            stack = contextlib.ExitStack()
            stack.enter_context(torch.autograd.graph.save_on_cpu(pin_memory=torch.cuda.is_available()))
            stack.enter_context(super().compute_loss_context_manager())
            return stack

    return OffloadingTrainer
