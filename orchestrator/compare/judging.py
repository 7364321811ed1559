"""Judge one metric of one experiment on two sides. Pure.

`measure` computes the value of each side, and the ratio of the two values with its interval. Then the p values are corrected over
all rows of the metric, and `row` gives the verdict. An observation is a run, never a step. Ratios are new ÷ base. Effects are
symmetric: if the sides are exchanged, every ratio is inverted, and every improvement becomes a regression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from orchestrator.compare.comparison import Row, Run, Verdict
from orchestrator.compare.rules import Rule, Rules
from orchestrator.compare.sides.cold_runs import Sample
from orchestrator.compare.sides.pairing import places
from orchestrator.measure import intervals, losses
from orchestrator.measure.intervals import Estimate, Ratio
from orchestrator.measure.intervals.moderated import moderated
from orchestrator.measure.metrics import Direction, Judged, metric
from orchestrator.results.table.aggregate import STEPS_TO_TARGET

LOSS, STEPS = "train_loss", "steps"
EARLY = "runs ended early at different or unknown steps, and no losses over the same steps are logged"

# Tolerance for rounding errors when a logarithm is compared with an effect.
SLACK = 1e-9

# If the relative width of an interval is smaller, the numbers were copied or counted: no two trainings are so alike.
NO_NOISE = 1e-9

# An interval of just the wanted width settles only every second row: more runs change the ratio, and few runs show its noise only
# roughly. So the interval is narrower by a quantile of the noncentral t, where 2.1 is Student's t at 20 runs. The quantile 0.7
# settles 80 % of the unchanged rows after three runs, and more after five (benchmarks/simulated/).
T_OF_20, QUANTILE = 2.1, 0.7
# The largest number of further runs per side that a row may need.
MOST_MORE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One metric on both sides. The value of a side is None if none of its runs has the metric.

    `ratio` is computed from `estimate`. `shared_degrees` are the degrees of freedom that come from the noise of other rows.
    `identical` means that both sides have the same values. `never_steady` means that the only run of the new side had no steady
    state, so it has no value. For memory, `highest` has the highest run of base and of new. If the values are not from whole
    runs, `over` is the number of steps over which both were computed. If the two values measure different things, `unlike` says
    why. Such values are not judged.
    """

    base: float | None
    new: float | None
    ratio: Ratio | None = None
    estimate: Estimate | None = None
    shared_degrees: float = 0.0
    in_turns: bool = False
    identical: bool = False
    never_steady: bool = False
    highest: tuple[float, float] | None = None
    over: int | None = None
    unlike: str = ""


def measure(sample: Sample) -> Measured:
    """Return one metric of two sides, computed from the runs that count."""
    rule, base_runs, new_runs = sample.rule, sample.base, sample.new
    before = [run.numbers[rule.metric] for run in base_runs]
    after = [run.numbers[rule.metric] for run in new_runs]
    matched = min(len(before), len(after)) or 1
    base, new = _value_of_side(rule, before, matched), _value_of_side(rule, after, matched)
    if base is None or new is None:
        return Measured(base=base, new=new, never_steady=rule.judged is Judged.TEST and sample.never_steady)
    if sample.unlike:
        return Measured(base=base, new=new, unlike=sample.unlike)
    if rule.metric == LOSS and ended_at_different_steps((*base_runs, *new_runs)):
        return _over_the_same_steps(base_runs, new_runs) or Measured(base=base, new=new, unlike=EARLY)
    if rule.judged is not Judged.TEST:
        return Measured(
            base=base,
            new=new,
            ratio=_plain_ratio(base, new, len(before), len(after)),
            identical=base == new or sorted(before) == sorted(after),
            highest=(max(before), max(after)) if _is_memory(rule) else None,
        )
    measured = Measured(base=base, new=new, identical=sorted(before) == sorted(after))
    if min(*before, *after) <= 0:
        return measured
    if min(len(before), len(after)) < 2:
        return replace(measured, ratio=intervals.ratio(before, after))
    order = places(base_runs, new_runs)
    if order is None:
        return _with(measured, intervals.estimate(before, after))
    in_turns = intervals.estimate_in_turns(before, after, base_at=order[0], new_at=order[1])
    return replace(_with(measured, in_turns), in_turns=True)


def _with(measured: Measured, estimate: Estimate) -> Measured:
    return replace(measured, estimate=estimate, ratio=estimate.ratio())


def with_shared_noise(rows: Sequence[Measured]) -> list[Measured]:
    """Return the tested rows of one metric, with intervals that use the noise of all rows."""
    own = [measured.estimate for measured in rows if measured.estimate is not None]
    return [
        replace(_with(measured, estimate), shared_degrees=estimate.degrees - before.degrees)
        for measured, before, estimate in zip(rows, own, moderated(own), strict=True)
    ]


def ended_at_different_steps(runs: Sequence[Run]) -> bool:
    """Return True if some runs ended early, unless all runs have the same known number of steps.

    If True, the runs' mean losses are over different steps, so they cannot be compared.
    """
    made = {run.numbers.get(STEPS) for run in runs}
    return any(run.ended_early for run in runs) and (len(made) > 1 or None in made)


def _over_the_same_steps(base: Sequence[Run], new: Sequence[Run]) -> Measured | None:
    """Return the mean losses of both sides over the steps that all runs made. Return None if these losses were not logged."""
    shared = losses.over_the_same_steps(*(", ".join(run.logged_losses or "" for run in runs) for runs in (base, new)))
    if shared is None:
        return None
    ratio = _plain_ratio(shared.first, shared.second, len(base), len(new))
    identical = shared.first == shared.second
    return Measured(base=shared.first, new=shared.second, ratio=ratio, identical=identical, over=shared.steps)


def _plain_ratio(base: float, new: float, n_base: int, n_new: int) -> Ratio | None:
    """Return a ratio without an interval. Return None if a value is not above 0."""
    return Ratio(value=new / base, interval=None, p=None, n_base=n_base, n_new=n_new) if min(base, new) > 0 else None


def _is_memory(rule: Rule) -> bool:
    """Return whether the metric is an amount of memory. Other metrics with a tolerance count events, such as errors."""
    return rule.judged is Judged.TOLERANCE and metric(rule.metric).unit in ("bytes", "MiB")


def _value_of_side(rule: Rule, values: Sequence[float], matched: int) -> float | None:
    """Return the value that represents a side in the comparison. `matched` is the number of runs that both sides have.

    The allocator takes more in some runs than in others, so the highest run says little about the experiment. The lowest run is the
    memory that the experiment needs.
    """
    if len(values) < 2:
        return values[0] if values else None
    if rule.judged is Judged.TOLERANCE:
        return intervals.expected_lowest(values, matched) if _is_memory(rule) else max(values)
    if rule.judged is Judged.TEST and min(values) > 0:
        return math.exp(fmean(map(math.log, values)))
    return fmean(values)


def p_value(rule: Rule, measured: Measured) -> float | None:
    """Return the p value of a tested metric before correction. Return None if nothing was tested."""
    if rule.judged is not Judged.TEST or measured.identical or measured.ratio is None or _untestable(measured.ratio):
        return None
    return measured.ratio.p


def row(sample: Sample, measured: Measured, *, rules: Rules, p_adjusted: float | None) -> Row:
    """Return the row with its verdict. `p_adjusted` is None if nothing was tested."""
    rule = sample.rule
    verdict, why = _verdict(rule, measured, rules=rules, p_adjusted=p_adjusted)
    if sample.is_start_up and measured.ratio is not None and verdict in (Verdict.IMPROVED, Verdict.REGRESSED):
        verdict, why = Verdict.INCONCLUSIVE, "no steady state in the only run of a side"
    doubt, more = "", 0
    if verdict in (Verdict.IMPROVED, Verdict.REGRESSED) and measured.ratio is not None:
        doubt, more = sample.disturbed(measured.ratio.value)
    # The interval of a disturbed side rules nothing out.
    may_be_worse = (
        verdict is Verdict.REGRESSED if doubt else verdict is Verdict.INCONCLUSIVE and _may_be_worse(rule, measured)
    )
    verdict = Verdict.INCONCLUSIVE if doubt else verdict
    if rule.metric == STEPS_TO_TARGET and verdict is Verdict.IMPROVED:
        why = "fewer steps to the same loss; is it still the same training?"
    if measured.over is not None:
        why = "; ".join(filter(None, (why, f"over the first {measured.over} steps, which all runs made")))
    return Row(
        label=sample.label,
        metric=rule.metric,
        verdict=verdict,
        base=measured.base,
        new=measured.new,
        ratio=measured.ratio,
        p_adjusted=p_adjusted,
        paired=measured.in_turns,
        first_runs=sample.first_runs,
        highest=measured.highest,
        needs=more or (_needs(rule, measured) if verdict is Verdict.INCONCLUSIVE else None),
        may_be_worse_by=rule.rule_out if may_be_worse else None,
        doubt=doubt,
        why=why,
    )


def _verdict(rule: Rule, measured: Measured, *, rules: Rules, p_adjusted: float | None) -> tuple[Verdict, str]:
    if measured.base is None:
        return Verdict.NEW, "not measured on base"
    if measured.new is None and measured.never_steady:
        return Verdict.INCONCLUSIVE, "no steady state in the only run of the new side"
    if measured.new is None:
        return Verdict.MISSING, "measured only on base"
    if measured.unlike:
        return Verdict.UNTESTED, measured.unlike
    if measured.identical:
        return Verdict.SAME, "identical"
    if rule.judged is not Judged.TEST:
        return _by_tolerance(rule, measured.base, measured.new)
    if measured.ratio is None:
        return _without_ratio(rule, measured.base, measured.new)
    untestable = _untestable(measured.ratio)
    if untestable:
        return _by_threshold(rule, measured.ratio, untestable)
    return by_test(rule, measured.ratio, level=rules.level, p=p_adjusted)


def _may_be_worse(rule: Rule, measured: Measured) -> bool:
    """Return whether the interval reaches a change for the worse that must be ruled out."""
    if measured.ratio is None or measured.ratio.interval is None:
        return True
    ends = (math.log(measured.ratio.interval.low), math.log(measured.ratio.interval.high))
    return any(not rule.is_better(end) and _reaches(end, rule.rule_out) for end in ends)


def _moved(rule: Rule, shift: float) -> Verdict:
    return Verdict.IMPROVED if rule.is_better(shift) else Verdict.REGRESSED


def _by_tolerance(rule: Rule, base: float, new: float) -> tuple[Verdict, str]:
    """Judge by the tolerance, in both directions. If a value is 0, or the signs differ, any change counts."""
    tolerance = f"tolerance {_percent(rule.min_effect)}"
    if min(base, new) > 0 and not _exceeds(math.log(new / base), rule.min_effect):
        return Verdict.SAME, ""
    if max(base, new) < 0 and abs(new - base) <= rule.min_effect * min(-base, -new):
        return Verdict.SAME, ""
    question = "; is it still the same training?" if rule.judged is Judged.GUARD else ""
    return _moved(rule, new - base), f"{tolerance}{question}"


def _without_ratio(rule: Rule, base: float, new: float) -> tuple[Verdict, str]:
    """Judge values that have no ratio. A rate that fell to 0 is a regression; a time of 0 is invalid and not judged."""
    why = "a value that is not above 0 has no ratio"
    if rule.direction is not Direction.HIGHER or not min(base, new) <= 0 < max(base, new):
        return Verdict.UNTESTED, why
    return _moved(rule, new - base), why


def _untestable(ratio: Ratio) -> str:
    """Return why the ratio cannot be tested: the runs show no noise. Return an empty text if it can be tested."""
    if ratio.interval is None:
        return "one run per side" if max(ratio.n_base, ratio.n_new) == 1 else "one run on one side"
    return "the runs are too similar to be tested" if ratio.interval.high < ratio.interval.low * (1 + NO_NOISE) else ""


def _by_threshold(rule: Rule, ratio: Ratio, untestable: str) -> tuple[Verdict, str]:
    shift = math.log(ratio.value)
    if ratio.interval is not None and not _reaches(shift, rule.min_effect):
        return Verdict.SAME, untestable
    why = f"{untestable}, threshold {_percent(rule.one_run_effect)}"
    return _moved(rule, shift) if _exceeds(shift, rule.one_run_effect) else Verdict.UNTESTED, why


def by_test(rule: Rule, ratio: Ratio, *, level: float, p: float | None) -> tuple[Verdict, str]:
    """Return the verdict on a ratio with an interval, and a remark. `p` is the corrected p value."""
    shift, matters = math.log(ratio.value), math.log1p(rule.min_effect)
    assert ratio.interval is not None and p is not None, "a ratio with an interval was tested"
    if -matters < math.log(ratio.interval.low) and math.log(ratio.interval.high) < matters:
        return Verdict.SAME, ""
    if p < level and _reaches(shift, rule.min_effect):
        return _moved(rule, shift), ""
    return Verdict.INCONCLUSIVE, "" if p >= level else f"a change, but perhaps less than {_percent(rule.min_effect)}"


def _reaches(shift: float, effect: float) -> bool:
    """Return whether `shift`, the logarithm of a ratio, is at least as large as the effect, with some room for rounding."""
    return abs(shift) >= math.log1p(effect) - SLACK


def _exceeds(shift: float, effect: float) -> bool:
    """Return whether `shift`, the logarithm of a ratio, is larger than the effect."""
    return abs(shift) > math.log1p(effect) + SLACK


def _percent(share: float) -> str:
    return f"{share * 100:.3g}%"


def _needs(rule: Rule, measured: Measured) -> int | None:
    """Return about how many further runs per side would settle the row with a chance of 80 %. Return None if it is hopeless.

    A row is settled if its interval excludes 1, or is inside the effect that matters. If the ratio is near this effect, no number
    of runs is enough. So the interval does not have to become narrower than this effect. A row is hopeless if MOST_MORE runs would
    not even settle it without any change.
    """
    from scipy.special import nctdtrit

    ratio = measured.ratio
    if ratio is None or ratio.interval is None:
        return 1
    shift, matters = abs(math.log(ratio.value)), math.log1p(rule.min_effect)
    wanted = shift if shift >= matters else max(matters - shift, matters / 2)
    fitted = 3 if measured.in_turns else 2  # the fitted parameters: a level for each side, and the drift
    shared = math.floor(measured.shared_degrees)
    known = max(1, ratio.n_base + ratio.n_new - fitted + shared)
    narrower = T_OF_20 / float(nctdtrit(known, T_OF_20, QUANTILE))
    runs, fewest = (
        intervals.runs_for_half_width(ratio, width * narrower, degrees=lambda each: 2 * each - fitted + shared)
        for width in (wanted, max(wanted, matters))
    )
    have = min(ratio.n_base, ratio.n_new)
    if fewest is None or fewest - have > MOST_MORE:
        return None
    return MOST_MORE if runs is None else min(MOST_MORE, max(1, runs - have))
