"""Intervals for what was measured: of the median within one run, of the mean over runs, of the ratio of two sides. Pure.

Within a run steps follow one another, so that neighbours are alike and single steps are no sample: the run is cut into a
few long batches, and the medians of the batches are the sample. Over repeats the run is the sample, and ratios are what
people compare: means and intervals are of logarithms. What a ratio means for a metric is said elsewhere (`compare`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

LEVEL = 0.95

ROUNDING = 1e-12
"""What arithmetic leaves of a difference of logarithms that is none."""

FEW_STEPS, FEW_BATCHES, MANY_BATCHES = 100, 4, 6
"""Under 100 steps 4 batches, else 6: the fewest that keep an interval's promise, since short batches are too alike.

Simulated with 2 % noise of which half carries over from step to step (AR(1), 0.5), a nominal 95 % interval held the true median
in 94 to 95 % of the series of 50, 200 and 1000 steps, with and without 2 % of spikes, and in 93 % of those of 20 steps
(benchmarks/coverage.py prints the table).
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """From `low` to `high`: what would hold the true value in a share `level` of such measurements."""

    low: float
    high: float
    level: float = LEVEL


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Several runs of one experiment: the mean of their logs as a value, its t interval, the relative spread of runs.

    `spread` is the standard deviation of a single run as a share of the value; it and the interval are None for one run.
    """

    mean: float
    interval: Interval | None
    spread: float | None
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """New ÷ base, of the geometric means of positive values, a run each. The interval and `p` are None where a side has one run.

    `p` is the probability of a difference as large as this or larger between two sides that are the same. `n_base` and `n_new`
    are the numbers of values; where they were compared in pairs, both are the number of pairs.
    """

    value: float
    interval: Interval | None
    p: float | None
    n_base: int
    n_new: int


def median_interval(values: Sequence[float]) -> Interval | None:
    """The 95 % interval of the median of a stationary series; None for fewer than two values a batch, and where it
    would reach below zero: a time so uncertain is not known.

    Student's t over the medians of equally long batches, around the median of all. Steps that are left over at the start
    belong to no batch.
    """
    count = FEW_BATCHES if len(values) < FEW_STEPS else MANY_BATCHES
    length = len(values) // count
    if length < 2:
        return None
    start = len(values) - count * length
    medians = [median(values[at : at + length]) for at in range(start, len(values), length)]
    half = t_quantile(count - 1) * stdev(medians) / math.sqrt(count)
    centre = median(values)
    return Interval(low=centre - half, high=centre + half) if half < centre else None


def mean_of_logs(values: Sequence[float]) -> Summary:
    """The summary of positive values, a run each. Raises ValueError for none, and for a value that is not above 0."""
    logs = [math.log(value) for value in values]
    mean = fmean(logs)
    if len(logs) < 2:
        return Summary(mean=math.exp(mean), interval=None, spread=None, n=len(logs))
    deviation = stdev(logs)
    half = t_quantile(len(logs) - 1) * deviation / math.sqrt(len(logs))
    interval = Interval(low=_exp(mean - half), high=_exp(mean + half))
    return Summary(mean=math.exp(mean), interval=interval, spread=_exp(deviation) - 1, n=len(logs))


def ratio(base: Sequence[float], new: Sequence[float], *, level: float = LEVEL) -> Ratio:
    """Two sides that ran independently: Welch's t over the logarithms. Raises ValueError for a side without values, or one
    that is not above 0.

    Values that are all alike on both sides have no spread to judge by: their interval has no width, `p` is 1 where the
    sides agree, else 0.
    """
    logs_base, logs_new = [math.log(value) for value in base], [math.log(value) for value in new]
    if not logs_base or not logs_new:
        raise ValueError("a side without values has no ratio")
    shift = fmean(logs_new) - fmean(logs_base)
    sizes = {"n_base": len(logs_base), "n_new": len(logs_new)}
    if min(len(logs_base), len(logs_new)) < 2:
        return Ratio(value=_exp(shift), interval=None, p=None, **sizes)
    parts = [_variance(logs) / len(logs) for logs in (logs_base, logs_new)]
    variance = parts[0] + parts[1]
    if variance < ROUNDING**2:
        return _of_shift(shift, 0.0, degrees=1.0, level=level, **sizes)
    degrees = variance**2 / (parts[0] ** 2 / (len(logs_base) - 1) + parts[1] ** 2 / (len(logs_new) - 1))
    return _of_shift(shift, math.sqrt(variance), degrees=degrees, level=level, **sizes)


def ratio_in_turns(
    base: Sequence[float],
    new: Sequence[float],
    *,
    base_at: Sequence[float],
    new_at: Sequence[float],
    level: float = LEVEL,
) -> Ratio:
    """Two sides that took turns on one machine, `base_at` and `new_at` being their places in the order: a straight drift of the
    machine is fitted together with the ratio, and is in neither it nor its noise. Least squares over the logarithms.

    Raises ValueError for a side without values, a value not above 0, fewer than four values in all, and where one side came wholly
    at one place, so that drift and ratio cannot be told apart.
    """
    logs = [math.log(value) for value in (*base, *new)]
    sides, at = [-0.5] * len(base) + [0.5] * len(new), _centred([*base_at, *new_at])
    if not base or not new or len(logs) < 4:
        raise ValueError("a drift and a ratio take two sides, of four values in all")
    rest, side = _less(_centred(logs), at), _less(_centred(sides), at)
    weight = math.fsum(one * one for one in side)
    if weight < 1e-9:
        raise ValueError("the order of the values tells the sides apart as well as anything: no ratio beside a drift")
    shift = math.fsum(one * value for one, value in zip(side, rest, strict=True)) / weight
    degrees = len(logs) - 3
    squares = math.fsum((value - shift * one) ** 2 for one, value in zip(side, rest, strict=True))
    error = math.sqrt(squares / degrees / weight)
    return _of_shift(shift, error, degrees=degrees, level=level, n_base=len(base), n_new=len(new))


def _centred(values: Sequence[float]) -> list[float]:
    middle = fmean(values)
    return [value - middle for value in values]


def _less(values: Sequence[float], along: Sequence[float]) -> list[float]:
    """What a straight line along centred places does not explain of centred values."""
    length = math.fsum(place * place for place in along)
    slope = math.fsum(p * value for p, value in zip(along, values, strict=True)) / length if length else 0.0
    return [value - slope * place for place, value in zip(along, values, strict=True)]


def _variance(values: Sequence[float]) -> float:
    """Of a sample. (The standard library's is exact to the last digit, at thirty times the price.)"""
    return math.fsum(one * one for one in _centred(values)) / (len(values) - 1)


def paired_ratio(base: Sequence[float], new: Sequence[float], *, level: float = LEVEL) -> Ratio:
    """Two sides that ran in rounds, value by value beside each other: Student's t over the differences of the logarithms, so
    that what drifts from round to round cancels out. Raises ValueError as `ratio` does, and for sides of different length.
    """
    shifts = [math.log(after) - math.log(before) for before, after in zip(base, new, strict=True)]
    if not shifts:
        raise ValueError("a side without values has no ratio")
    n = len(shifts)
    if n < 2:
        return Ratio(value=_exp(shifts[0]), interval=None, p=None, n_base=n, n_new=n)
    error = math.sqrt(_variance(shifts) / n)
    return _of_shift(fmean(shifts), error, degrees=n - 1.0, level=level, n_base=n, n_new=n)


def _of_shift(shift: float, error: float, *, degrees: float, level: float, n_base: int, n_new: int) -> Ratio:
    error = error if error > ROUNDING else 0.0
    half = t_quantile(degrees, level=level) * error
    p = _two_sided(abs(shift) / error, degrees) if error else float(abs(shift) < ROUNDING)
    interval = Interval(low=_exp(shift - half), high=_exp(shift + half), level=level)
    return Ratio(value=_exp(shift), interval=interval, p=p, n_base=n_base, n_new=n_new)


def _two_sided(t: float, degrees: float) -> float:
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -t))


def adjusted(p_values: Sequence[float]) -> list[float]:
    """Each p value after Benjamini and Hochberg's correction over all of them, in their own order: of what stays below a bound,
    no larger a share than the bound is expected to be false."""
    count = len(p_values)
    smallest, found = 1.0, [1.0] * count
    for rank, at in zip(range(count, 0, -1), sorted(range(count), key=lambda at: -p_values[at]), strict=True):
        smallest = min(smallest, p_values[at] * count / rank)
        found[at] = smallest
    return found


def runs_for_half_width(
    found: Ratio, half_width: float, *, degrees: Callable[[int], int] = lambda runs: runs - 1
) -> int | None:
    """How many runs a side would narrow the ratio's interval to ± `half_width` (of the logarithm), if runs go on to spread as they
    did: never fewer than there are. None where nothing is known of the spread, or where no such number would do (over 1000).

    `degrees` of freedom are what so many runs a side leave: those of pairs unless said, whose unit is the difference of two runs.
    """
    if found.interval is None or half_width <= 0:
        return None
    have, level = min(found.n_base, found.n_new), found.interval.level
    now = (math.log(found.interval.high) - math.log(found.interval.low)) / 2
    error = now / t_quantile(max(degrees(have), 1), level=level) * math.sqrt(have)
    counts = range(max(have, 2), MOST_RUNS + 1)
    place = bisect_left(
        counts, True, key=lambda n: t_quantile(degrees(n), level=level) * error <= half_width * math.sqrt(n)
    )
    return counts[place] if place < len(counts) else None


MOST_RUNS = 1000


def _exp(value: float) -> float:
    """e to a value; two runs that differ thousandfold have an interval without an end that a number can hold."""
    return math.exp(max(-700.0, min(value, 700.0)))


def t_quantile(degrees: float, *, level: float = LEVEL) -> float:
    """Half the width of a two-sided `level` interval in standard errors, by Student's t."""
    from scipy.special import stdtrit  # not scipy.stats, which takes ten times as long to import

    return float(stdtrit(degrees, 0.5 + level / 2))
