"""Intervals for the mean over runs, and for the ratio of two groups of runs (sides). Pure.

Each run is one sample. People compare ratios, so means and intervals are computed from logarithms. `compare` says what a ratio
means for a metric. `steady_state/median_step.py` computes the interval of the median step within one run.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, stdev

LEVEL = 0.95
MOST_RUNS = 1000
# Rounding errors can make the difference of two equal logarithms as large as this.
ROUNDING = 1e-12
# The logarithm of a speed is never known better than this, even if a coarse clock gives several runs exactly the same speed.
LEAST_NOISE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """The range from `low` to `high`. Of all intervals that are made this way, the share `level` contains the true value."""

    low: float
    high: float
    level: float = LEVEL


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A summary of several runs of one experiment: geometric mean, t interval of this mean, and spread of runs.

    `spread` is the standard deviation of runs as a share of the mean. The spread and the interval are None for one run.
    """

    mean: float
    interval: Interval | None
    spread: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """The ratio new ÷ base of the geometric means over runs. The interval and `p` are None if a side has one run.

    `p` is the probability of a difference at least as large between two equal sides. `n_base` and `n_new` are the numbers of
    values. If the values were compared in pairs, both are the number of pairs.
    """

    value: float
    interval: Interval | None
    p: float | None
    n_base: int
    n_new: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The logarithm of a ratio, and how well it is known. The variance of `shift` is `variance` (of one run) ÷ `weight`."""

    shift: float
    variance: float
    weight: float
    degrees: float
    n_base: int
    n_new: int

    def ratio(self, *, level: float = LEVEL) -> Ratio:
        """Return the ratio with its interval. If the variance is 0, the interval has no width; `p` is 1 without a shift, else 0."""
        error = math.sqrt(self.variance / self.weight)
        error = error if error > ROUNDING else 0.0
        half = t_quantile(self.degrees, level=level) * error
        p = _two_sided(abs(self.shift) / error, self.degrees) if error else float(abs(self.shift) < ROUNDING)
        interval = Interval(low=_exp(self.shift - half), high=_exp(self.shift + half), level=level)
        return Ratio(value=_exp(self.shift), interval=interval, p=p, n_base=self.n_base, n_new=self.n_new)


def widened(ratio: Ratio, by: float) -> Ratio:
    """Return the ratio with a wider interval. The logarithm of each end moves outwards by `by`."""
    if ratio.interval is None:
        return ratio
    factor = math.exp(by)
    return replace(ratio, interval=Interval(low=ratio.interval.low / factor, high=ratio.interval.high * factor))


def mean_of_logs(values: Sequence[float]) -> Summary:
    """Return the summary of positive values, one for each run. Raise ValueError if there is no value, or a value is not above 0."""
    logs = [math.log(value) for value in values]
    mean = fmean(logs)
    if len(logs) < 2:
        return Summary(mean=math.exp(mean), interval=None, spread=None, n=len(logs))
    deviation = stdev(logs)
    half = t_quantile(len(logs) - 1) * deviation / math.sqrt(len(logs))
    interval = Interval(low=_exp(mean - half), high=_exp(mean + half))
    return Summary(mean=math.exp(mean), interval=interval, spread=_exp(deviation) - 1, n=len(logs))


def ratio(base: Sequence[float], new: Sequence[float], *, level: float = LEVEL) -> Ratio:
    """Return the ratio of two sides that ran independently: Welch's t over the logarithms.

    If a side has one value, the ratio has no interval. Raise ValueError for a side without values and for a value that is not
    above 0.
    """
    if min(len(base), len(new)) > 1:
        return estimate(base, new).ratio(level=level)
    if not base or not new:
        raise ValueError("a side without values has no ratio")
    shift = fmean(map(math.log, new)) - fmean(map(math.log, base))
    return Ratio(value=_exp(shift), interval=None, p=None, n_base=len(base), n_new=len(new))


def estimate(base: Sequence[float], new: Sequence[float]) -> Estimate:
    """Return the estimate of two sides that ran independently, with two values each or more: by Welch's t over the logarithms."""
    sides = [[math.log(value) for value in side] for side in (base, new)]
    parts = [_variance(logs) / len(logs) for logs in sides]
    total = parts[0] + parts[1]
    is_noisy = total >= ROUNDING**2
    weight = 1 / (1 / len(base) + 1 / len(new))
    return Estimate(
        shift=fmean(sides[1]) - fmean(sides[0]),
        variance=total * weight if is_noisy else 0.0,
        weight=weight,
        degrees=total**2 / (parts[0] ** 2 / (len(base) - 1) + parts[1] ** 2 / (len(new) - 1)) if is_noisy else 1.0,
        n_base=len(base),
        n_new=len(new),
    )


def estimate_in_turns(
    base: Sequence[float], new: Sequence[float], *, base_at: Sequence[float], new_at: Sequence[float]
) -> Estimate:
    """Return the estimate of two sides that took turns on one machine, without the machine's linear drift.

    A least-squares fit of the logarithms finds the drift and the ratio together. `base_at` and `new_at` are the positions of the
    values in the order of the runs. Raise ValueError in four cases: a side has no values; a value is not above 0; there are fewer
    than four values in all; the order does not separate the drift from the ratio.
    """
    logs = [math.log(value) for value in (*base, *new)]
    sides, at = [-0.5] * len(base) + [0.5] * len(new), _centred([*base_at, *new_at])
    if not base or not new or len(logs) < 4:
        raise ValueError("a ratio without drift needs values on both sides, and at least four in all")
    rest, side = _residuals(_centred(logs), at), _residuals(_centred(sides), at)
    weight = math.fsum(x * x for x in side)
    if weight < 1e-9:
        raise ValueError("the order of the values does not separate a drift from the ratio; let the sides alternate")
    shift = math.fsum(x * y for x, y in zip(side, rest, strict=True)) / weight
    degrees = len(logs) - 3
    variance = math.fsum((y - shift * x) ** 2 for x, y in zip(side, rest, strict=True)) / degrees
    sizes = {"n_base": len(base), "n_new": len(new)}
    return Estimate(shift=shift, variance=variance, weight=weight, degrees=degrees, **sizes)


def _centred(values: Sequence[float]) -> list[float]:
    middle = fmean(values)
    return [value - middle for value in values]


def _residuals(values: Sequence[float], along: Sequence[float]) -> list[float]:
    """Return the residuals of centred values after a linear fit over centred places."""
    length = math.fsum(place * place for place in along)
    slope = math.fsum(p * value for p, value in zip(along, values, strict=True)) / length if length else 0.0
    return [value - slope * place for place, value in zip(along, values, strict=True)]


def _variance(values: Sequence[float]) -> float:
    """Return the variance of a sample. (The standard library's `variance` is exact to the last digit and thirty times slower.)"""
    return math.fsum(x * x for x in _centred(values)) / (len(values) - 1)


def paired_ratio(base: Sequence[float], new: Sequence[float], *, level: float = LEVEL) -> Ratio:
    """Return the ratio of two sides that ran in rounds: Student's t over the differences of the logarithms.

    Drift from round to round cancels out. Raise ValueError as `ratio` does, and for sides of different length.
    """
    shifts = [math.log(after) - math.log(before) for before, after in zip(base, new, strict=True)]
    if not shifts:
        raise ValueError("a side without values has no ratio")
    n = len(shifts)
    if n < 2:
        return Ratio(value=_exp(shifts[0]), interval=None, p=None, n_base=n, n_new=n)
    return estimate_in_pairs(base, new).ratio(level=level)


def estimate_in_pairs(base: Sequence[float], new: Sequence[float]) -> Estimate:
    """Return the estimate of two sides whose values belong together in pairs, two pairs or more."""
    shifts = [math.log(after) - math.log(before) for before, after in zip(base, new, strict=True)]
    n = len(shifts)
    return Estimate(shift=fmean(shifts), variance=_variance(shifts), weight=n, degrees=n - 1, n_base=n, n_new=n)


def _two_sided(t: float, degrees: float) -> float:
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -t))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Return the p values after Benjamini and Hochberg's correction, in the given order.

    If all values below a bound count as differences, the expected share of false differences is at most the bound.
    """
    count = len(p_values)
    smallest, corrected = 1.0, [1.0] * count
    for rank, at in zip(range(count, 0, -1), sorted(range(count), key=lambda at: -p_values[at]), strict=True):
        smallest = min(smallest, p_values[at] * count / rank)
        corrected[at] = smallest
    return corrected


def runs_for_half_width(
    measured: Ratio, half_width: float, *, degrees: Callable[[int], int] = lambda runs: runs - 1
) -> int | None:
    """Return the number of runs per side that narrows the ratio's interval to ± `half_width` (of the logarithm).

    Future runs are assumed to have the same spread. The result is at least the number of runs so far. Return None if the spread
    is unknown, or if MOST_RUNS runs are too few. `degrees` returns the degrees of freedom for a number of runs per side. The
    default `degrees` is for pairs.
    """
    if measured.interval is None or half_width <= 0:
        return None
    have, level = min(measured.n_base, measured.n_new), measured.interval.level
    now = (math.log(measured.interval.high) - math.log(measured.interval.low)) / 2
    error = now / t_quantile(max(degrees(have), 1), level=level) * math.sqrt(have)
    counts = range(max(have, 2), MOST_RUNS + 1)
    place = bisect_left(
        counts, True, key=lambda n: t_quantile(degrees(n), level=level) * error <= half_width * math.sqrt(n)
    )
    return counts[place] if place < len(counts) else None


def is_cold(*sides: Sequence[float]) -> bool:
    """Return whether the first run of a side is clearly slower than its other runs: Student's t, one-sided, p below 0.01.

    A side has the logarithm of each run's value, the first run first; a slower run has a higher value. The noise is that of the
    other runs of all sides together, but at least LEAST_NOISE: a coarse clock can give several runs the same speed.
    """
    known = [(side[0], side[1:]) for side in sides if len(side) > 1]
    degrees = sum(len(rest) - 1 for _, rest in known)
    if not degrees:
        return False
    noise = math.sqrt(math.fsum((value - fmean(rest)) ** 2 for _, rest in known for value in rest) / degrees)
    outside = max((first - fmean(rest)) / math.sqrt(1 + 1 / len(rest)) for first, rest in known)
    return outside > t_quantile(degrees, level=0.98) * max(noise, LEAST_NOISE)


def expected_lowest(values: Sequence[float], count: int) -> float:
    """Return the lowest of `count` values on average: the mean over all choices of `count` values. `count` is at most their number.

    The lowest of many values is lower than the lowest of few values. This mean is comparable between sides of different size.
    """
    lowest_first = sorted(values)
    mean, left, chance = lowest_first[0], len(values), 1.0
    for low, high in pairwise(lowest_first):
        chance *= (left - count) / left  # of a choice without `low` and all lower values
        left -= 1
        mean += chance * (high - low)
    return mean


def _exp(value: float) -> float:
    """Return e raised to a value. The value is limited, because an interval of two very different runs exceeds a float's range."""
    return math.exp(max(-700.0, min(value, 700.0)))


def t_quantile(degrees: float, *, level: float = LEVEL) -> float:
    """Return half the width of a two-sided `level` interval in standard errors, by Student's t."""
    from scipy.special import stdtrit  # not scipy.stats, which takes ten times as long to import

    return float(stdtrit(degrees, 0.5 + level / 2))
