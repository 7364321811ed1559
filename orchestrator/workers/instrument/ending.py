"""Ends a training early, on all ranks at the same step: after a number of steps, or once the step time is known well enough.

Every rank knows the largest number of steps. Every LOOK_EVERY steps, rank 0 decides from its own steps (`stopping.py`) whether the
step time is known well enough. The other ranks must learn the decision without a collective operation, because such an operation
would wait for the GPUs. So the decision goes from host to host, through the key-value store of the process group. All ranks
obey it LOOK_EVERY steps later.

Each decision is one key, written by compare-and-set. Rank 0 writes its decision. A rank that has waited too long for this decision
writes that training continues. The first writer wins. All ranks, including rank 0, act on the content of the store, so they agree.
Without a store, training is not ended early. If the store keeps failing for a rank, that rank fails: ranks that stop at different
steps would wait for each other until a time-out. The first wait for a silent rank 0 lasts LONGEST_WAIT_S; later waits end at once.

This is a part of the instrument (`instrument.py`). It imports only the standard library.
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
    """Ask the store and return its answer. Ask again if the store fails. Raise the store's error after TRIES tries.

    After such an error, this rank cannot know whether the other ranks stop.
    """
    for _ in range(TRIES - 1):
        try:
            return ask()
        except RuntimeError:  # the base of torch.distributed's errors
            time.sleep(0.1)
    return ask()


class Board:
    """The decisions of a training, in a key-value store of torch.distributed. Each decision is made once, for all ranks."""

    def __init__(self, store: Any) -> None:
        self.store, self.patience_s = store, LONGEST_WAIT_S

    def settle(self, number: int, decision: str) -> str:
        """Write the decision unless the store already has a decision, and return the decision in the store."""
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
    """The object that decides at which step one training ends early.

    `measure` is the content of TUNEBENCH_MEASURE. `stopping` is the rule, if any. `board` is None if this is the only rank.
    """

    def __init__(self, measure: Mapping[str, Any], *, rank: int, stopping: Any, board: Optional[Board]) -> None:
        self.at_most: Optional[int] = measure.get("at_most_steps")
        self.rank, self.stopping, self.board = rank, stopping, board
        self.half_width: Optional[float] = None

    def after(self, step: int, seconds: Sequence[float]) -> Optional[dict[str, Any]]:
        """Return the reason to end training with step number `step`, or None to continue.

        `seconds` are the step times read since the last call.
        """
        enough = self.stopping is not None and self.ask(step, seconds)
        if self.at_most is not None and step >= self.at_most:
            return {"why": "at_most_steps", "half_width": self.half_width}
        return {"why": "within", "half_width": self.half_width} if enough else None

    def ask(self, step: int, seconds: Sequence[float]) -> bool:
        """Return whether to end training at this step because the step time is known well enough. All ranks get the same answer."""
        for value in seconds:
            self.stopping.add(value)
        if step % LOOK_EVERY:
            return False
        enough = False
        if self.board is None:
            enough, self.half_width = self.verdict()
        elif step >= 2 * LOOK_EVERY:
            enough, self.half_width = json.loads(self.board.read(step - LOOK_EVERY))
        if self.board is not None and self.rank == 0:
            self.board.settle(step, json.dumps(self.verdict()))
        return enough is True

    def verdict(self) -> tuple[bool, Optional[float]]:
        """Return the rule's verdict. If the rule raises an error, there is no verdict, and training continues."""
        try:
            enough, half_width = self.stopping.verdict()
        except Exception:
            return False, None
        return bool(enough), half_width


def build(measure: Mapping[str, Any], *, rank: int, world_size: int, load: Callable[[str], Any]) -> Ending:
    """Return the object that decides at which step the new training ends. `load("stopping")` returns the rule's module."""
    number = next(trainings)  # the same on all ranks: each training has its own keys
    store = default_store() if world_size > 1 else None
    if not measure.get("within") or (world_size > 1 and store is None):
        return Ending(measure, rank=rank, stopping=None, board=None)
    steps = measure.get("discard_steps"), measure.get("at_least_steps")
    rule = load("stopping").Stopping(*steps, measure["within"], measure.get("at_least_s") or 0.0)
    board = store and Board(sys.modules["torch"].distributed.PrefixStore(f"tunebench/{number}", store))
    return Ending(measure, rank=rank, stopping=rule, board=board)


def for_steps_done(metrics: Mapping[str, Any], *, done: int, planned: int) -> dict[str, Any]:
    """Return the Trainer's metrics of a training that ended early, with corrected speeds.

    Most versions of transformers divide the planned work by the time of the work done. The reported steps per second show
    whether the installed version does so. If it does, the speed in tokens is left out: the Trainer does not report the tokens
    of the steps done.
    """
    claimed = (metrics.get("train_steps_per_second") or 0.0) * (metrics.get("train_runtime") or 0.0)
    if abs(claimed - done) <= abs(claimed - planned):
        return dict(metrics)
    share = {name: done / planned for name in ("train_samples_per_second", "train_steps_per_second")}
    kept = {name: value for name, value in metrics.items() if name != "train_tokens_per_second"}
    return {name: value * share[name] if name in share and value else value for name, value in kept.items()}


def default_store() -> Any:
    """Return the key-value store of the process group, or None."""
    try:
        return sys.modules["torch"].distributed.distributed_c10d._get_default_store()
    except (AttributeError, KeyError, RuntimeError, ValueError):
        return None
