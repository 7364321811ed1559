"""Ends a training before its last step, on all ranks at the same one: after so many steps, or once enough is known.

So many steps is a number that every rank has; nothing need be said. Whether enough is known rank 0 decides from its own
steps (`stopping.py`), every LOOK_EVERY steps, and the others have to hear of it without a collective, which would have to
wait for the GPUs: the decision goes through the key-value store that the process group was set up with, host to host,
and is obeyed LOOK_EVERY steps later, when it has long been there.

Each decision is one key, written by compare-and-set: rank 0 writes what it decided, and a rank that has waited for it
too long writes that training goes on. Whoever comes first is right, and all ranks, rank 0 too, act on what the store
holds. So they agree. Where there is no store, training goes on as it would have; a store that keeps failing for one rank
ends that rank, since ranks that stop at different steps would wait for each other until a time-out.
Only the first wait is as long as LONGEST_WAIT_S, for a rank 0 that is silent once.

A part of the instrument (`instrument.py`). It imports nothing but the standard library.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

LOOK_EVERY = 10
LONGEST_WAIT_S = 30.0
TRIES = 20
GO_ON = json.dumps([False, None])

trainings = itertools.count()


def patiently(ask: Callable[[], Any]) -> Any:
    """What the store says, though it fails a few times. One that keeps failing ends this rank: it cannot know whether the
    others stop, and would wait for them in vain."""
    for _ in range(TRIES - 1):
        try:
            return ask()
        except RuntimeError:  # torch.distributed's errors are
            time.sleep(0.1)
    return ask()


class Board:
    """Decisions in a store of torch.distributed, each for all ranks and made once."""

    def __init__(self, store: Any) -> None:
        self.store, self.patience_s = store, LONGEST_WAIT_S

    def settle(self, number: int, decision: str) -> str:
        """Writes the decision unless one is there; returns the one that holds."""
        held = patiently(lambda: self.store.compare_set(str(number), "", decision))
        return held.decode() if isinstance(held, bytes) else str(held)

    def read(self, number: int) -> str:
        deadline = time.monotonic() + self.patience_s
        while not patiently(lambda: self.store.check([str(number)])):
            if time.monotonic() >= deadline:
                self.patience_s = 0.0
                return self.settle(number, GO_ON)
            time.sleep(0.005)
        return self.settle(number, GO_ON)


class Ending:
    """When one training is to end early; `measure` is what TUNEBENCH_MEASURE says, `stopping` the rule of rank 0."""

    def __init__(
        self, measure: Mapping[str, Any], *, rank: int, stopping: Any, board: Optional[Board], alone: bool
    ) -> None:
        self.at_most: Optional[int] = measure.get("at_most_steps")
        self.rank, self.stopping, self.board, self.alone = rank, stopping, board, alone
        self.half_width: Optional[float] = None

    def after(self, step: int, seconds: Sequence[float]) -> Optional[dict[str, Any]]:
        """Why training ends with this step, its `step`th, or None; `seconds` are step times that became known."""
        enough = False
        if self.stopping is not None:
            enough = self.ask(step, seconds)
        if self.at_most is not None and step >= self.at_most:
            return {"why": "at_most_steps", "half_width": self.half_width}
        return {"why": "within", "half_width": self.half_width} if enough else None

    def ask(self, step: int, seconds: Sequence[float]) -> bool:
        """Whether enough is known, by the decision that is to be obeyed with this step."""
        for value in seconds:
            self.stopping.add(value)
        if step % LOOK_EVERY:
            return False
        if self.alone:
            enough, self.half_width = self.verdict()
        elif self.board is None:
            return False
        else:
            enough, self.half_width = self.obeyed(self.board, step)
            if self.rank == 0:
                self.board.settle(step, json.dumps(self.verdict()))
        return bool(enough)

    def verdict(self) -> tuple[bool, Optional[float]]:
        """What the rule says; one that fails has decided nothing, and the training is not to suffer."""
        try:
            enough, half_width = self.stopping.verdict()
        except Exception:
            return False, None
        return bool(enough), half_width

    def obeyed(self, board: Board, step: int) -> tuple[bool, Optional[float]]:
        if step < 2 * LOOK_EVERY:
            return False, None
        enough, half_width = json.loads(board.read(step - LOOK_EVERY))
        return enough is True, half_width


def build(measure: Mapping[str, Any], *, rank: int, world_size: int, load: Callable[[str], Any]) -> Ending:
    """The ending of the training that begins now; `load("stopping")` gives the module with the rule."""
    number = next(trainings)  # alike on all ranks: the keys of one training are not those of the next
    if not measure.get("within"):
        return Ending(measure, rank=rank, stopping=None, board=None, alone=world_size == 1)
    rule = load("stopping").Stopping(measure.get("discard_steps"), measure.get("at_least_steps"), measure["within"])
    store = default_store() if world_size > 1 else None
    board = store and Board(sys.modules["torch"].distributed.PrefixStore(f"tunebench/{number}", store))
    return Ending(measure, rank=rank, stopping=rule, board=board, alone=world_size == 1)


def default_store() -> Any:
    """The key-value store that the process group was set up with; None without one."""
    try:
        return sys.modules["torch"].distributed.distributed_c10d._get_default_store()
    except (AttributeError, KeyError, RuntimeError, ValueError):
        return None
