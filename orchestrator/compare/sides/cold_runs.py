"""Find cold first runs, and leave them out. Pure.

The first run of an experiment can be slow because caches are empty or clocks are low. A single slow run makes the interval so wide
that a change of 5 % is missed. A first run is called cold only if the runs show it, in one of two ways. In the campaign: the first
run of a side is the slowest of its side far more often than by chance. In a row: the first run of a side is far outside of the
noise of the other runs. If the first run was always left out, clean campaigns would lose a run and find fewer changes.

The first run of both sides is left out, also if only one side has a cold run. So both sides keep equally many runs of the same
rounds. Only tested metrics can have a cold run.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from orchestrator.compare.comparison import FirstRuns, Run
from orchestrator.compare.rules import HEADLINES, Rule
from orchestrator.files.printable_text import counted
from orchestrator.measure import intervals
from orchestrator.measure.metrics import Direction, Judged
from orchestrator.results.table.aggregate import STEPS_TO_TARGET

# The level of the test over a campaign. A clean campaign is called cold in 0.5 % of the cases at most.
IN_CAMPAIGN = 0.005
# In a campaign, a drift can make the first runs the slowest, too. Then as many are above the line of the others as below.
OFF_THE_LINE = 0.1
# A side keeps at least two runs. Fewer runs have no interval.
FEWEST = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The runs of one pair that have a metric, in the order of time, and the rule of this metric.

    `never_steady` means that the only run of the new side had no steady state. If the two sides measure different things, `unlike`
    says why.
    """

    label: str
    rule: Rule
    base: tuple[Run, ...]
    new: tuple[Run, ...]
    first_runs: FirstRuns = FirstRuns.COUNTED
    never_steady: bool = False
    unlike: str = ""

    def disturbed(self, ratio: float) -> tuple[str, int]:
        """Return why a change by this ratio does not count, and how many more runs per side it needs; an empty text if it counts.

        A change of a speed is in doubt if most runs of the slower side were disturbed, unless that cannot have slowed them so much.
        A disturbance of the faster side cannot be its cause: without it, the change is larger. Losses and memory do not suffer.
        """
        if self.rule.judged is not Judged.TEST or self.rule.metric == STEPS_TO_TARGET:
            return "", 0
        is_faster = self.rule.is_better(math.log(ratio))
        side, runs = ("base", self.base) if is_faster else ("new", self.new)
        doubts = [run.doubt for run in runs if run.doubt and (run.slowed or math.inf) > max(ratio, 1 / ratio)]
        more = max(0, 2 * len(doubts) - len(runs))
        return (f"most runs of {side} were {doubts[0]}", more) if more else ("", 0)

    @property
    def is_start_up(self) -> bool:
        """Return whether a side has only one run, without a steady state, so that its speed includes warm-up."""
        single = [run for side in (self.base, self.new) if len(side) == 1 for run in side]
        return self.rule.metric in HEADLINES and any(run.never_steady for run in single)


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Return the runs in the order of their start. If a start is unknown, the order is that of the repeats."""
    starts = [run.started_at for run in runs if run.started_at is not None]
    if len(starts) < len(runs):
        return sorted(runs, key=lambda run: run.repeat)
    return [run for _, run in sorted(zip(starts, runs, strict=True), key=lambda pair: pair[0])]


def without_cold_runs(samples: Sequence[Sample], *, by_campaign: bool) -> tuple[list[Sample], list[str]]:
    """Return the samples without cold first runs, and sentences about metrics for which the whole campaign has cold first runs.

    If `by_campaign` is false, each row is judged by itself.
    """
    sides: dict[str, list[list[float]]] = defaultdict(list)
    for sample in samples if by_campaign else ():
        sides[sample.rule.metric] += [logs for logs in _slowness(sample) if len(logs) > 1]
    cold = [metric for metric, of_metric in sides.items() if _is_cold_campaign(of_metric)]
    judged = [_judged(sample, is_cold=sample.rule.metric in cold) for sample in samples]
    return judged, [_sentence(metric, sides[metric], judged) for metric in cold]


def _judged(sample: Sample, *, is_cold: bool) -> Sample:
    if not any(_slowness(sample)) or not (is_cold or intervals.is_cold(*_slowness(sample))):
        return sample
    if min(len(sample.base), len(sample.new)) < FEWEST:
        return replace(sample, first_runs=FirstRuns.COLD)
    return replace(sample, base=sample.base[1:], new=sample.new[1:], first_runs=FirstRuns.LEFT_OUT)


def _slowness(sample: Sample) -> Iterator[list[float]]:
    """Yield the logarithms of each side's values, in the order of time. A worse value is larger.

    Yield nothing for an untested metric, and if a value is not above 0.
    """
    values = [[run.numbers[sample.rule.metric] for run in runs] for runs in (sample.base, sample.new)]
    if sample.rule.judged is not Judged.TEST or min((*values[0], *values[1]), default=0.0) <= 0:
        return
    sign = -1 if sample.rule.direction is Direction.HIGHER else 1
    yield from ([sign * math.log(value) for value in side] for side in values)


def _is_cold_campaign(sides: Sequence[Sequence[float]]) -> bool:
    """Return whether the first run is the slowest of its side, and off the line of the others, more often than by chance.

    If the sides have different numbers of runs, the binomial of the mean chance is an upper bound.
    """
    from scipy.special import bdtrc

    slowest, off_the_line = sum(map(_is_slowest, sides)), sum(map(_is_off_the_line, sides))
    return (
        slowest > 0
        and float(bdtrc(slowest - 1, len(sides), fmean(1 / len(logs) for logs in sides))) < IN_CAMPAIGN
        and float(bdtrc(off_the_line - 1, len(sides), 0.5)) < OFF_THE_LINE
    )


def _is_slowest(logs: Sequence[float]) -> bool:
    return logs[0] > max(logs[1:])


def _is_off_the_line(logs: Sequence[float]) -> bool:
    """Return whether the first run is slower than the line through the others says. On a machine that warms up, it is not."""
    rest = logs[1:]
    middle = (len(rest) - 1) / 2
    length = math.fsum((place - middle) ** 2 for place in range(len(rest)))
    slope = math.fsum((place - middle) * value for place, value in enumerate(rest)) / length if length else 0.0
    return logs[0] > fmean(rest) - slope * (middle + 1)


def _sentence(metric: str, sides: Sequence[Sequence[float]], judged: Sequence[Sample]) -> str:
    rows = [sample.first_runs for sample in judged if sample.rule.metric == metric]
    left_out, kept = rows.count(FirstRuns.LEFT_OUT), rows.count(FirstRuns.COLD)
    slowest = f"in {sum(map(_is_slowest, sides))} of {counted(len(sides), 'case')}"
    parts = [f"{metric}: the first run is the slowest of its side {slowest}"]
    parts += [f"in {counted(left_out, 'row')}, the first runs of both sides are left out"] if left_out else []
    parts += [f"{counted(kept, 'row')} with fewer than {FEWEST} runs per side keep them"] if kept else []
    return "; ".join(parts)
