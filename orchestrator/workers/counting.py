"""Counts what a micro-batch holds: tokens, tokens that are no padding, tokens with a label, samples, their squared lengths.

What is measured, and how: each micro-batch as the Trainer gets it, behind its backward pass. What has to be read from tensors on
a GPU is added up there beside the training, on a stream of its own, and copied to pinned memory; nobody waits for it.

What the numbers leave out: padding is told by a mask of the tokens' shape and by nothing else; in a batch without one every
token counts as real. Samples of a row that holds several are told by `position_ids` that start again at 0. On a GPU that is
not CUDA's, counting waits for it.

`instrument.py` loads this file by its path. It imports nothing but the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Optional

IGNORED = -100
COUNTED = ("input_ids", "attention_mask", "labels", "position_ids")
COUNTS = ("tokens", "real", "labelled", "samples", "squares")
SLOTS = 256


def held(inputs: Any) -> dict[str, Any]:
    """What counting needs of a micro-batch, kept apart: training may take labels out of the batch that it is given."""
    return {name: inputs.get(name) for name in COUNTED} if hasattr(inputs, "get") else {}


def sizes(inputs: Mapping[str, Any]) -> Optional[list[Any]]:
    """COUNTS of one micro-batch, each a number or a tensor that holds one; None where there are no tokens to count."""
    tokens: Any = inputs.get(COUNTED[0])
    mask, labels, positions = (inputs.get(name) for name in COUNTED[1:])
    if not hasattr(tokens, "numel"):
        return None
    mask, positions = (t if getattr(t, "shape", None) == tokens.shape else None for t in (mask, positions))
    count, width = tokens.numel(), tokens.shape[-1]
    rows = tokens.shape[:-1].numel()
    real = count if mask is None else mask.count_nonzero()
    labelled = 0 if labels is None else (labels != IGNORED).sum()
    if positions is None:
        return [count, real, labelled, rows, rows * width**2]
    starts = positions == 0
    samples = (starts if mask is None else starts & (mask != 0)).sum()
    # 0 + 1 + … + (n - 1) twice, and n, is n².
    return [count, real, labelled, samples, 2 * positions.sum() + count]


class Batch:
    """The numbers of one micro-batch, of which those on a GPU are still on their way to `row`."""

    def __init__(self, values: list[Any], counter: Counter) -> None:
        away = [value for value in values if getattr(value, "is_cuda", False)]
        self.values = [None if getattr(value, "is_cuda", False) else int(value) for value in values]
        self.counter, self.slot = counter, counter.take() if away else None
        if self.slot:
            row, arrived = self.slot
            row[: len(away)].copy_(sys.modules["torch"].stack(away), non_blocking=True)
            arrived.record()

    def ready(self) -> bool:
        return self.slot is None or bool(self.slot[1].query())

    def read(self) -> list[int]:
        """The numbers, once `ready`."""
        if self.slot is not None:
            arrived = iter(self.slot[0].tolist())
            self.values = [next(arrived) if value is None else value for value in self.values]
            self.counter.free.append(self.slot)
            self.slot = None
        return [value for value in self.values if value is not None]


class Counter:
    """Counts micro-batches; those on CUDA beside the training, on a stream of their own, for which it does not wait.

    A slot is a row of pinned host memory that a GPU can copy into while the host goes on, and the event behind that copy.
    """

    def __init__(self) -> None:
        self.free: list[tuple[Any, Any]] = []
        self.stream: Any = None

    def take(self) -> tuple[Any, Any]:
        if not self.free:
            torch = sys.modules["torch"]
            rows = torch.empty((SLOTS, len(COUNTS)), dtype=torch.int64, pin_memory=True)
            self.free.extend((row, torch.cuda.Event()) for row in rows)
        return self.free.pop()

    def count(self, inputs: Mapping[str, Any]) -> Optional[Batch]:
        """None where there are no tokens to count."""
        read = (inputs.get(name) for name in COUNTED[1:])  # of the tokens, the shape is enough
        away: list[Any] = [value for value in read if getattr(value, "is_cuda", False)]
        if not away:
            values = sizes(inputs)
            return None if values is None else Batch(values, self)
        cuda = sys.modules["torch"].cuda
        self.stream = self.stream or cuda.Stream(away[0].device)
        self.stream.wait_stream(cuda.current_stream(away[0].device))
        with cuda.stream(self.stream):
            values = sizes(inputs)
            batch = None if values is None else Batch(values, self)
        for value in away:  # whose memory must not be given to others before this stream has read it
            value.record_stream(self.stream)
        return batch
