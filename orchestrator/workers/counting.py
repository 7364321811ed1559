"""Counts what a micro-batch holds: tokens, tokens that are no padding, tokens with a label, samples, their squared lengths.

What is measured, and how: each micro-batch as the Trainer gets it, on the host, before accelerate sends it to the device. The GPU
is still at work on the step before, so that nothing waits for the counting, and of the GPU nothing is asked. The numbers stay
with the tensors that were sent. A batch that came by another way, or was changed since, is counted where it lies, behind its
backward pass: what is on a GPU is added up there and copied to pinned memory, and nobody waits for it.

What the numbers leave out: padding is told by a mask of the tokens' shape and by nothing else; in a batch without one every
token counts as real. Samples of a row that holds several are told by `position_ids` that start again at 0. A batch that is
changed in place after it was sent keeps its first numbers. What has to be counted on a GPU that is not CUDA's is waited for.

`instrument.py` loads this file by its path. It imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional

IGNORED = -100
COUNTED = ("input_ids", "attention_mask", "labels", "position_ids")
COUNTS = ("tokens", "real", "labelled", "samples", "squares")
SLOTS = 256
NOTE = "_tunebench_note"


class Note(NamedTuple):
    """COUNTS of a batch, told to each of the tensors of these names that were sent with it."""

    counts: list[int]
    names: frozenset[str]


def noting(send: Callable[..., Any], *, wanted: Callable[[], bool]) -> Callable[..., Any]:
    """accelerate's `send_to_device`, which counts a batch before it leaves the host; `wanted`: whether it is to just now."""

    @functools.wraps(send)
    def send_to_device(batch: Any, *args: Any, **kwargs: Any) -> Any:
        note = None
        with contextlib.suppress(Exception):  # what cannot be counted here cannot be later, where it is told
            note = noted(held(batch)) if wanted() else None
        sent = send(batch, *args, **kwargs)
        with contextlib.suppress(Exception):
            for part in held(sent).values() if note else ():
                setattr(part, NOTE, note)
        return sent

    return send_to_device


def noted(parts: Mapping[str, Any]) -> Optional[Note]:
    """What is to be told to a batch's tensors; None of one that lies on a GPU already, or has no tokens."""
    if any(getattr(part, "is_cuda", False) for part in parts.values()):
        return None
    values = sizes(parts)
    return None if values is None else Note([int(value) for value in values], frozenset(parts))


def told(parts: Mapping[str, Any]) -> Optional[list[int]]:
    """The numbers that these tensors were sent with; None where they were not sent together, or are not all that was."""
    note: Optional[Note] = getattr(parts.get(COUNTED[0]), NOTE, None)
    if (
        note is None
        or note.names != parts.keys()
        or any(getattr(part, NOTE, None) is not note for part in parts.values())
    ):
        return None
    return note.counts


def held(inputs: Any) -> dict[str, Any]:
    """What counting needs of a micro-batch, kept apart: training may take labels out of the batch that it is given."""
    parts = {name: inputs.get(name) for name in COUNTED} if hasattr(inputs, "get") else {}
    return {name: part for name, part in parts.items() if part is not None}


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
    """Counts micro-batches.

    A slot is a row of pinned host memory that a GPU can copy into while the host goes on, and the event behind that copy.
    """

    def __init__(self) -> None:
        self.free: list[tuple[Any, Any]] = []

    def take(self) -> tuple[Any, Any]:
        if not self.free:
            torch = sys.modules["torch"]
            rows = torch.empty((SLOTS, len(COUNTS)), dtype=torch.int64, pin_memory=True)
            self.free.extend((row, torch.cuda.Event()) for row in rows)
        return self.free.pop()

    def count(self, parts: Mapping[str, Any]) -> Optional[Batch]:
        """The numbers of what `held` has kept; None where there are no tokens to count."""
        values = told(parts) or sizes(parts)
        return None if values is None else Batch(values, self)
