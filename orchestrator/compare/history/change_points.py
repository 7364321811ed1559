"""Find the steps in a series of campaign values, by an L1 piecewise-constant fit. Pure.

The fit minimises the sum of absolute deviations. Each deviation is divided by the noise of its value. With L1, one odd campaign
does not shift a level. For each number of steps, dynamic programming over all segments finds the best places for the steps. An
information criterion chooses the number of steps. The ideas are from asv; the code is not.

The fit does not find a step at the last campaign (`MIN_LENGTH`), or changes that are small compared with the noise. A drift becomes
a few steps. benchmarks/change_points.py simulates white noise of width 1:

- Series of 4 to 40 campaigns without a step show a false step in less than 3 % of the cases. If successive campaigns are correlated
  (AR(1), 0.3), these series show a false step in 6 % of the cases.
- A step of height 3 in the middle is found in 88 % of the series of 16 campaigns, and in 99 % of the series of 24.
- A step of height 5 is found in 95 % of the series of 8 campaigns, nearly always within one campaign of its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

# The fewest campaigns of a level, because a single value may be an outlier. `compare` can judge a change at the last campaign.
MIN_LENGTH = 2

# The fewest campaigns in which a step can be found.
FEWEST = 2 * MIN_LENGTH

MOST_STEPS = 12
# The penalty of a step is this factor times the logarithm of the number of values. It is twice Schwarz's penalty for the two
# parameters of a step (place and level), since the place is searched among all values, and successive campaigns are correlated.
PENALTY = 2.0

# The mean absolute deviation of a normal distribution, in standard deviations.
_MEAN_DEVIATION = math.sqrt(2 / math.pi)


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A level of a series. The values with indices from `start` to `stop` − 1 are near `value`."""

    start: int
    stop: int
    value: float


def levels(values: Sequence[float], *, errors: Sequence[float]) -> tuple[Level, ...]:
    """Return the levels of a series, in order. A series without a step has one level. An empty series has no level.

    `errors` are lower bounds of the standard errors of the values. Each deviation is divided by its error. So the fit never assumes
    less noise than these errors, even if a few values are nearly equal. Raise ValueError if an error is missing or not above 0.
    """
    if len(errors) != len(values) or not all(error > 0 for error in errors):
        raise ValueError("each value needs a standard error above 0")
    if not values:
        return ()
    weights = [1 / error for error in errors]
    costs = [list(_costs(values[start:], weights[start:])) for start in range(len(values))]
    fits = list(_fits(costs))
    best = min(range(len(fits)), key=lambda steps: _criterion(fits[steps][0], steps, len(values)))
    bounds = [0, *fits[best][1], len(values)]
    return tuple(
        Level(start=start, stop=stop, value=weighted_median(values[start:stop], weights[start:stop]))
        for start, stop in pairwise(bounds)
    )


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted median: half of the weight is below it, and half is above it. Raise ValueError if there is no value."""
    if not values:
        raise ValueError("the median needs at least one value")
    ordered = sorted(zip(values, weights, strict=True))
    half, below = math.fsum(weights) / 2, 0.0
    for at, (value, weight) in enumerate(ordered):
        below += weight
        if math.isclose(below, half, rel_tol=1e-12) and at + 1 < len(ordered):
            return (value + ordered[at + 1][0]) / 2
        if below > half:
            return value
    return ordered[-1][0]


def _criterion(deviations: float, steps: int, count: int) -> float:
    """Return the information criterion of a fit: the penalty of its steps plus the logarithm of its scale. Smaller is better.

    The scale is the sum of deviations ÷ the degrees of freedom. Without the division, more levels would always seem better. The
    scale is never smaller than the scale of the errors.
    """
    free = count - 1 - 2 * steps
    if free <= 0:
        return math.inf if steps else 0.0
    return count * math.log(max(deviations / free, _MEAN_DEVIATION)) + PENALTY * steps * math.log(count)


def _fits(costs: Sequence[Sequence[float]]) -> Iterator[tuple[float, list[int]]]:
    """Yield the smallest sum of deviations for 0, 1, 2… steps, and the indices at which the new levels begin."""
    count = len(costs)
    best = [math.inf if length < min(MIN_LENGTH, count) else costs[0][length - 1] for length in range(1, count + 1)]
    yield best[-1], []
    came_from: list[list[int]] = []
    for steps in range(1, min(MOST_STEPS, count // MIN_LENGTH - 1) + 1):
        best, origins = _one_more(best, costs, first=steps * MIN_LENGTH)
        came_from.append(origins)
        places, end = [0] * steps, count
        for at in reversed(range(steps)):
            end = places[at] = came_from[at][end - 1]
        yield best[-1], places


def _one_more(best: Sequence[float], costs: Sequence[Sequence[float]], *, first: int) -> tuple[list[float], list[int]]:
    """Add a level. For the first 1, 2… values, return the smallest sums, and the indices at which the last level begins."""
    count = len(costs)
    sums, origins = [math.inf] * count, [0] * count
    for end in range(first + MIN_LENGTH, count + 1):
        sums[end - 1], origins[end - 1] = min(
            (best[start - 1] + costs[start][end - start - 1], start) for start in range(first, end - MIN_LENGTH + 1)
        )
    return sums, origins


def _costs(values: Sequence[float], weights: Sequence[float]) -> Iterator[float]:
    """Yield the weighted sum of absolute deviations from the median, for the first one, two, three… values.

    The values so far are in two heaps. The top of the lower heap is the weighted median; the upper heap has the values above it.
    Running sums make each further value cheap.
    """
    lower: list[tuple[float, float]] = []
    upper: list[tuple[float, float]] = []
    below = above = sum_below = sum_above = 0.0
    centre = values[0]  # centred sums keep digits that sums of large, similar numbers would lose
    for value, weight in zip(values, weights, strict=True):
        shifted = value - centre
        if lower and shifted > -lower[0][0]:
            heappush(upper, (shifted, weight))
            above, sum_above = above + weight, sum_above + weight * shifted
        else:
            heappush(lower, (-shifted, weight))
            below, sum_below = below + weight, sum_below + weight * shifted
        while below < above:
            moved, moved_weight = heappop(upper)
            heappush(lower, (-moved, moved_weight))
            above, sum_above = above - moved_weight, sum_above - moved_weight * moved
            below, sum_below = below + moved_weight, sum_below + moved_weight * moved
        while below - lower[0][1] >= above + lower[0][1]:
            negative, moved_weight = heappop(lower)
            heappush(upper, (-negative, moved_weight))
            below, sum_below = below - moved_weight, sum_below + moved_weight * negative
            above, sum_above = above + moved_weight, sum_above - moved_weight * negative
        middle = -lower[0][0]
        yield max(0.0, sum_above - middle * above + middle * below - sum_below)
