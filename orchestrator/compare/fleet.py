"""Judge one metric over all experiments together. Pure.

The ratio is the geometric mean of the rows' ratios. It shows a change of 2 % in all rows, even if no single row shows it. Each row
counts once, whatever its number of runs.

There are two intervals, and the wider one counts. The interval over rows knows the spread of the rows. The interval by rounds also
knows what all rows of a round share, such as the clocks or the cache of a host. Its values are the means over the rows of each
round. These few values per side are compared like the runs of one row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median_low

from orchestrator.compare.comparison import FirstRuns, Fleet, Row, Run, Verdict
from orchestrator.compare.judging import by_test, measure
from orchestrator.compare.rules import Rule
from orchestrator.compare.sides.cold_runs import Sample
from orchestrator.measure import intervals
from orchestrator.measure.intervals import Estimate
from orchestrator.measure.metrics import Judged


def fleet(judged: Sequence[Rule], rows: Sequence[Row], samples: Sequence[Sample], *, level: float) -> tuple[Fleet, ...]:
    """Return the verdict over all experiments for each metric that has a ratio in two rows or more."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.ratio is not None:
            ratios[row.metric].append(row.ratio.value)
    lines = []
    for rule in judged:
        if len(ratios[rule.metric]) > 1 and rule.judged is not Judged.GUARD:
            own = [sample for sample in samples if sample.rule.metric == rule.metric and not sample.unlike]
            lines.append(_line(rule, ratios[rule.metric], own if rule.judged is Judged.TEST else [], level=level))
    return tuple(lines)


def _line(rule: Rule, ratios: Sequence[float], samples: Sequence[Sample], *, level: float) -> Fleet:
    by_rows = intervals.estimate_in_pairs([1.0] * len(ratios), ratios)
    # If all ratios are equal, the numbers were copied: rounds show nothing.
    rounds = _by_rounds(rule, samples) if by_rows.variance > intervals.ROUNDING**2 else ()
    estimates = [by_rows, *(replace(estimate, shift=by_rows.shift) for estimate in rounds)]
    mean = max((estimate.ratio() for estimate in estimates), key=_width)
    verdict, _ = by_test(replace(rule, min_effect=rule.fleet_effect), mean, level=level, p=mean.p)
    disturbed = sum(bool(sample.disturbed(mean.value)[0]) for sample in samples)
    if 2 * disturbed > len(samples) and verdict is not Verdict.SAME:
        verdict = Verdict.INCONCLUSIVE
    return Fleet(
        metric=rule.metric,
        verdict=verdict,
        ratio=replace(mean, n_base=len(ratios), n_new=len(ratios)),
        pairs=len(ratios),
        one_after_the_other=one_after_the_other(samples),
    )


def _width(ratio: intervals.Ratio) -> float:
    assert ratio.interval is not None, "two rows or more have an interval"
    return math.log(ratio.interval.high / ratio.interval.low)


def _by_rounds(rule: Rule, samples: Sequence[Sample]) -> Iterator[Estimate]:
    """Yield the estimate from the means of the rounds. Yield nothing if a side has only one round.

    The rounds are those that most rows have. Rows that lack one of them do not count here, and further rounds do not count.
    """
    usable = [sample for sample in samples if sample.base and sample.new and _is_positive(sample)]
    if not usable:
        return
    left_out = median_low(_left_out(sample) for sample in usable)
    last = [median_low(_left_out(sample) + len(runs(sample)) for sample in usable) for runs in (_base, _new)]
    sides = [
        [_rounds(sample, runs(sample), left_out, end) for sample in usable]
        for runs, end in zip((_base, _new), last, strict=True)
    ]
    complete = [
        both
        for both in zip(*sides, strict=True)
        if all(len(side) == end - left_out for side, end in zip(both, last, strict=True))
    ]
    if len(complete) < 2 or min(last) - left_out < 2:
        return
    base, new = (
        tuple(_mean(rule, number, runs) for number, runs in enumerate(zip(*side, strict=True), start=1))
        for side in zip(*complete, strict=True)
    )
    found = measure(Sample(label="", rule=rule, base=base, new=new)).estimate
    if found is not None:
        yield found


def _base(sample: Sample) -> tuple[Run, ...]:
    return sample.base


def _new(sample: Sample) -> tuple[Run, ...]:
    return sample.new


def _left_out(sample: Sample) -> int:
    return int(sample.first_runs is FirstRuns.LEFT_OUT)


def _is_positive(sample: Sample) -> bool:
    return min(run.numbers[sample.rule.metric] for run in (*sample.base, *sample.new)) > 0


def _rounds(sample: Sample, runs: Sequence[Run], first: int, end: int) -> list[Run]:
    """Return the runs of the rounds from `first` to `end`."""
    offset = _left_out(sample)
    return [run for number, run in enumerate(runs, start=offset) if first <= number < end]


def _mean(rule: Rule, number: int, runs: Sequence[Run]) -> Run:
    """Return a round as one run: the geometric mean over the rows, and the mean start."""
    starts = [run.started_at for run in runs if run.started_at is not None]
    return Run(
        repeat=number,
        numbers={rule.metric: math.exp(fmean(math.log(run.numbers[rule.metric]) for run in runs))},
        started_at=fmean(starts) if len(starts) == len(runs) else None,
    )


def one_after_the_other(samples: Sequence[Sample]) -> bool:
    """Return whether all runs of one side started before all runs of the other. It is false if a start is unknown."""
    sides = [[run.started_at for sample in samples for run in runs(sample)] for runs in (_base, _new)]
    base, new = ([start for start in side if start is not None] for side in sides)
    if not base or not new or len(base) + len(new) < sum(map(len, sides)):
        return False
    return max(base) < min(new) or max(new) < min(base)
