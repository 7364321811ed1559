"""Times the optimizer steps of a training on one rank. Writes a line for each step, with the step's tokens (`counting.py`).

The line also has the parts of the step (`phases.py`). If torch compiled in a step, the line says so (`compilations.py`).

What is measured, and how: a mark of the clock (`clocks.py`: on CUDA the GPU's clock) is set where a step begins and where it ends.
A mark is read some steps later, once the GPU has passed it, so the measurement of a step waits for no GPU. Several steps are
written together, because code that runs once per step finds cold caches and takes ten times as long. So the file may lack the last
ten steps, or the last second, while training continues or hangs.

This is a part of the instrument (`instrument.py`). It imports only the standard library.
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
    """A step that has ended on the host.

    `start` is the end of the previous step. The module `counting` makes `batches`, `compilations` makes `compiled`, and
    `phases` makes `division`.
    """

    number: int
    start: Any
    begin: Any
    end: Any
    batches: list[Any]
    after: list[str]
    compiled: dict[str, Any]
    division: Any


class Block(NamedTuple):
    """A block of steps. Either all of them are measured, or none."""

    number: int
    on: bool
    steps: int
    start: Any
    end: Any


def careful(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that an error in it ends the measuring, but not the training. The error is kept in `trouble`."""

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
    """Open a new file of JSON lines. Each line is flushed, since a process can be killed at any moment."""
    return open(os.path.join(folder, name), "w", encoding="utf-8", buffering=1)


class Meter:
    """The steps of one training. `counting` and `compilations` are the modules of these names.

    `divide` makes the object that divides steps (`phases.Phases`), from the clock and the mark where the training begins.
    `toggle` is for an overhead study: only every other block of `toggle` steps is measured.
    """

    def __init__(
        self,
        folder: str,
        *,
        rank: int,
        clock: Any,
        counting: Any,
        compilations: Any,
        divide: Callable[[Any, Any], Any],
        toggle: Optional[int] = None,
    ) -> None:
        self.clock, self.names, self.toggle, self.divide = clock, counting.COUNTS, toggle, divide
        self.trouble: Optional[str] = None
        self.undivided: Optional[str] = None
        self.on, self.block, self.in_block = True, 0, 0
        self.counter, self.compilations = counting.Counter(), compilations.Compilations()
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
        try:
            self.phases = self.divide(self.clock, self.last)
        except Exception as error:
            self.undivided = str(error)

    def dividing(self, method: str, *args: Any) -> Any:
        """Call a method of `phases`. After an error, steps are not divided any more. Their times are still measured."""
        if self.undivided is None:
            try:
                return getattr(self.phases, method)(*args)
            except Exception as error:
                self.undivided = f"{method}: {type(error).__name__}: {error}"
        return None

    def enter(self, part: str, loss: Any = None) -> None:
        """Begin a part of a step. `loss` is the loss of a backward pass that begins."""
        if self.on and self.trouble is None:
            self.dividing("enter", part)
            if loss is not None:
                self.dividing("before_backward", loss)

    @careful
    def count(self, batch: Any, inputs: Any = None) -> None:
        """Count the micro-batch `inputs` after its training step. `batch` is the result of `counting.kept` for it."""
        if self.on:
            self.batches.append(self.counter.count(batch))
            self.compilations.batch(inputs)

    @careful
    def begin(self) -> None:
        if self.on:
            self.begun = self.clock.mark()
            self.dividing("cut", "begun", self.begun)
            self.compilations.begin()

    @careful
    def end(self, number: int) -> None:
        """Record the end of a step on the host."""
        self.ended += 1
        self.in_block += 1
        edge = self.in_block == self.toggle
        mark = self.clock.mark() if self.on or edge else None
        if self.on:
            begun = self.last if self.begun is None else self.begun
            compiled = self.compilations.end(first=self.ended == 1)
            division = self.dividing("take", mark)
            self.pending.append(Step(number, self.last, begun, mark, self.batches, self.after, compiled, division))
            self.last = mark
        self.begun, self.batches, self.after = None, [], []
        if edge:
            self.pending.append(Block(self.block, self.on, self.in_block, self.edge, mark))
            self.edge = self.last = mark
            self.block, self.in_block, self.on = self.block + 1, 0, not self.on

    def happened(self, what: str) -> None:
        """Record an evaluation or a save. Its time is part of the next step."""
        if what not in self.after:
            self.after.append(what)

    @careful
    def loss(self, number: int, value: Any) -> None:
        if self.on:
            self.pending.append({"step": number, "t": time.time(), "loss": value})

    def due(self) -> bool:
        """Return whether to call `harvest` in this step: in each of the first steps, then in every tenth step, or after a second.

        A finished block is always due: the program that makes an overhead study acts on each finished block.
        """
        few = self.ended <= FIRST_STEPS or self.ended % EVERY_STEPS == EVERY_STEPS - 1
        edge = self.toggle is not None and any(isinstance(item, Block) for item in self.pending)
        return few or edge or time.monotonic() - self.harvested >= EVERY_S

    @careful
    def harvest(self, *, wait_s: float = 0.0) -> list[float]:
        """Write the steps that the GPU has finished, in order, and return their seconds."""
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
        """Return whether the GPU has finished this step or block. The counts of a step's batches must have arrived, too."""
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
        parts = step.division and self.dividing("read", step.start, step.division)
        line.update({**step.compiled, **({"parts": parts} if parts else {})})
        self.lines.write(json.dumps({**line, "after": step.after} if step.after else line) + "\n")
        return seconds

    def write_block(self, block: Block) -> None:
        seconds = self.clock.between(block.start, block.end)
        if not block.on:  # the steps of a measured block have already added their time
            self.wall += seconds
        line = {"block": block.number, "on": block.on, "steps": block.steps, "s": round(seconds, 7)}
        self.blocks.write(json.dumps(line) + "\n")

    def add_up(self, batches: list[Any]) -> Mapping[str, Optional[int]]:
        """Return the counts of one step.

        The counts and the totals are unknown if a micro-batch cannot be counted, or if no micro-batch was seen. A single count is
        unknown if a micro-batch does not have it.
        """
        read = [None if batch is None else batch.read() for batch in batches]
        if not read or None in read:
            self.totals = dict.fromkeys(self.names)
            return dict.fromkeys(self.names)
        columns = zip(self.names, zip(*read))  # noqa: B905 (Python 3.9)
        sums = {name: None if None in values else sum(values) for name, values in columns}
        for name, value in sums.items():
            total = self.totals[name]
            self.totals[name] = None if total is None or value is None else total + value
        return sums

    def tokens(self) -> dict[str, Optional[int]]:
        """Return the exact totals of the measured steps. If measuring has failed, the counts of tokens are None."""
        counts = dict.fromkeys(self.names) if self.trouble else self.totals
        return {"processed": counts["tokens"], **{name: counts[name] for name in self.names[1:]}, "steps": self.steps,
                "micro": self.micro}  # fmt: skip

    @careful
    def close(self) -> None:
        """Write the last lines, and a line that ends the file. Wait only a limited time for a GPU that hangs."""
        self.harvest(wait_s=LONGEST_WAIT_S)
        if not self.pending:  # training has ended, though a save or a last evaluation may follow
            self.lines.write(json.dumps({"ended": round(time.time(), 6)}) + "\n")
