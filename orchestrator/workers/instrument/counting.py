"""Counts a micro-batch: tokens, tokens that are not padding, tokens with a label, samples, and the samples' squared lengths.

What is measured, and how: each micro-batch is counted on the host, before accelerate sends it to the device. Meanwhile the GPU
still works on the previous step, so nothing waits for the counting. The counts are stored for the tensors that were sent, and
are valid as long as these tensors do not change. Some batches cannot be counted on the host: for an iterable data set,
accelerate sends the batches of all ranks as one batch and cuts that batch later. These batches, and batches that were changed,
are counted on the device after the backward pass; with context parallelism before the forward pass, which leaves each rank a
part of every row. Sums on a GPU are copied to pinned memory, and nothing waits for them.

What the numbers leave out: padding is known only from a mask that has the shape of the tokens. Without a mask, every token counts
as real. One exception: if several tokens at the end of a row have the position 0, they count as padding. A new sample in a row is
recognised by a position that does not continue from the previous token. Counting on a GPU without CUDA waits for that GPU.

This is a part of the instrument (`instrument.py`). It imports only the standard library.
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
    """The COUNTS of a batch, and the tensors that were sent, each with its version. A change in place makes a new version."""

    counts: list[Optional[int]]
    parts: dict[str, tuple[weakref.ref[Any], int]]


# Maps the id() of a batch's tokens to what was sent, as long as the tokens exist. The counts are not attributes of the tensors:
# pickling and copying a batch must work as they do without the instrument.
_sent: dict[int, Sent] = {}


def noting(send: Callable[..., Any], *, wanted: Callable[[], bool]) -> Callable[..., Any]:
    """Wrap accelerate's `send_to_device`: while `wanted()` is true, count each batch before it leaves the host."""

    @functools.wraps(send)
    def send_to_device(batch: Any, *args: Any, **kwargs: Any) -> Any:
        counts = None
        with contextlib.suppress(Exception):  # the count after the training step will fail, too, and report the error
            counts = counted(held(batch)) if wanted() else None
        sent = send(batch, *args, **kwargs)
        if counts is not None:
            with contextlib.suppress(Exception):
                note(held(sent), counts)
        return sent

    return send_to_device


def counted(parts: Mapping[str, Any]) -> Optional[list[Optional[int]]]:
    """Return the COUNTS of a batch on the host; None if the batch is already on a GPU or has no tokens."""
    if any(getattr(part, "is_cuda", False) for part in parts.values()):
        return None
    values = sizes(parts)
    return values and [value if value is None else int(value) for value in values]


def note(parts: Mapping[str, Any], counts: list[Optional[int]]) -> None:
    key = id(parts[COUNTED[0]])
    gone = {COUNTED[0]: lambda _: _sent.pop(key, None)}
    _sent[key] = Sent(
        counts, {name: (weakref.ref(part, gone.get(name)), part._version) for name, part in parts.items()}
    )


def noted(parts: Mapping[str, Any]) -> Optional[list[Optional[int]]]:
    """Return the counts stored for these tensors. Return None for other tensors, or if a tensor has changed since."""
    sent = _sent.get(id(parts.get(COUNTED[0])))
    if sent is None or sent.parts.keys() != parts.keys():
        return None
    for name, (tensor, version) in sent.parts.items():
        part = parts[name]
        if getattr(part, "_version", None) != version or tensor() is not part:
            return None
    return sent.counts


def kept(inputs: Any, *, divided: bool = False) -> Union[list[Any], dict[str, Any]]:
    """Return the counts stored for a micro-batch, or the tensors to count. Return an empty dict if `inputs` is not a batch.

    Call this function before the training step: the step may remove or change the labels of its batch. If ranks divide the
    batch in the step (`divided`), the tensors have only this rank's part of each row afterwards. So they are counted at once.
    """
    try:
        parts = held(inputs)
        return noted(parts) or (divided and sizes(parts)) or parts
    except Exception:  # an unknown kind of batch must not end the training
        return {}


def held(inputs: Any) -> dict[str, Any]:
    """Return those tensors of a micro-batch that counting needs."""
    parts = {name: inputs.get(name) for name in COUNTED} if hasattr(inputs, "get") else {}
    return {name: part for name, part in parts.items() if part is not None}


def sizes(inputs: Mapping[str, Any]) -> Optional[list[Any]]:
    """Return the COUNTS of a micro-batch, each a number or a tensor with one number; None without tokens.

    Tokens with a label are None if the batch has no labels, such as a batch of preferences.
    """
    tokens: Any = inputs.get(COUNTED[0])
    mask, labels, positions = (inputs.get(name) for name in COUNTED[1:])
    if not hasattr(tokens, "numel"):
        return None
    mask, positions = (t if getattr(t, "shape", None) == tokens.shape else None for t in (mask, positions))
    count, width = tokens.numel(), tokens.shape[-1]
    rows = tokens.shape[:-1].numel()
    labelled = None if labels is None else (labels != IGNORED).sum()
    if positions is not None:
        real, samples, squares = packed(positions, mask)
    else:
        real, samples, squares = count if mask is None else mask.count_nonzero(), rows, rows * width**2
    return [count, real, labelled, samples, squares]


def packed(positions: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Return three counts of rows with several samples: real tokens, samples, and the sum of the samples' squared lengths.

    A sample begins after padding. It also begins where a position is 0 or does not continue from the previous position. Without
    a mask, several zeros at the end of a row are padding, as trl makes it. A single zero at the end is a sample of one token.
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
    # 2 × (0 + 1 + … + (n - 1)) + n = n².
    return real, samples, 2 * place.sum() + positions.numel() - padding


class Batch:
    """The counts of one micro-batch. Counts on a GPU are copied to the host; `ready` says whether they have arrived."""

    def __init__(self, values: list[Any], counter: Counter) -> None:
        self.away = [at for at, value in enumerate(values) if getattr(value, "is_cuda", False)]
        self.values = [None if at in self.away or value is None else int(value) for at, value in enumerate(values)]
        self.counter, self.slot = counter, counter.take() if self.away else None
        if self.slot:
            row, arrived = self.slot
            sums = sys.modules["torch"].stack([values[at] for at in self.away])
            row[: len(self.away)].copy_(sums, non_blocking=True)
            arrived.record()

    def ready(self) -> bool:
        return self.slot is None or bool(self.slot[1].query())

    def read(self) -> list[Optional[int]]:
        """Return the counts. Call it once `ready` is true."""
        if self.slot is not None:
            for at, value in zip(self.away, self.slot[0].tolist()):  # noqa: B905 (Python 3.9)
                self.values[at] = value
            self.counter.free.append(self.slot)
            self.slot = None
        return self.values


class Counter:
    """A counter of micro-batches. It keeps free slots for later use.

    A slot is a row of pinned host memory and an event. A GPU copies into the row without the host; the event marks the end of
    that copy.
    """

    def __init__(self) -> None:
        self.free: list[tuple[Any, Any]] = []

    def take(self) -> tuple[Any, Any]:
        if not self.free:
            torch = sys.modules["torch"]
            rows = torch.empty((SLOTS, len(COUNTS)), dtype=torch.int64, pin_memory=True)
            self.free.extend((row, torch.cuda.Event()) for row in rows)
        return self.free.pop()

    def count(self, batch: Union[list[Any], Mapping[str, Any]]) -> Optional[Batch]:
        """Return the counts of a micro-batch; `batch` is the result of `kept`. Return None if no tokens can be counted."""
        try:
            values = batch if isinstance(batch, list) else sizes(batch)
        except Exception:  # labels that are not a tensor, or nested rows: only the counts are lost, not the times
            return None
        return None if values is None else Batch(values, self)
