"""Divides a series of step times into levels: where the warm-up ends, and whether the steps after it are at one level. Pure.

Step times are converted to robust z-scores. A score is the distance from the second half's median, in units of 1.4826 × the median
absolute deviation of that half. A unit is at least 0.1 % of the median, even if the deviation is 0. Scores are clipped at 10, so
that a single slow step does not form a level. The levels are segments of the series: it is divided so that the total cost of all
segments is lowest. The cost of a segment is the sum of its scores' absolute deviations from their median, plus a penalty of 3·ln n
for n scores in the series. Each segment has at least 3 steps. A series of over 300 steps is reduced to the medians of up to 300
equal blocks.

Two levels differ if their medians and their means differ by more than 3 % and by more than a few times the noise. Medians mislead
if there are two kinds of steps, such as an epoch's short last step. Means mislead if there are spikes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean, median, pstdev

HIGHER_LEVEL = 0.03
# A step is a spike above this modified z-score: 0.6745 × distance from the median ÷ median absolute deviation.
SPIKE_Z = 14.8
# The same limit in units of `spread`.
SPIKE_UNITS = SPIKE_Z / 0.6745 / 1.4826

_HEAD = 10
# A step of the first half that took more than this many median steps is a compilation, if the second half has no such step.
_COMPILATION = 5
_POINTS, _SHORTEST, _CLIP, _FLOOR = 300, 3, 10.0, 0.001
# The variance of a mean of correlated steps ÷ that of independent steps: (1 + r) ÷ (1 - r) at r = 0.5.
_CORRELATION_FACTOR = 3.0
# The halves of a run must differ by more than 3 times the noise. The odd stretch is chosen from thousands of stretches, so its
# limits are higher: chance helps to choose it. In simulations with 2 % of noise (AR(1), 0.5), chance exceeded them in 2.5 % of the
# runs of 20 and 40 steps, and in under 1 % of the runs of 100 and 300 steps.
_HALVES, _STRETCHES = 3, 3.5
_HIGHER_STRETCH = 0.035
_LEAST_STEPS, _LEAST_SHARE, _BLOCKS = 5, 0.1, 100
# The search clips a block's distance from the median at this many units of `spread`, or at this share of the median.
_FAR, _FAR_SHARE = 3, 0.1


def late_compilation(work: Sequence[float]) -> int:
    """Return the number of the last step that compiled after the head of the run, or 0. `work` has no waits.

    A compiler may compile again at any time. A step of this size in the second half means that such steps belong to the run: a
    stall, a save, or batches that differ. Then no step is a compilation.
    """
    half = len(work) // 2
    if not half:
        return 0
    limit = _COMPILATION * median(work[half:])
    if max(work[half:]) > limit:
        return 0
    return max((index + 1 for index in range(_head(len(work)), half) if work[index] > limit), default=0)


def _head(steps: int) -> int:
    """Return the length of the head of a run. Every spike in the head is warm-up."""
    return min(steps // 2, max(_HEAD, steps // 10))


def warm_up(series: Sequence[float], *, compiled: int = 0) -> int:
    """Return the number of steps before the steady state, at least 1, and at least `compiled`."""
    if len(series) < 2 * _SHORTEST:
        return min(1, len(series))
    tail = series[len(series) // 2 :]
    level, unit = median(tail), spread(tail)
    limit = level + SPIKE_UNITS * unit
    head = range(1, _head(len(series)))
    start = max(compiled, 1 + max((index for index in head if series[index] > limit), default=0))
    length = math.ceil((len(series) - start) / _POINTS)
    blocks = [median(series[at : at + length]) for at in range(start, len(series), length)]
    edges = _segments([max(-_CLIP, min(_CLIP, (value - level) / unit)) for value in blocks])
    higher = [
        end
        for begin, end in pairwise(edges)
        if start + end * length <= len(series) // 2 and median(blocks[begin:end]) > level * (1 + HIGHER_LEVEL)
    ]
    return start + max(higher, default=0) * length


def spread(values: Sequence[float]) -> float:
    """Return a robust standard deviation, at least a thousandth of the median."""
    middle = median(values)
    return max(1.4826 * median(abs(value - middle) for value in values), _FLOOR * abs(middle), 1e-12)


def _segments(scores: Sequence[float]) -> list[int]:
    """Return the edges of the segments with the lowest total cost, from 0 to the number of scores.

    The search takes 0.2 s for 300 scores. The time grows with the square of their number.
    """
    n = len(scores)
    penalty = 3 * math.log(max(n, 2))
    best: list[float] = [0.0, *[math.inf] * n]
    came_from = [0] * (n + 1)
    for start in range(n):
        if math.isinf(best[start]):
            continue
        for end, cost in enumerate(_costs(scores, start), start=start + 1):
            total = best[start] + cost + penalty
            if total < best[end] and end - start >= _SHORTEST:
                best[end], came_from[end] = total, start
    edges = [n]
    while edges[-1] > 0:
        edges.append(came_from[edges[-1]])
    return edges[::-1]


def _costs(scores: Sequence[float], start: int) -> list[float]:
    """Return the cost of a segment from `start` to each later end: the sum of absolute deviations from the segment's median."""
    low: list[float] = []
    high: list[float] = []
    sum_low = sum_high = 0.0
    costs = []
    for score in scores[start:]:
        if low and score > -low[0]:
            heapq.heappush(high, score)
            sum_high += score
        else:
            heapq.heappush(low, -score)
            sum_low += score
        if len(low) > len(high) + 1:
            moved = -heapq.heappop(low)
            heapq.heappush(high, moved)
            sum_low, sum_high = sum_low - moved, sum_high + moved
        elif len(high) > len(low):
            moved = heapq.heappop(high)
            heapq.heappush(low, -moved)
            sum_low, sum_high = sum_low + moved, sum_high - moved
        middle = -low[0]
        costs.append(sum_high - middle * len(high) + middle * len(low) - sum_low)
    return costs


def level_shift(series: Sequence[float]) -> str | None:
    """Return the reason why the step times after the warm-up are not at one level, or None if their halves do not differ."""
    half = len(series) // 2
    if half < _SHORTEST:
        return None
    first, second = series[:half], series[half:]
    noise = min(spread(first), spread(second))
    difference = _difference(second, first, middle=median(series), unit=noise, noises=_HALVES)
    if difference is None:
        return None
    return (
        f"the run is not level after its warm-up: its last {len(second)} steps are {difference} than the {half} before"
    )


def odd_stretch(series: Sequence[float]) -> tuple[int, int, str] | None:
    """Return the stretch of the steady part that differs most from the other steps, if any: its two ends, and its difference.

    A stretch has at least 5 steps and a tenth of all steps, and at most half of them. It may be the rest of the warm-up, or the
    start of another level.
    """
    length = math.ceil(len(series) / _BLOCKS)
    blocks = [median(series[at : at + length]) for at in range(0, len(series), length)]
    middle = median(blocks)
    far = max(_FAR * spread(blocks), _FAR_SHARE * middle)
    ends = _oddest(
        [max(-far, min(far, block - middle)) for block in blocks],
        least=math.ceil(max(_LEAST_STEPS, _LEAST_SHARE * len(series)) / length),
        distance=_HIGHER_STRETCH * middle,
    )
    if ends is None:
        return None
    begin, end = ends[0] * length, min(ends[1] * length, len(series))
    rest = [*series[:begin], *series[end:]]
    inside = series[begin:end]
    levels = [(median(part), part) for part in (inside, rest)]
    unit = max(spread([value - level for level, part in levels for value in part]), _FLOOR * middle)
    difference = _difference(inside, rest, middle=middle, unit=unit, noises=_STRETCHES)
    return None if difference is None else (begin, end, difference)


def _oddest(values: Sequence[float], *, least: int, distance: float) -> tuple[int, int] | None:
    """Return the ends of the stretch of `least` values or more that most clearly is over `distance` from the mean of the rest."""
    sums, n = [0.0, *accumulate(values)], len(values)
    found, highest = None, 0.0
    for begin in range(n - least + 1):
        for end in range(begin + least, min(n, begin + n // 2) + 1):
            inside, outside = end - begin, n - end + begin
            away = sums[end] - sums[begin] - inside / n * sums[n]
            clear = away * away / (inside * outside)
            if clear > highest and abs(away) * n > distance * inside * outside:
                found, highest = (begin, end), clear
    return found


def _difference(
    these: Sequence[float], others: Sequence[float], *, middle: float, unit: float, noises: float
) -> str | None:
    """Return how much slower or faster these steps are than the others; None if the difference may be noise.

    `middle` is the median of all steps, and `unit` is their `spread` within a level.
    """
    factor = math.sqrt(_CORRELATION_FACTOR * (1 / len(these) + 1 / len(others)))
    usual = median(others)
    difference = median(these) - usual
    if usual <= 0 or abs(difference) <= max(HIGHER_LEVEL * middle, noises * 1.2533 * unit * factor):
        return None
    own, rest = _winsorized(these), _winsorized(others)
    squares = len(own) * pstdev(own) ** 2 + len(rest) * pstdev(rest) ** 2
    deviation = math.sqrt(squares / (len(own) + len(rest)))
    if abs(fmean(own) - fmean(rest)) <= max(HIGHER_LEVEL * middle, noises * deviation * factor):
        return None
    return f"{abs(difference) / usual:.1%} {'slower' if difference > 0 else 'faster'}"


def _winsorized(values: Sequence[float]) -> list[float]:
    """Return sorted values. Replace the lowest and the highest twentieth by the nearest other value, so that no spike decides."""
    ordered = sorted(values)
    edge = len(ordered) // 20 or 1
    low, high = ordered[min(edge, len(ordered) - 1)], ordered[max(len(ordered) - 1 - edge, 0)]
    return [min(max(value, low), high) for value in ordered]
