"""The standing of a race: the estimated speed of each experiment without the effects of rounds, and how much runs differ. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

# The effects of rounds are found by turns of two means, until they stay the same.
_TURNS, _PRECISE = 200, 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The estimated logarithm of each experiment's speed without the effects of rounds, and the standard deviation of runs.

    `runs` has the number of runs that count. `degrees` is how many differences between runs it is from; with 0, it is only assumed.
    """

    speeds: Mapping[str, float]
    runs: Mapping[str, int]
    noise: float
    degrees: int

    @property
    def order(self) -> list[str]:
        return sorted(self.speeds, key=lambda name: (-self.speeds[name], name))

    def behind(self, name: str, leader: str) -> float:
        """Return how far an experiment is behind the leader, as a difference of logarithms."""
        return self.speeds[leader] - self.speeds[name]

    def error(self, name: str, leader: str) -> float:
        """Return the standard error of this difference."""
        return self.noise * math.sqrt(1 / self.runs[name] + 1 / self.runs[leader])


def standing(values: Mapping[str, Mapping[int, float]], *, noise: float, degrees: int) -> Standing:
    """Return the standing: a mean for each experiment and for each round, by least squares. `values` are logarithms.

    `noise` is the standard deviation of runs that is assumed beforehand, with the weight of `degrees`.
    """
    runs = {name: rounds for name, rounds in values.items() if rounds}
    several = {name: rounds for name, rounds in runs.items() if len(rounds) > 1}
    effects, known = _effects(several), sum(len(rounds) - 1 for rounds in several.values())
    if known < len(effects):  # with as many effects as differences between runs, noise would be taken for effects
        effects = {}
    speeds = {
        name: fmean(value - effects.get(at, 0.0) for at, value in rounds.items()) for name, rounds in runs.items()
    }
    squares = math.fsum(
        (value - speeds[name] - effects.get(at, 0.0)) ** 2
        for name, rounds in several.items()
        for at, value in rounds.items()
    )
    known -= max(0, len(effects) - 1)
    pooled = (squares + degrees * noise**2) / (known + degrees)
    noise = math.sqrt(max(pooled, squares / known if known else 0.0))
    counts = {name: len(rounds) for name, rounds in runs.items()}
    return Standing(speeds=speeds, runs=counts, noise=noise, degrees=known)


def _effects(several: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """Return how much faster each round is than the mean of all rounds. Only experiments with several runs show this."""
    effects = dict.fromkeys(sorted({number for rounds in several.values() for number in rounds}), 0.0)
    for _ in range(_TURNS if several else 0):
        speeds = {name: fmean(value - effects[at] for at, value in of.items()) for name, of in several.items()}
        rest = {at: fmean(of[at] - speeds[name] for name, of in several.items() if at in of) for at in effects}
        middle = fmean(rest.values())
        before, effects = effects, {at: value - middle for at, value in rest.items()}
        if max(abs(effects[at] - before[at]) for at in effects) < _PRECISE:
            break
    return effects
