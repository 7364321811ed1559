"""Compare the candidates of a bisection by the rounds in which they were measured. Pure.

A round measures the good end, the bad end and one probe, shortly one after the other. So a slow drift of the machine, even over
days, changes all values of a round alike. Two differences of logarithms are independent of this drift: bad − good, and probe − the
mean of good and bad. The first is known from all rounds, and the second from the rounds of the probe. All rounds together show the
noise. If first runs are clearly slower, as after a compilation, the first round of every candidate is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from orchestrator.measure import intervals
from orchestrator.measure.intervals import LEAST_NOISE, Estimate

# The variances of the two differences for noise of 1 per run.
_OF_ENDS, _OF_PROBE = 2.0, 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """The values of one round. `probe` is None in the rounds that measure only the ends."""

    good: float
    bad: float
    probe: float | None = None


@dataclass(kw_only=True, slots=True)
class Evidence:
    """All rounds so far. `ends` has the rounds before the first probe. `probes` maps the place of a probe to its rounds.

    `last` is the place of the bad end. `slower_is_more` is true for a time, and false for a speed.
    """

    last: int
    slower_is_more: bool
    ends: Sequence[Round] = ()
    probes: dict[int, Sequence[Round]] = field(default_factory=dict)

    def estimate(self, base: int, new: int) -> Estimate:
        """Return the logarithm of new ÷ base for the places of two measured candidates."""
        ends, probes = self._differences()
        every = [shift for shifts in (ends, *(rounds for rounds, _ in probes.values())) for shift in shifts]
        middles = {place: shifts for place, (_, shifts) in probes.items()}
        squares = _squares(every) / _OF_ENDS + math.fsum(_squares(shifts) / _OF_PROBE for shifts in middles.values())
        degrees = len(every) - 1 + sum(len(shifts) - 1 for shifts in middles.values())
        at, known = zip(*(self._position(place, middles) for place in (base, new)), strict=True)
        along = at[1] - at[0]
        shift = along * fmean(every) + known[1] - known[0]
        variance = along**2 * _OF_ENDS / len(every)
        variance += sum(_OF_PROBE / len(middles[place]) for place in (base, new) if place in middles)
        return Estimate(
            shift=shift,
            variance=max(squares / degrees, LEAST_NOISE**2),
            weight=1 / variance,
            degrees=degrees,
            n_base=len(middles.get(base, every)),
            n_new=len(middles.get(new, every)),
        )

    def _position(self, place: int, middles: dict[int, list[float]]) -> tuple[float, float]:
        """Return a candidate's distance from the middle of the ends: the share of bad − good, and the logarithm besides it."""
        if place in middles:
            return 0.0, fmean(middles[place])
        return (0.5 if place == self.last else -0.5), 0.0

    def _differences(self) -> tuple[list[float], dict[int, tuple[list[float], list[float]]]]:
        """Return bad − good of the rounds of the ends; and for each probe, bad − good and probe − middle of its rounds."""
        sign = 1 if self.slower_is_more else -1
        ends_cold = intervals.is_cold(*([sign * math.log(value) for value in side] for side in _sides(self.ends)))
        middles = {place: [_middle(one) for one in rounds] for place, rounds in self.probes.items()}
        probes_cold = intervals.is_cold(*([sign * shift for shift in shifts] for shifts in middles.values()))
        return (
            [_apart(one) for one in self.ends[ends_cold:]],
            {
                place: ([_apart(one) for one in rounds], middles[place][probes_cold:])
                for place, rounds in self.probes.items()
            },
        )


def _sides(rounds: Sequence[Round]) -> tuple[list[float], list[float]]:
    return [one.good for one in rounds], [one.bad for one in rounds]


def _apart(one: Round) -> float:
    return math.log(one.bad / one.good)


def _middle(one: Round) -> float:
    assert one.probe is not None, "a probe has a value in each of its rounds"
    return math.log(one.probe) - (math.log(one.good) + math.log(one.bad)) / 2


def _squares(values: Sequence[float]) -> float:
    middle = fmean(values)
    return math.fsum((value - middle) ** 2 for value in values)
