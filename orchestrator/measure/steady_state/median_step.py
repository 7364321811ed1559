"""Computes the interval of the median step within one run. Pure.

Successive steps are similar, so single steps are not an independent sample. The run is cut into a few long batches, and the
medians of the batches are the sample of a Student's t interval. Three things make this interval wider:

- In a short run, batches are similar, too. The correlation of successive steps is estimated, and the interval is widened as for an
  AR(1) series with this correlation. An estimate from few steps is too low, so its bias and 0.9 standard errors are added.
- If half of the steps are fast and half are slow, every time between them is a median, and a single step decides which time is
  found. So the interval includes the interval that the ranks of independent steps give.
- If a clock is coarse, many steps seem to take the same time. Then half a tick of the clock is added to both ends. If all steps
  seem to take the same time, the tick is unknown, and there is no interval.

`workers/instrument/stopping.py` computes the same interval inside the training process.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median, stdev

from orchestrator.measure.intervals import Interval, t_quantile
from orchestrator.measure.steady_state.levels import spread

# Fewer than 100 steps make 4 batches, more steps make 6. There are few batches, because only long batches are nearly independent.
# `python benchmarks/coverage.py` prints how often an interval contains the true median.
FEW_STEPS, FEW_BATCHES, MANY_BATCHES = 100, 4, 6
# The correlation is estimated from at most this many steps. Distances from the median are clipped at 3 units of `spread`.
_RECENT, _FAR = 2000, 3
_STANDARD_ERRORS, _HIGHEST = 0.9, 0.98
# Half of the 0.975 quantile of the normal distribution: the rank interval reaches so many √n ranks from the median.
_RANKS = 0.98
# Times that differ by less than the first share of the median are equal. A gap below the second share is not a tick.
_EQUAL, _TICK = 1e-5, 1e-4


def median_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the median of a stationary series.

    Steps that are left over at the start belong to no batch. Return None if a batch has fewer than two values, if all values are
    equal, or if the interval would reach below zero.
    """
    count = FEW_BATCHES if len(values) < FEW_STEPS else MANY_BATCHES
    length = len(values) // count
    if length < 2:
        return None
    start = len(values) - count * length
    medians = [median(values[at : at + length]) for at in range(start, len(values), length)]
    half = t_quantile(count - 1) * stdev(medians) / math.sqrt(count) * _widening(values, count, length)
    ordered = sorted(values)
    centre = median(ordered)
    rank = max(0, int(len(ordered) / 2 - _RANKS * math.sqrt(len(ordered))))
    tick = half_tick(ordered)
    low, high = min(centre - half, ordered[rank]) - tick, max(centre + half, ordered[-1 - rank]) + tick
    return Interval(low=low, high=high) if low > 0 else None


def half_tick(ordered: Sequence[float]) -> float:
    """Return half of a coarse clock's tick, 0 for a fine clock, and infinity if all times are equal. The times are sorted.

    A clock is coarse if more than √n of n times are equal to the median, and no other time is near the median.
    """
    centre = median(ordered)
    first = bisect_left(ordered, centre * (1 - _EQUAL))
    end = bisect_right(ordered, centre * (1 + _EQUAL))
    if end - first <= math.sqrt(len(ordered)):
        return 0.0
    below = centre - ordered[first - 1] if first else math.inf
    above = ordered[end] - centre if end < len(ordered) else math.inf
    gap = min(below, above)
    return gap / 2 if gap > _TICK * centre else 0.0


def _widening(values: Sequence[float], count: int, length: int) -> float:
    """Return the factor for the effect of correlation on the interval of `count` batches of `length` steps."""
    r = _correlation(values[-_RECENT:])
    if r <= 0:
        return 1.0
    batch, whole = _variance(r, length), _variance(r, count * length)
    return math.sqrt((count - 1) * whole / (batch - whole))


def _variance(r: float, steps: int) -> float:
    """Return the variance of the mean of so many steps of an AR(1) series. The variance of a single step is 1."""
    return ((1 + r) / (1 - r) - 2 * r * (1 - r**steps) / (steps * (1 - r) ** 2)) / steps


def _correlation(values: Sequence[float]) -> float:
    """Return an estimate of the correlation of successive steps, without its bias, and raised by a part of its error."""
    middle, n = median(values), len(values)
    far = _FAR * spread(values)
    clipped = [max(-far, min(far, value - middle)) for value in values]
    mean = fmean(clipped)
    centred = [value - mean for value in clipped]
    squares = math.fsum(value * value for value in centred)
    if squares <= 0:
        return 0.0
    r = math.fsum(one * other for one, other in pairwise(centred)) / squares
    return min(r + (1 + 3 * r) / n + _STANDARD_ERRORS / math.sqrt(n), _HIGHEST)
