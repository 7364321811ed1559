"""When enough steps were seen: an early stop by the interval of the step time, in plain Python, inside the training process.

The rule: of the steps after the warm-up (declared by `discard_steps`, else the second half of all, in which no warm-up is
looked for either when the run is judged) the medians of 4 batches, 6 from 100 steps on, give a 95 % interval by Student's t.
It is enough when half of it is at most `within` of the median at two looks in a row, the second after a fifth more steps,
and `at_least_steps` are behind the warm-up (20 unless said).

What it costs in truth: who looks again and again until an interval is narrow stops when it is narrow by luck. Two looks that
lie apart tame that and do not end it: the interval of a run that stopped itself holds the truth less often than 95 times in
100. benchmarks/coverage.py simulates how often; docs/method.md has the figures.
"""

from __future__ import annotations

import math
from statistics import median, stdev
from typing import Optional, Sequence, Tuple

AT_LEAST_STEPS = 20
_FEW_STEPS = 100
_T = {4: 3.182446, 6: 2.570582}
"""Batches → half a two-sided 95 % interval in standard errors: Student's t with one degree of freedom less."""


def half_width(seconds: Sequence[float]) -> Optional[float]:
    """Half of the median's 95 % interval as a share of it; None for too few steps."""
    count = 4 if len(seconds) < _FEW_STEPS else 6
    length = len(seconds) // count
    if length < 2:
        return None
    start = len(seconds) - count * length
    medians = [median(seconds[at : at + length]) for at in range(start, len(seconds), length)]
    return _T[count] * stdev(medians) / math.sqrt(count) / median(seconds)


class Stopping:
    """Fed with the time of each step; says when the steady state is known well enough."""

    def __init__(self, discard_steps: Optional[int], at_least_steps: Optional[int], within: float) -> None:
        self.discard_steps, self.within = discard_steps, within
        self.at_least_steps = at_least_steps or AT_LEAST_STEPS
        self.seconds: list[float] = []
        self.next_look = self.at_least_steps
        self.narrow_looks = 0
        self.width: Optional[float] = None

    def add(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def verdict(self) -> Tuple[bool, Optional[float]]:
        """Whether it is enough, and half the interval's width as a share of the median at the last look (None: none yet)."""
        cut = len(self.seconds) // 2 if self.discard_steps is None else self.discard_steps
        steady = self.seconds[cut:]
        if len(steady) >= self.next_look:
            self.next_look = math.ceil(1.2 * len(steady))
            self.width = half_width(steady)
            narrow = self.width is not None and self.width <= self.within
            self.narrow_looks = self.narrow_looks + 1 if narrow else 0
        return self.narrow_looks >= 2, self.width
