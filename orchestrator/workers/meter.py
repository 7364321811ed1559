"""Times and counts the optimizer steps of one training on one rank, and writes a line for each.

What is measured, and how: a mark of the clock (`clocks.py`: on CUDA the GPU's own) is set where a step begins and where it
ends, and read some steps later, once the GPU has passed it: nothing here ever waits for a GPU. Tokens, tokens that are no
padding, tokens with a label, samples and the sum of their squared lengths are counted from each micro-batch as the Trainer
gets it, behind its backward pass; what has to be read from tensors on a GPU is added up there beside the training, on a stream
of its own, and copied to pinned memory.

What the numbers leave out: padding is told by a mask of the tokens' shape and by nothing else; in a batch without one every
token counts as real. Samples of a row that holds several are told by `position_ids` that start again at 0. On a GPU that is
not CUDA's, counting waits for it.

`instrument.py` loads this file by its path. It imports nothing but the standard library.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, Union

IGNORED = -100
COUNTED = ("input_ids", "attention_mask", "labels", "position_ids")
COUNTS = ("tokens", "real", "labelled", "samples", "squares")
LONGEST_WAIT_S = 5.0
SLOTS = 256


# --- counting --------------------------------------------------------------------------------------------------------


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
    seen = None if mask is None else mask != 0
    real = count if seen is None else seen.sum()
    labelled = 0 if labels is None else (labels != IGNORED).sum()
    if positions is None:
        return [count, real, labelled, rows, rows * width**2]
    starts = positions == 0
    samples = starts.sum() if seen is None else (starts & seen).sum()
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
        away = [value for value in inputs.values() if getattr(value, "is_cuda", False)]
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


# --- the meter -------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A step that has ended on the host: from the end of the one before, over its begin, to its end."""

    number: int
    start: Any
    begin: Any
    end: Any
    batches: list[Optional[Batch]]
    after: list[str]


class Block(NamedTuple):
    """Steps that were all measured, or none of them."""

    number: int
    on: bool
    steps: int
    start: Any
    end: Any


def careful(method: Callable[..., Any]) -> Callable[..., Any]:
    """What goes wrong while measuring must not end the training: it ends the measuring, and is told."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.trouble is None:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.trouble = f"{method.__name__}: {type(error).__name__}: {error}"
        return None

    return call


def lines(folder: str, name: str) -> Any:
    """A new file of JSON lines. A process can be killed at any moment: each is flushed."""
    return open(os.path.join(folder, name), "w", encoding="utf-8", buffering=1)


class Meter:
    """The steps of one training. `toggle`: for an overhead study, measure every other block of so many steps only."""

    def __init__(self, folder: str, *, rank: int, clock: Any, toggle: Optional[int] = None) -> None:
        self.clock, self.toggle = clock, toggle
        self.trouble: Optional[str] = None
        self.on, self.block, self.in_block = True, 0, 0
        self.counter = Counter()
        self.batches: list[Optional[Batch]] = []
        self.after: list[str] = []
        self.pending: deque[Union[Step, Block, dict[str, Any]]] = deque()
        self.totals: dict[str, Optional[int]] = dict.fromkeys(COUNTS, 0)
        self.steps = self.micro = 0
        self.first_end: Optional[float] = None
        self.start(folder, rank)

    @careful
    def start(self, folder: str, rank: int) -> None:
        self.lines = lines(folder, f"steps-rank{rank}.jsonl")
        self.blocks: Any = lines(folder, f"blocks-rank{rank}.jsonl") if self.toggle else None
        self.last, self.wall = self.clock.anchor()
        self.edge, self.begun = self.last, None

    @careful
    def count(self, inputs: Mapping[str, Any]) -> None:
        """A micro-batch has been trained on as far as the host knows; `held` has kept what there is to count."""
        if self.on:
            self.batches.append(self.counter.count(inputs))

    @careful
    def begin(self) -> None:
        if self.on:
            self.begun = self.clock.mark()

    @careful
    def end(self, number: int) -> None:
        """A step has ended as far as the host knows."""
        self.in_block += 1
        edge = self.in_block == self.toggle
        mark = self.clock.mark() if self.on or edge else None
        if self.on:
            begun = self.last if self.begun is None else self.begun
            self.pending.append(Step(number, self.last, begun, mark, self.batches, self.after))
            self.last = mark
        self.begun, self.batches, self.after = None, [], []
        if edge:
            self.pending.append(Block(self.block, self.on, self.in_block, self.edge, mark))
            self.edge = self.last = mark
            self.block, self.in_block, self.on = self.block + 1, 0, not self.on

    def happened(self, what: str) -> None:
        """Evaluation or saving, for which the next step's time is not to blame."""
        if what not in self.after:
            self.after.append(what)

    @careful
    def loss(self, number: int, value: Any) -> None:
        if self.on:
            self.pending.append({"step": number, "t": time.time(), "loss": value})

    @careful
    def harvest(self, *, wait_s: float = 0.0) -> list[float]:
        """Writes what the GPU has done, in order; returns the seconds of the steps among it."""
        found: list[float] = []
        deadline = time.monotonic() + wait_s
        while self.pending:
            item = self.pending[0]
            if isinstance(item, dict):
                self.lines.write(json.dumps(item) + "\n")
            elif not self.passed(item):
                if not wait_s or time.monotonic() > deadline:
                    break
                time.sleep(0.001)
                continue
            elif isinstance(item, Step):
                found.append(self.write_step(item))
            else:
                self.write_block(item)
            self.pending.popleft()
        return found

    def passed(self, item: Union[Step, Block]) -> bool:
        """Whether the GPU has done it, and counted what was in it."""
        batches = item.batches if isinstance(item, Step) else []
        return self.clock.ready(item.end) and all(batch is None or batch.ready() for batch in batches)

    def write_step(self, step: Step) -> float:
        seconds: float = self.clock.between(step.start, step.end)
        compute = min(seconds, self.clock.between(step.begin, step.end))
        self.wall += seconds
        self.first_end = self.first_end or self.wall
        self.steps += 1
        self.micro += len(step.batches)
        counts = self.add_up(step.batches)
        times = {"s": round(seconds, 7), "compute_s": round(compute, 7), "wait_s": round(seconds - compute, 7)}
        line = {"step": step.number, "t": round(self.wall, 6), **times, **counts, "micro": len(step.batches)}
        self.lines.write(json.dumps({**line, "after": step.after} if step.after else line) + "\n")
        return seconds

    def write_block(self, block: Block) -> None:
        seconds = self.clock.between(block.start, block.end)
        if not block.on:  # else its steps have moved the clock on
            self.wall += seconds
        line = {"block": block.number, "on": block.on, "steps": block.steps, "s": round(seconds, 7)}
        self.blocks.write(json.dumps(line) + "\n")

    def add_up(self, batches: list[Optional[Batch]]) -> Mapping[str, Optional[int]]:
        """The numbers of one step. One micro-batch that cannot be counted leaves the step and the total unknown."""
        read = [None if batch is None else batch.read() for batch in batches]
        if None in read:
            self.totals = dict.fromkeys(COUNTS)
            return dict.fromkeys(COUNTS)
        sums = {name: sum(values[i] for values in read if values) for i, name in enumerate(COUNTS)}
        self.totals = {name: None if (total := self.totals[name]) is None else total + sums[name] for name in COUNTS}
        return sums

    def tokens(self) -> dict[str, Optional[int]]:
        """Exact totals of the steps that were measured; unknown once measuring has failed."""
        counts = dict.fromkeys(COUNTS) if self.trouble else self.totals
        return {"processed": counts["tokens"], **{name: counts[name] for name in COUNTS[1:]}, "steps": self.steps,
                "micro": self.micro}  # fmt: skip

    def close(self) -> list[float]:
        """The last lines. A GPU that hangs is waited for, but not for ever."""
        found = self.harvest(wait_s=LONGEST_WAIT_S) or []
        if not self.pending:
            self.say_ended()
        return found

    @careful
    def say_ended(self) -> None:
        """What follows (saving, a last evaluation) makes no steps, and nobody must wait for some."""
        self.lines.write(json.dumps({"ended": round(time.time(), 6)}) + "\n")
