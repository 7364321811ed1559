"""Counts what a micro-batch holds: tokens, tokens that are no padding, tokens with a label, samples, their squared lengths.

What is measured, and how: each micro-batch as the Trainer gets it, on the host, before accelerate sends it to the device. The GPU
is still at work on the step before, so that nothing waits for the counting, and of the GPU nothing is asked. The numbers are
kept beside the tensors that were sent, and hold as long as these are not changed. A batch that came by another way (of an
iterable data set, accelerate sends the batches of all ranks as one and cuts them behind that), or was changed since, is counted
where it lies, behind its backward pass: what is on a GPU is added up there and copied to pinned memory, and nobody waits for it.

What the numbers leave out: padding is told by a mask of the tokens' shape; in a batch without one every token counts as real,
but for positions that end in several zeros. Samples of a row that holds several are told by `position_ids` that do not go on
from the token before. What has to be counted on a GPU that is not CUDA's is waited for.

A part of the instrument (`instrument.py`). It imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, Union

IGNORED = -100
COUNTED = ("input_ids", "attention_mask", "labels", "position_ids")
COUNTS = ("tokens", "real", "labelled", "samples", "squares")
SLOTS = 256


class Sent(NamedTuple):
    """COUNTS of a batch, and the tensors that were sent of it, each with its version then: a change in place makes a new one."""

    counts: list[int]
    parts: dict[str, tuple[weakref.ref[Any], int]]


_sent: dict[int, Sent] = {}
"""By the id of a batch's tokens: beside the tensors and not on them, so that a batch pickles and copies as it would if nobody
measured, and as long as they live."""


def noting(send: Callable[..., Any], *, wanted: Callable[[], bool]) -> Callable[..., Any]:
    """accelerate's `send_to_device`, which counts a batch before it leaves the host; `wanted`: whether it is to just now."""

    @functools.wraps(send)
    def send_to_device(batch: Any, *args: Any, **kwargs: Any) -> Any:
        counts = None
        with contextlib.suppress(Exception):  # what cannot be counted here cannot be later, where it is told
            counts = counted(held(batch)) if wanted() else None
        sent = send(batch, *args, **kwargs)
        if counts is not None:
            with contextlib.suppress(Exception):
                note(held(sent), counts)
        return sent

    return send_to_device


def counted(parts: Mapping[str, Any]) -> Optional[list[int]]:
    """COUNTS of a batch on the host; None of one that lies on a GPU already, or has no tokens."""
    if any(getattr(part, "is_cuda", False) for part in parts.values()):
        return None
    values = sizes(parts)
    return None if values is None else [int(value) for value in values]


def note(parts: Mapping[str, Any], counts: list[int]) -> None:
    key = id(parts[COUNTED[0]])
    gone = {COUNTED[0]: functools.partial(_forget, key)}
    _sent[key] = Sent(
        counts, {name: (weakref.ref(part, gone.get(name)), part._version) for name, part in parts.items()}
    )


def _forget(key: int, _: object) -> None:
    _sent.pop(key, None)


def told(parts: Mapping[str, Any]) -> Optional[list[int]]:
    """The numbers that these tensors were sent with; None where they are not all that was sent, or were changed since."""
    sent = _sent.get(id(parts.get(COUNTED[0])))
    if sent is None or sent.parts.keys() != parts.keys():
        return None
    for name, (tensor, version) in sent.parts.items():
        part = parts[name]
        if getattr(part, "_version", None) != version or tensor() is not part:
            return None
    return sent.counts


def kept(inputs: Any) -> Union[list[int], dict[str, Any]]:
    """The numbers that a micro-batch was sent with, or else what it takes to count it; nothing of what is no batch.

    Asked for before the training step, which may take labels out of the batch that it is given, or change them.
    """
    try:
        parts = held(inputs)
        return told(parts) or parts
    except Exception:  # a batch of somebody's own kind, for which training must not end
        return {}


def held(inputs: Any) -> dict[str, Any]:
    """What counting needs of a micro-batch."""
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
    labelled = 0 if labels is None else (labels != IGNORED).sum()
    if positions is not None:
        real, samples, squares = packed(positions, mask)
    else:
        real, samples, squares = count if mask is None else mask.count_nonzero(), rows, rows * width**2
    return [count, real, labelled, samples, squares]


def packed(positions: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Real tokens, samples and their squared lengths of rows in which samples follow one another.

    A sample begins where a position is 0 or does not go on from the one before, and behind padding. Without a mask, several
    zeros at a row's end are padding (trl pads packed rows to a multiple so); a single one is a sample of one token.
    """
    torch = sys.modules["torch"]
    begins = positions == 0
    begins[..., 0] = True
    begins[..., 1:] |= positions[..., 1:] != positions[..., :-1] + 1
    if mask is None:
        tail = (positions == 0).flip(-1).cumprod(-1).sum(-1)
        padding = (tail * (tail > 1)).sum()
        real, samples = positions.numel() - padding, begins.sum() - padding
    else:
        here, padding = mask != 0, 0
        begins[..., 1:] |= here[..., 1:] & ~here[..., :-1]
        real, samples = here.sum(), (begins & here).sum()
    index = torch.arange(positions.shape[-1], device=positions.device)
    place = index - torch.where(begins, index, 0).cummax(-1).values
    # 0 + 1 + … + (n - 1) twice, and n, is n².
    return real, samples, 2 * place.sum() + positions.numel() - padding


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

    def count(self, batch: Union[list[int], Mapping[str, Any]]) -> Optional[Batch]:
        """The numbers of what was `kept` of a micro-batch; None where there are no tokens, or none that can be counted."""
        try:
            values = batch if isinstance(batch, list) else sizes(batch)
        except Exception:  # labels that are no tensor, nested rows: they cost their numbers, and not the steps' times
            return None
        return None if values is None else Batch(values, self)
