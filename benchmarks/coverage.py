"""Measure how often our intervals contain the truth: simulated within a run, over repeats, and after an early stop.

    python benchmarks/coverage.py [--series 20000]

Step times have 2 % of lognormal noise, and half of it carries over to the next step (AR(1), 0.5). Series with spikes
also have 2 % of steps that take up to several times as long. The truth is the median of the distribution of the
steps. Seeded: the table is the same on every machine.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from statistics import fmean, median

from orchestrator.measure.intervals import mean_of_logs
from orchestrator.measure.steady_state.median_step import median_interval
from orchestrator.workers.instrument.stopping import Stopping

NOISE, CARRIED_OVER, SPIKES = 0.02, 0.5, 0.02
LOOK_EVERY, LONGEST = 10, 2000


def step_times(rng: random.Random, *, spikes: bool) -> Iterator[float]:
    """Yield step times around 1 second, endlessly. Their true median is `truth(spikes)`."""
    state = rng.gauss(0, 1)
    while True:
        state = CARRIED_OVER * state + math.sqrt(1 - CARRIED_OVER**2) * rng.gauss(0, 1)
        spike = 1 + rng.expovariate(0.5) if spikes and rng.random() < SPIKES else 1.0
        yield math.exp(NOISE * state) * spike


def truth(*, spikes: bool) -> float:
    """Return the median of one step time. With spikes it is a higher quantile of the plain noise."""
    from scipy.special import ndtri

    return math.exp(NOISE * float(ndtri(0.5 / (1 - SPIKES)))) if spikes else 1.0


def within_a_run(series: int, length: int, *, spikes: bool, seed: int = 1) -> float:
    """Return the share of runs of `length` steps whose interval contains the true median."""
    rng, true = random.Random(seed), truth(spikes=spikes)
    held = 0
    for _ in range(series):
        interval = median_interval(list(islice(step_times(rng, spikes=spikes), length)))
        held += interval is not None and interval.low <= true <= interval.high
    return held / series


def over_repeats(series: int, runs: int, *, seed: int = 1) -> float:
    """Return the share of experiments whose interval contains the true value.

    They have `runs` repeats and 1.5 % noise between runs.
    """
    rng = random.Random(seed)
    held = 0
    for _ in range(series):
        interval = mean_of_logs([math.exp(rng.gauss(0, 0.015)) for _ in range(runs)]).interval
        held += interval is not None and interval.low <= 1 <= interval.high
    return held / series


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """Runs that stopped early: the share whose interval contains the truth, the share whose median is within the requested
    distance of it, the mean error of the median, and the mean number of steps."""

    held: float
    near: float
    error: float
    steps: float


def stopped_early(series: int, within: float, *, declared: bool = True, seed: int = 1) -> Stopped:
    """Simulate runs with a declared or an unknown warm-up. With an unknown warm-up, the rule ignores half of the steps."""
    rng = random.Random(seed)
    held, errors, lengths = 0, [], []
    for _ in range(series):
        rule, seconds = Stopping(0 if declared else None, None, within), []
        for time in islice(step_times(rng, spikes=False), LONGEST):
            seconds.append(time)
            rule.add(time)
            if len(seconds) % LOOK_EVERY == 0 and rule.verdict()[0]:
                break
        interval = median_interval(seconds)
        assert interval is not None
        held += interval.low <= 1 <= interval.high
        errors.append(median(seconds) - 1)
        lengths.append(len(seconds))
    near = sum(abs(error) <= within for error in errors)
    return Stopped(held=held / series, near=near / series, error=fmean(errors), steps=fmean(lengths))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=20_000)
    series = parser.parse_args().series
    print(f"{series} series each; nominal 95 %")
    for length in (20, 50, 200, 1000):
        plain, spiked = (within_a_run(series, length, spikes=spikes) for spikes in (False, True))
        print(f"within a run of {length:>4} steps: {plain:.1%}, with 2 % of spikes {spiked:.1%}")
    for runs in (2, 3, 5, 10):
        print(f"over {runs:>2} repeats: {over_repeats(series, runs):.1%}")
    for within, declared in product((0.005, 0.01, 0.02), (True, False)):
        end = stopped_early(max(series // 4, 1), within, declared=declared)
        print(
            f"stopped within {within:.1%}, warm-up {'declared' if declared else 'to be found'}: {end.held:.1%}; the median is "
            f"within {within:.1%} of the truth in {end.near:.1%}, off by {end.error:+.3%} in the mean; "
            f"{end.steps:.0f} steps in the mean"
        )


if __name__ == "__main__":
    main()
