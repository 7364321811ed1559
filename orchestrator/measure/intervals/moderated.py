"""Estimate the noise of many rows together: moderated variances. Pure.

A row with a few runs knows its own noise badly. So its interval is wide, and the correction for many rows leaves little. But the
rows of one campaign have similar noise. The method is the empirical Bayes method of Smyth (2004): the true variances of the rows
have a scaled inverse chi-squared distribution. Its centre and its degrees of freedom are estimated by maximum likelihood. In
simulations with three runs per side, more was found than with the moments of the logarithms. Each row's variance is moved towards
the centre, and has more degrees of freedom. If the rows have very different noise, almost nothing changes. The ratios never change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.measure.intervals import Estimate

# With fewer rows, it is hardly known how similar the rows are. Then each row has only its own noise.
FEWEST = 10
# The degrees of freedom that are tried for the common variance. The first means rows of very different noise, the last equal noise.
DEGREES = tuple(2 ** (place / 2) for place in range(-4, 21))
# A row with a smaller share of the mean variance counts as this share. Otherwise one row of almost equal numbers would decide.
SMALLEST = 1e-5
# Each bisection halves the range of the logarithm, which begins with about 20. So the rest is smaller than any rounding error.
BISECTIONS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """The common variance of the rows, and its weight in degrees of freedom."""

    variance: float
    degrees: float


def moderated(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return the estimates with moderated variances and more degrees of freedom, in the given order."""
    prior = common([(estimate.variance, estimate.degrees) for estimate in estimates])
    if prior is None:
        return list(estimates)
    most = math.fsum(estimate.degrees for estimate in estimates)
    return [_towards(prior, estimate, most) for estimate in estimates]


def _towards(prior: Prior, estimate: Estimate, most: float) -> Estimate:
    """Return the estimate with the weighted mean of both variances. No row has more degrees of freedom than all rows together."""
    degrees = estimate.degrees + prior.degrees
    own = estimate.degrees / degrees
    variance = own * estimate.variance + (1 - own) * prior.variance
    return replace(estimate, variance=variance, degrees=min(degrees, most))


def common(rows: Sequence[tuple[float, float]]) -> Prior | None:
    """Return the most likely prior of rows with a variance and degrees of freedom each. Return None for too few rows.

    For each number of degrees, the most likely common variance is the only root of a falling function, so bisection finds it.
    """
    import numpy as np
    from scipy.special import betaln

    if len(rows) < FEWEST or not any(variance for variance, _ in rows):
        return None
    variances, own = np.array(rows, dtype=float).T
    scale = float(variances.mean())
    squares = own * np.maximum(variances / scale, SMALLEST)
    degrees = np.array(DEGREES)[:, np.newaxis]
    low, high = (np.full_like(degrees, math.log(end)) for end in (SMALLEST, len(rows)))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_low = ((own + degrees) * squares / (degrees * np.exp(middle) + squares) - own).sum(axis=1, keepdims=True) > 0
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    ratios = squares / (degrees * np.exp(low))
    terms = own / 2 * np.log(ratios) - (own + degrees) / 2 * np.log1p(ratios) - betaln(own / 2, degrees / 2)
    best = int(terms.sum(axis=1).argmax())
    return Prior(variance=math.exp(low[best, 0]) * scale, degrees=DEGREES[best])
