"""Times the optimizer steps of one training on one rank, and writes a line for each, with what was in it (`counting.py`).

What is measured, and how: a mark of the clock (`clocks.py`: on CUDA the GPU's own) is set where a step begins and where it
ends, and read some steps later, once the GPU has passed it: nothing here ever waits for a GPU. Steps are written several at
once: code that runs once a step finds its caches cold, and takes ten times as long as it does in a row. So the last ten steps
or the last second of them are not written yet while training goes on, or hangs.

A part of the instrument (`instrument.py`). It imports nothing but the standard library.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, Union

LONGEST_WAIT_S = 5.0
FIRST_STEPS, EVERY_STEPS, EVERY_S = 10, 10, 1.0


class Step(NamedTuple):
    """A step that has ended on the host: from the end of the one before, over its begin, to its end; `batches` of `counting`."""

    number: int
    start: Any
    begin: Any
    end: Any
    batches: list[Any]
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
    """The steps of one training. `counting` is the module; `toggle`: for an overhead study, measure every other block of so
    many steps only."""

    def __init__(self, folder: str, *, rank: int, clock: Any, counting: Any, toggle: Optional[int] = None) -> None:
        self.clock, self.names, self.toggle = clock, counting.COUNTS, toggle
        self.trouble: Optional[str] = None
        self.on, self.block, self.in_block = True, 0, 0
        self.counter = counting.Counter()
        self.batches: list[Any] = []
        self.after: list[str] = []
        self.pending: deque[Union[Step, Block, dict[str, Any]]] = deque()
        self.totals: dict[str, Optional[int]] = dict.fromkeys(self.names, 0)
        self.steps = self.micro = self.ended = 0
        self.harvested = time.monotonic()
        self.first_end: Optional[float] = None
        self.start(folder, rank)

    @careful
    def start(self, folder: str, rank: int) -> None:
        self.lines = lines(folder, f"steps-rank{rank}.jsonl")
        self.blocks: Any = lines(folder, f"blocks-rank{rank}.jsonl") if self.toggle else None
        self.last, self.wall = self.clock.anchor()
        self.edge, self.begun = self.last, None

    @careful
    def count(self, batch: Any) -> None:
        """A micro-batch has been trained on as far as the host knows; it is what `counting` has kept of it."""
        if self.on:
            self.batches.append(self.counter.count(batch))

    @careful
    def begin(self) -> None:
        if self.on:
            self.begun = self.clock.mark()

    @careful
    def end(self, number: int) -> None:
        """A step has ended as far as the host knows."""
        self.ended += 1
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

    def due(self) -> bool:
        """Whether to harvest within this step: each of the first ones, then every tenth, and what is a second old.

        A block's end is not put off: who follows the blocks of an overhead study acts on it.
        """
        few = self.ended <= FIRST_STEPS or self.ended % EVERY_STEPS == EVERY_STEPS - 1
        edge = self.toggle is not None and any(isinstance(item, Block) for item in self.pending)
        return few or edge or time.monotonic() - self.harvested >= EVERY_S

    @careful
    def harvest(self, *, wait_s: float = 0.0) -> list[float]:
        """Writes what the GPU has done, in order; returns the seconds of the steps among it."""
        found: list[float] = []
        self.harvested = time.monotonic()
        deadline = self.harvested + wait_s
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

    def add_up(self, batches: list[Any]) -> Mapping[str, Optional[int]]:
        """The numbers of one step. One micro-batch that cannot be counted leaves the step and the total unknown, and so does a
        step of which none was seen."""
        read = [None if batch is None else batch.read() for batch in batches]
        if not read or None in read:
            self.totals = dict.fromkeys(self.names)
            return dict.fromkeys(self.names)
        sums = {name: sum(values[i] for values in read if values) for i, name in enumerate(self.names)}
        self.totals = {
            name: None if (total := self.totals[name]) is None else total + sums[name] for name in self.names
        }
        return sums

    def tokens(self) -> dict[str, Optional[int]]:
        """Exact totals of the steps that were measured; unknown once measuring has failed."""
        counts = dict.fromkeys(self.names) if self.trouble else self.totals
        return {"processed": counts["tokens"], **{name: counts[name] for name in self.names[1:]}, "steps": self.steps,
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
