"""Intervals for what was measured: of the median within one run, of the mean over runs. Pure.

Within a run steps follow one another, so that neighbours are alike and single steps are no sample: the run is cut into a
few long batches, and the medians of the batches are the sample. Over repeats the run is the sample, and ratios are what
people compare: means and intervals are of logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

LEVEL = 0.95

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


def _exp(value: float) -> float:
    """e to a value; two runs that differ thousandfold have an interval without an end that a number can hold."""
    return math.exp(min(value, 700.0))


def t_quantile(degrees: int, *, level: float = LEVEL) -> float:
    """Half the width of a two-sided `level` interval in standard errors, by Student's t."""
    from scipy.special import stdtrit  # not scipy.stats, which takes ten times as long to import

    return float(stdtrit(degrees, 0.5 + level / 2))
