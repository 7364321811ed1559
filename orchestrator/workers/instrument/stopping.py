"""Decides whether the step time is known well enough to end a training early. Plain Python, inside the training process.

The rule uses the steps after the warm-up. These are the steps after the first `discard_steps` if that is set, else the second
half of all steps. The medians of 4 batches of steps (6 batches from 100 steps on) give a 95 % interval by Student's t. Training
ends when half the interval's width, divided by the median, is at most `within` at two checks in a row. The second check comes after
20 % more steps. At least `at_least_steps` steps (default 20) must follow the warm-up, and all steps must have taken `at_least_s`
seconds: a GPU may need minutes to reach its final temperature, and no rule sees in the first minute that the steps get slower.

The cost: the rule checks again and again, so training may end at a check where the interval is narrow by chance. Two checks in a
row reduce this error but do not remove it. So the interval of a run that ended early contains the true value in fewer than 95 of
100 cases. benchmarks/coverage.py simulates this share; docs/method.md has the figures.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from statistics import fmean, median, stdev
from typing import Optional, Sequence, Tuple

AT_LEAST_STEPS = 20
_FEW_STEPS = 100
# Number of batches → half the width of a two-sided 95 % interval in standard errors, by Student's t.
_T = {4: 3.182446, 6: 2.570582}


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
    """The rule that the docstring above describes. It gets the time of each step."""

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

    def verdict(self) -> Tuple[bool, Optional[float]]:
        """Return two values: whether the step time is known well enough, and the last result of `half_width`, if any."""
        cut = len(self.seconds) // 2 if self.discard_steps is None else self.discard_steps
        steady = self.seconds[cut:]
        if len(steady) >= self.next_look:
            self.next_look = math.ceil(1.2 * len(steady))
            self.width = half_width(steady)
            narrow = self.width is not None and self.width <= self.within
            self.narrow_looks = self.narrow_looks + 1 if narrow else 0
        return self.narrow_looks >= 2 and math.fsum(self.seconds) >= self.at_least_s, self.width
