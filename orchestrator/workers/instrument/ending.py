"""Ends a training early, on all ranks at the same step: after a number of steps, or once the step time is known well enough.

Every rank knows the largest number of steps. Every LOOK_EVERY steps, rank 0 decides from its own steps (`Stopping`) whether the
step time is known well enough. The other ranks must learn the decision without a collective operation, because such an operation
would wait for the GPUs. So the decision goes from host to host, through the key-value store of the process group. All ranks
obey it LOOK_EVERY steps later.

Each decision is one key, written by compare-and-set. Rank 0 writes its decision. A rank that has waited too long for this decision
writes that training continues. The first writer wins. All ranks, including rank 0, act on the content of the store, so they agree.
Without a store, training is not ended early. If the store keeps failing for a rank, that rank fails: ranks that stop at different
steps would wait for each other until a time-out. The first wait for a silent rank 0 lasts LONGEST_WAIT_S; later waits end at once.

The rule of `Stopping` uses the steps after the warm-up. These are the steps after the first `discard_steps` if that is set,
else the second half of all steps. The medians of 4 batches of steps (6 batches from 100 steps on) give a 95 % interval by
Student's t. Training ends when half the interval's width, divided by the median, is at most `within` at two checks in a row.
The second check comes after 20 % more steps. At least `at_least_steps` steps (default 20) must follow the warm-up, and all
steps must have taken `at_least_s` seconds: a GPU may need minutes to reach its final temperature, and no rule sees in the first
minute that the steps get slower.

The cost: the rule checks again and again, so training may end at a check where the interval is narrow by chance. Two checks in a
row reduce this error but do not remove it. So the interval of a run that ended early contains the true value in fewer than 95 of
100 cases. benchmarks/coverage.py simulates this share; docs/method.md has the figures.

This is a part of the instrument (`instrument.py`). It imports only the standard library.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any, Optional

LOOK_EVERY = 10
LONGEST_WAIT_S = 30.0
TRIES = 20
GO_ON = json.dumps([False, None])
AT_LEAST_STEPS = 20
_FEW_STEPS = 100
# Number of batches → half the width of a two-sided 95 % interval in standard errors, by Student's t.
_T = {4: 3.182446, 6: 2.570582}

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


def half_width(seconds: Sequence[float]) -> Optional[float]:
    """Return half the width of the median's 95 % interval, as a share of the median; None if there is no interval.

    `measure/steady_state/median_step.py` has the same rules and explains them. A test compares the results.
    """
    count = 4 if len(seconds) < _FEW_STEPS else 6
    length = len(seconds) // count
    if length < 2:
        return None
    start = len(seconds) - count * length
    medians = [median(seconds[at : at + length]) for at in range(start, len(seconds), length)]
    half = _T[count] * stdev(medians) / math.sqrt(count) * _widening(seconds, count, length)
    ordered, rank = sorted(seconds), max(0, int(len(seconds) / 2 - 0.98 * math.sqrt(len(seconds))))
    centre, tick = median(ordered), _half_tick(ordered)
    low, high = min(centre - half, ordered[rank]) - tick, max(centre + half, ordered[-1 - rank]) + tick
    return (high - low) / 2 / centre if low > 0 else None


def _half_tick(ordered: Sequence[float]) -> float:
    """Return half of a coarse clock's tick, 0 for a fine clock, and infinity if all times are equal."""
    centre = median(ordered)
    first, end = bisect_left(ordered, centre * (1 - 1e-5)), bisect_right(ordered, centre * (1 + 1e-5))
    if end - first <= math.sqrt(len(ordered)):
        return 0.0
    below = centre - ordered[first - 1] if first else math.inf
    above = ordered[end] - centre if end < len(ordered) else math.inf
    return min(below, above) / 2 if min(below, above) > 1e-4 * centre else 0.0


def _widening(seconds: Sequence[float], count: int, length: int) -> float:
    """Return the factor for the effect of the correlation of successive steps on the interval."""
    recent = seconds[-2000:]
    middle, n = median(recent), len(recent)
    far = 3 * max(1.4826 * median([abs(value - middle) for value in recent]), 0.001 * abs(middle), 1e-12)
    clipped = [max(-far, min(far, value - middle)) for value in recent]
    mean = fmean(clipped)
    centred = [value - mean for value in clipped]
    squares = math.fsum([value * value for value in centred])
    r = math.fsum([centred[at] * centred[at + 1] for at in range(n - 1)]) / squares if squares > 0 else -1.0
    r = min(r + (1 + 3 * r) / n + 0.9 / math.sqrt(n), 0.98)
    if r <= 0:
        return 1.0
    batch, whole = [
        ((1 + r) / (1 - r) - 2 * r * (1 - r**steps) / (steps * (1 - r) ** 2)) / steps
        for steps in (length, count * length)
    ]
    return math.sqrt((count - 1) * whole / (batch - whole))


class Stopping:
    """The rule that the module's docstring describes. It gets the time of each step."""

    def __init__(
        self, discard_steps: Optional[int], at_least_steps: Optional[int], within: float, at_least_s: float = 0.0
    ) -> None:
        self.discard_steps, self.within, self.at_least_s = discard_steps, within, at_least_s
        self.at_least_steps = at_least_steps or AT_LEAST_STEPS
        self.seconds: list[float] = []
        self.next_look = self.at_least_steps
        self.narrow_looks = 0
        self.width: Optional[float] = None

    def add(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def verdict(self) -> tuple[bool, Optional[float]]:
        """Return two values: whether the step time is known well enough, and the last result of `half_width`, if any."""
        cut = len(self.seconds) // 2 if self.discard_steps is None else self.discard_steps
        steady = self.seconds[cut:]
        if len(steady) >= self.next_look:
            self.next_look = math.ceil(1.2 * len(steady))
            self.width = half_width(steady)
            narrow = self.width is not None and self.width <= self.within
            self.narrow_looks = self.narrow_looks + 1 if narrow else 0
        return self.narrow_looks >= 2 and math.fsum(self.seconds) >= self.at_least_s, self.width


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


def build(measure: Mapping[str, Any], *, rank: int, world_size: int) -> Ending:
    """Return the object that decides at which step the new training ends."""
    number = next(trainings)  # the same on all ranks: each training has its own keys
    store = default_store() if world_size > 1 else None
    if not measure.get("within") or (world_size > 1 and store is None):
        return Ending(measure, rank=rank, stopping=None, board=None)
    steps = measure.get("discard_steps"), measure.get("at_least_steps")
    rule = Stopping(*steps, measure["within"], measure.get("at_least_s") or 0.0)
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
