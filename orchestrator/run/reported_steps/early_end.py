"""The early end of a program that reports its own steps. Pure.

The program ends after a number of steps, or once the step time is known well enough.

`workers/instrument/stopping.py` has the same rule, and applies the rule inside a Trainer at every tenth step. Here the steps
are read some time after the program made them. The rule still decides at the same steps as inside a Trainer.
"""

from __future__ import annotations

import math
from statistics import median

from orchestrator.measure.intervals import t_quantile
from orchestrator.measure.steady_state.median_step import median_interval
from orchestrator.records import Measure

AT_LEAST_STEPS = 20
LOOK_EVERY = 10


class EarlyEnd:
    """The rule for the early end. It gets the time of each step. `why` is the key of `measure:` that ends the run, or None.

    `step` is the last step that counts.
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.seconds: list[float] = []
        self.next_look = measure.at_least_steps or AT_LEAST_STEPS
        self.narrow_looks = 0
        self.half_width: float | None = None
        self.why: str | None = None
        self.step: int | None = None
        if measure.within is not None:
            t_quantile(3)  # loads scipy now, and not during a measurement

    def add(self, seconds: float) -> None:
        """Add the time of a step. Steps after the early end change nothing."""
        if self.why is not None:
            return
        self.seconds.append(seconds)
        made = len(self.seconds)
        if self.measure.within is not None and made % LOOK_EVERY == 0:
            self._look(self.measure.within)
        if self.measure.at_most_steps is not None and made >= self.measure.at_most_steps:
            self.why, self.step = "at_most_steps", made
        elif self.narrow_looks >= 2 and made % LOOK_EVERY == 0 and self._missing_s() <= 0:
            self.why, self.step = "within", made

    def _look(self, within: float) -> None:
        steady = self.seconds[self._warm_up(len(self.seconds)) :]
        if len(steady) < self.next_look:
            return
        self.next_look = math.ceil(1.2 * len(steady))
        interval, middle = median_interval(steady), median(steady)
        self.half_width = (interval.high - interval.low) / 2 / middle if interval and middle > 0 else None
        narrow = self.half_width is not None and self.half_width <= within
        self.narrow_looks = self.narrow_looks + 1 if narrow else 0

    def _warm_up(self, made: int) -> int:
        return made // 2 if self.measure.discard_steps is None else self.measure.discard_steps

    def _missing_s(self) -> float:
        """Return the time that the steps lack until `at_least_s`."""
        return (self.measure.at_least_s or 0.0) - math.fsum(self.seconds)

    def steps_to_go(self) -> int:
        """Return the number of steps until the rule may end the run, at least 1."""
        made, ends = len(self.seconds), []
        if self.measure.at_most_steps is not None:
            ends.append(self.measure.at_most_steps)
        if self.measure.within is not None:
            declared = self.measure.discard_steps
            look = 2 * self.next_look if declared is None else declared + self.next_look
            if self.narrow_looks >= 2:
                look = made + math.ceil(self._missing_s() / (math.fsum(self.seconds) / made))
            ends.append(LOOK_EVERY * math.ceil(look / LOOK_EVERY))
        return max(1, min(ends, default=made) - made)
