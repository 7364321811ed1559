"""Judge one metric of one experiment on two sides. Pure.

`measure` computes the sides' values and their ratio with its interval. `row` gives the verdict, after p values were corrected
over all rows of the metric. The unit is the run, never the step. Ratios are new ÷ base, and effects are symmetric in ratios. If
the sides are exchanged, every ratio is inverted and every improvement becomes a regression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from orchestrator.compare.comparison import Row, Run, Verdict
from orchestrator.compare.pairing import places
from orchestrator.compare.rules import Rule, Rules
from orchestrator.measure import intervals, losses
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import Direction, Judged

LOSS, STEPS = "train_loss", "steps"
EARLY = "runs ended early at different or unknown steps, and no losses over the same steps are logged"

# For logarithms that are as large as an effect to the last digit.
SLACK = 1e-9

# An interval narrower than this, as a share, is of numbers that were copied or counted: no two trainings are so alike.
NO_NOISE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One metric on both sides. A side's value is None if none of its runs has the metric. `identical`: all values are the same.

    `over` is the number of steps behind both values, if it is not the whole run. `unlike` says why the values are of different
    things, so that they are not judged.
    """

    base: float | None
    new: float | None
    ratio: Ratio | None = None
    in_turns: bool = False
    identical: bool = False
    over: int | None = None
    unlike: str = ""


def measure(rule: Rule, base: Sequence[Run], new: Sequence[Run]) -> Measured | None:
    """Return the values of two sides' ok runs for a metric; None if neither side has it."""
    base = [run for run in base if rule.metric in run.numbers]
    new = [run for run in new if rule.metric in run.numbers]
    if not base and not new:
        return None
    before, after = [run.numbers[rule.metric] for run in base], [run.numbers[rule.metric] for run in new]
    one, other = _one_value(rule, before), _one_value(rule, after)
    if one is None or other is None:
        return Measured(base=one, new=other)
    if rule.metric == LOSS and ended_at_different_steps((*base, *new)):
        return _over_the_same_steps(base, new) or Measured(base=one, new=other, unlike=EARLY)
    identical = sorted(before) == sorted(after) or (rule.judged is not Judged.TEST and one == other)
    found = Measured(base=one, new=other, identical=identical)
    if min(one, other) <= 0 or (rule.judged is Judged.TEST and min(*before, *after) <= 0):
        return found
    if rule.judged is not Judged.TEST:
        plain = Ratio(value=other / one, interval=None, p=None, n_base=len(before), n_new=len(after))
        return replace(found, ratio=plain)
    order = places(base, new)
    if order is None:
        return replace(found, ratio=intervals.ratio(before, after))
    in_turns = intervals.ratio_in_turns(before, after, base_at=order[0], new_at=order[1])
    return replace(found, ratio=in_turns, in_turns=True)


def ended_at_different_steps(runs: Sequence[Run]) -> bool:
    """Return whether some runs ended early, and not all after the same number of steps, as far as is known. Their mean losses are
    then of different trainings."""
    made = {run.numbers.get(STEPS) for run in runs}
    return any(run.ended_early for run in runs) and (len(made) > 1 or None in made)


def _over_the_same_steps(base: Sequence[Run], new: Sequence[Run]) -> Measured | None:
    """Return both sides' mean losses over the steps that all runs made, if they were logged."""
    texts = [", ".join(run.logged_losses or "" for run in runs) for runs in (base, new)]
    both = losses.over_the_same_steps(*texts)
    if both is None:
        return None
    found = Measured(base=both.one, new=both.other, identical=both.one == both.other, over=both.steps)
    if min(both.one, both.other) <= 0:
        return found
    ratio = Ratio(value=both.other / both.one, interval=None, p=None, n_base=len(base), n_new=len(new))
    return replace(found, ratio=ratio)


def _one_value(rule: Rule, values: Sequence[float]) -> float | None:
    """Return the value by which a side is compared."""
    if len(values) < 2:
        return values[0] if values else None
    if rule.judged is Judged.TOLERANCE:
        return max(values)
    if rule.judged is Judged.TEST and min(values) > 0:
        return math.exp(fmean(map(math.log, values)))
    return fmean(values)


def p_value(rule: Rule, found: Measured) -> float | None:
    """Return the p value of a tested metric before correction; None if nothing was tested."""
    if rule.judged is not Judged.TEST or found.identical or found.ratio is None or _without_noise(found.ratio):
        return None
    return found.ratio.p


def row(label: str, rule: Rule, found: Measured, *, rules: Rules, p_adjusted: float | None) -> Row:
    """Return the row with its verdict. `p_adjusted` is None if nothing was tested."""
    verdict, why = _verdict(rule, found, rules=rules, p_adjusted=p_adjusted)
    if found.over is not None:
        why = "; ".join(filter(None, (why, f"over the first {found.over} steps, which all runs made")))
    return Row(
        label=label,
        metric=rule.metric,
        verdict=verdict,
        base=found.base,
        new=found.new,
        ratio=found.ratio,
        p_adjusted=p_adjusted,
        paired=found.in_turns,
        needs=_needs(rule, found) if verdict is Verdict.INCONCLUSIVE else None,
        why=why,
    )


def _verdict(rule: Rule, found: Measured, *, rules: Rules, p_adjusted: float | None) -> tuple[Verdict, str]:
    if found.base is None:
        return Verdict.NEW, "not measured on base"
    if found.new is None:
        return Verdict.MISSING, "measured only on base"
    if found.unlike:
        return Verdict.UNTESTED, found.unlike
    if found.identical:
        return Verdict.SAME, "identical"
    if rule.judged is not Judged.TEST:
        return _by_tolerance(rule, found.base, found.new)
    if found.ratio is None:
        return _without_ratio(rule, found.base, found.new)
    alone = _without_noise(found.ratio)
    if alone:
        return _by_threshold(rule, found.ratio, alone)
    return by_test(rule, found.ratio, level=rules.level, p=p_adjusted)


def _by_tolerance(rule: Rule, base: float, new: float) -> tuple[Verdict, str]:
    """Judge by the tolerance, in both directions. From 0 or below any change counts."""
    tolerance = f"tolerance {_percent(rule.min_effect)}"
    if min(base, new) > 0 and not _exceeds(math.log(new / base), rule.min_effect):
        return Verdict.SAME, ""
    if max(base, new) < 0 and abs(new - base) <= rule.min_effect * min(-base, -new):
        return Verdict.SAME, ""
    better = Verdict.IMPROVED if rule.is_better(new - base) else Verdict.REGRESSED
    return better, f"{tolerance}; is it still the same training?" if rule.judged is Judged.GUARD else tolerance


def _without_ratio(rule: Rule, base: float, new: float) -> tuple[Verdict, str]:
    """Judge values that have no ratio. A rate that fell to 0 is a regression all the same; a time of 0 is not a time."""
    why = "a value that is not above 0 has no ratio"
    if rule.direction is not Direction.HIGHER or not min(base, new) <= 0 < max(base, new):
        return Verdict.UNTESTED, why
    return Verdict.IMPROVED if rule.is_better(new - base) else Verdict.REGRESSED, why


def _without_noise(ratio: Ratio) -> str:
    """Return why the runs give no noise to judge by; empty if they do."""
    if ratio.interval is None:
        return "one run per side" if max(ratio.n_base, ratio.n_new) == 1 else "one run on one side"
    return "runs too similar to test" if ratio.interval.high < ratio.interval.low * (1 + NO_NOISE) else ""


def _by_threshold(rule: Rule, ratio: Ratio, alone: str) -> tuple[Verdict, str]:
    shift = math.log(ratio.value)
    if ratio.interval is not None and not _reaches(shift, rule.min_effect):
        return Verdict.SAME, alone
    why = f"{alone}, threshold {_percent(rule.one_run_effect)}"
    if not _exceeds(shift, rule.one_run_effect):
        return Verdict.UNTESTED, why
    return Verdict.IMPROVED if rule.is_better(shift) else Verdict.REGRESSED, why


def by_test(rule: Rule, ratio: Ratio, *, level: float, p: float | None) -> tuple[Verdict, str]:
    """Return the verdict of a ratio with an interval, and what is to be said of it; `p` is corrected."""
    shift, matters = math.log(ratio.value), math.log1p(rule.min_effect)
    assert ratio.interval is not None and p is not None, "what has noise was tested"
    if -matters < math.log(ratio.interval.low) and math.log(ratio.interval.high) < matters:
        return Verdict.SAME, ""
    if p < level and _reaches(shift, rule.min_effect):
        return Verdict.IMPROVED if rule.is_better(shift) else Verdict.REGRESSED, ""
    return Verdict.INCONCLUSIVE, "" if p >= level else f"a change, but perhaps less than {_percent(rule.min_effect)}"


def _reaches(shift: float, effect: float) -> bool:
    """Return whether a change of the logarithm is at least an effect, whichever way rounding went."""
    return abs(shift) >= math.log1p(effect) - SLACK


def _exceeds(shift: float, effect: float) -> bool:
    """Return whether a change of the logarithm is more than an effect."""
    return abs(shift) > math.log1p(effect) + SLACK


def _percent(share: float) -> str:
    return f"{share * 100:.3g}%"


def _needs(rule: Rule, found: Measured) -> int | None:
    """Return about how many more runs per side would settle the row, if the ratio stays the same.

    The interval must then exclude 1, or be within the effect that matters. Near the effect no number of runs settles it, so the
    target is at least half of the effect.
    """
    ratio = found.ratio
    if ratio is None:
        return None
    shift, matters = abs(math.log(ratio.value)), math.log1p(rule.min_effect)
    wanted = shift if shift >= matters else max(matters - shift, matters / 2)
    fitted = 3 if found.in_turns else 2  # a level for each side, and the drift
    runs = intervals.runs_for_half_width(ratio, wanted, degrees=lambda each: 2 * each - fitted)
    return None if runs is None else max(1, runs - min(ratio.n_base, ratio.n_new))
