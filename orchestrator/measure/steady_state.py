"""Finds the steady state of a series of step times: its first step and the time of a step. Pure.

The first steps of a run compile, connect and fill caches. Their number is declared (`discard_steps`) or found. To find it, the
series is cut into levels. The warm-up ends with the last level that is more than 3 % higher than the level of the run's second
half. Only the first half is searched. The step times after the warm-up must stay at one level. If they do not, the run has no
steady state and no speed, and a sentence gives the reason.

Step times are converted to robust z-scores. A score is the distance from the second half's median, in units of 1.4826 × the median
absolute deviation of that half. A unit is at least 0.1 % of the median, even if the deviation is 0. Scores are clipped at 10, so
that a single slow step does not form a level. The levels are segments of the series: it is divided so that the total cost of all
segments is lowest. The cost of a segment is the sum of its scores' absolute deviations from their median, plus a penalty of 3·ln n
for n scores in the series. Each segment has at least 3 steps. A series of over 300 steps is reduced to the medians of up to 300
equal blocks.

The first step is never steady. If there is a spike among the first 10 steps or in the first tenth of the run, all steps up to the
spike are warm-up: compilers may compile again.

Left out: the causes of a slow step. `throughput` names them if it can.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from statistics import fmean, median, pstdev

from orchestrator.measure.intervals import Interval, median_interval
from orchestrator.records import AT_LEAST_STEPS, Caveat, CaveatKind

HIGHER_LEVEL = 0.03
# A step is a spike above this modified z-score: 0.6745 × distance from the median ÷ median absolute deviation.
SPIKE_Z = 14.8
# The same limit in units of `_unit`.
_SPIKE_UNITS = SPIKE_Z / 0.6745 / 1.4826

_NO_TIME = "its steps took no time: the clock stood still"
_HEAD = 10
_POINTS, _SHORTEST, _CLIP, _FLOOR = 300, 3, 10.0, 0.001
_DIFFERENCE = 0.02
# The variance of a mean of correlated steps ÷ that of independent steps: (1 + r) ÷ (1 - r) at r = 0.5.
_CORRELATION_FACTOR = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Steady:
    """The steady part of a run: the steps after the first `discarded_steps`. Times are in seconds.

    `found_by` is `declared` or `found`. `spikes` are step positions in the whole run, counted from 0. `spike_share` is the extra
    time of the spikes over the median step, as a share of the steady part's time.
    """

    discarded_steps: int
    found_by: str
    steps: int
    median_s: float
    mean_s: float
    p5_s: float
    p95_s: float
    interval: Interval | None
    spikes: tuple[int, ...] = ()
    spike_share: float = 0.0
    warnings: tuple[str, ...] = ()


def find(
    seconds: Sequence[float],
    *,
    discard_steps: int | None = None,
    at_least_steps: int | None = None,
    waits_s: Sequence[float] = (),
    after: Sequence[Sequence[str]] = (),
) -> Steady | Caveat:
    """Return the steady state of a run whose steps took `seconds`, or the reason if there is none.

    `waits_s` has for each step the part of its time before its own work began. `after` has for each step the events before it
    (`evaluate`, `save`): a wait for them is not warm-up. `at_least_steps` steady steps are needed, by default 10.
    """
    least = at_least_steps or AT_LEAST_STEPS
    pauses = [wait if index < len(after) and after[index] else 0.0 for index, wait in enumerate(waits_s)]
    plain = [time - pause for time, pause in zip_longest(seconds, pauses[: len(seconds)], fillvalue=0.0)]
    if seconds and median(seconds) <= 0:
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=_NO_TIME)
    found_by, cut = ("declared", discard_steps) if discard_steps is not None else ("found", _warm_up(plain))
    left = len(seconds) - cut
    if left < least:
        short = f"{max(left, 0)} step(s) are left after {cut} of warm-up, and {least} are needed"
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=short)
    if median(seconds[cut:]) <= 0:
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=_NO_TIME)
    shift = _level_shift(plain[cut:])
    if shift is not None:
        return Caveat(kind=CaveatKind.NOT_LEVEL, detail=shift)
    return _described(seconds, plain, cut=cut, found_by=found_by, waits_s=waits_s, after=after)


def _warm_up(series: Sequence[float]) -> int:
    """Return the number of steps before the steady state, at least 1."""
    if len(series) < 2 * _SHORTEST:
        return min(1, len(series))
    tail = series[len(series) // 2 :]
    level, unit = median(tail), _unit(tail)
    limit = level + _SPIKE_UNITS * unit
    head = range(1, min(len(series) // 2, max(_HEAD, len(series) // 10)))
    start = 1 + max((index for index in head if series[index] > limit), default=0)
    length = math.ceil((len(series) - start) / _POINTS)
    blocks = [median(series[at : at + length]) for at in range(start, len(series), length)]
    edges = _segments([max(-_CLIP, min(_CLIP, (value - level) / unit)) for value in blocks])
    higher = [
        end
        for begin, end in pairwise(edges)
        if start + end * length <= len(series) // 2 and median(blocks[begin:end]) > level * (1 + HIGHER_LEVEL)
    ]
    return start + max(higher, default=0) * length


def _unit(values: Sequence[float]) -> float:
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


def _level_shift(series: Sequence[float]) -> str | None:
    """Return the reason why the step times after the warm-up are not at one level, or None if they are.

    The times are not at one level if their two halves differ by more than 3 % and by more than the noise. Both the medians and
    the means of the halves must differ by so much. Medians mislead if there are two kinds of steps, such as an epoch's short
    last step. Means mislead if there are spikes.
    """
    half = len(series) // 2
    if half < _SHORTEST:
        return None
    first, second = series[:half], series[half:]
    middle, factor = median(series), math.sqrt(2 * _CORRELATION_FACTOR / half)
    noise = 1.2533 * min(_unit(first), _unit(second)) * factor
    difference = median(second) - median(first)
    if abs(difference) <= max(HIGHER_LEVEL * middle, 3 * noise):
        return None
    earlier, later = _winsorized(first), _winsorized(second)
    scatter = fmean([pstdev(earlier), pstdev(later)]) * factor
    if abs(fmean(later) - fmean(earlier)) <= max(HIGHER_LEVEL * middle, 3 * scatter):
        return None
    way = "slower" if difference > 0 else "faster"
    return (
        f"the run is not level after its warm-up: its last {len(second)} steps are {abs(difference) / median(first):.1%} {way} "
        f"than the {half} before"
    )


def _winsorized(values: Sequence[float]) -> list[float]:
    """Return sorted values. Replace the lowest and the highest twentieth by the nearest other value, so that no spike decides."""
    ordered = sorted(values)
    edge = len(ordered) // 20 or 1
    low, high = ordered[min(edge, len(ordered) - 1)], ordered[max(len(ordered) - 1 - edge, 0)]
    return [min(max(value, low), high) for value in ordered]


def _described(
    seconds: Sequence[float],
    plain: Sequence[float],
    *,
    cut: int,
    found_by: str,
    waits_s: Sequence[float],
    after: Sequence[Sequence[str]],
) -> Steady:
    part = seconds[cut:]
    middle, total = median(part), math.fsum(part)
    limit = middle + _SPIKE_UNITS * _unit(part)
    spikes = tuple(index for index in range(cut, len(seconds)) if plain[index] > limit)
    ordered = sorted(part)
    spike_share = math.fsum(plain[index] - middle for index in spikes) / total
    waits = _waits(cut, waits_s, after)
    shares = {  # a wait that makes its step a spike counts only as a wait
        "waiting for data": math.fsum(waits) / total,
        "spikes": spike_share - math.fsum(waits[index - cut] for index in spikes if waits) / total,
        "evaluation or saving": math.fsum(s - p for s, p in zip(part, plain[cut:], strict=True)) / total,
    }
    return Steady(
        discarded_steps=cut,
        found_by=found_by,
        steps=len(part),
        median_s=middle,
        mean_s=fmean(part),
        p5_s=ordered[int(0.05 * (len(part) - 1))],
        p95_s=ordered[math.ceil(0.95 * (len(part) - 1))],
        interval=median_interval(part),
        spikes=spikes,
        spike_share=spike_share,
        warnings=tuple(_difference(middle, fmean(part), shares)),
    )


def _waits(cut: int, waits_s: Sequence[float], after: Sequence[Sequence[str]]) -> list[float]:
    """Return for each step the excess of its wait over the usual wait. A wait for evaluation or saving counts as 0."""
    waits = [0.0 if index < len(after) and after[index] else waits_s[index] for index in range(cut, len(waits_s))]
    usual = median(waits) if waits else 0.0
    return [max(wait - usual, 0.0) for wait in waits]


def _difference(middle: float, mean: float, shares: dict[str, float]) -> list[str]:
    """Return a sentence if the median and mean step differ by over 2 %. Name the causes if they explain half of the difference."""
    if abs(mean / middle - 1) <= _DIFFERENCE:
        return []
    causes: list[str] = []
    left = (1 - middle / mean) / 2 if mean > middle else math.inf
    for cause, share in sorted(shares.items(), key=lambda item: -item[1]):
        if left > 0 and share > 0:
            causes.append(f"{cause}, {share:.1%} of the time")
            left -= share
    why = "; ".join(causes) if left <= 0 else "steps differ, as with ragged batches or on a busy machine"
    word = "longer" if mean > middle else "shorter"
    return [f"the mean step is {abs(mean / middle - 1):.1%} {word} than the median step: {why}"]
