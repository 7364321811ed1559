"""Judge the pairs of two sides: each metric of each pair, and all pairs together. Pure.

A pair that cannot be compared has one row without numbers: missing, new, failed or not comparable. Any other pair has a row for
each judged metric that at least one side has. A run that is on both sides was measured only once, so it counts only for base. If
all runs of the new side are on both sides, the pair is left out. Each metric is a separate question, so p values are corrected over
all rows of one metric. `rules` defines how a metric is judged, and `judging` judges a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from orchestrator.compare.comparison import Comparison, Difference, Entry, Fleet, Pair, Row, Run, Side, Verdict
from orchestrator.compare.fleet import fleet, one_after_the_other
from orchestrator.compare.judging import Measured, measure, p_value, row, with_shared_noise
from orchestrator.compare.rules import (
    DEFAULT,
    HEADLINES,
    REAL_TOKENS,
    TOKENS,
    Correction,
    Rule,
    Rules,
    better_direction,
    one_headline,
)
from orchestrator.compare.sides import screens
from orchestrator.compare.sides.cold_runs import Sample, in_order, without_cold_runs
from orchestrator.compare.sides.incomparable import is_failed, other_padding_is_known, unlike, verdict_on_pair
from orchestrator.compare.sides.keys import OURS, SOFTWARE
from orchestrator.compare.sides.same_runs import not_among
from orchestrator.errors import SelectionError, suggestion
from orchestrator.files.printable_text import counted
from orchestrator.measure import intervals
from orchestrator.measure.metrics import Direction, Judged

# The runs of one pair that have one metric, and their values.
Judgement = tuple[Sample, Measured]


def compare(base: Side, new: Side, *, pairs: Sequence[Pair], rules: Rules) -> Comparison:
    """Return the comparison of two paired sides. Raise SelectionError for a metric that no run has."""
    measured_anew = [pair for pair in pairs if not _has_the_same_runs(pair)]
    same_runs = len(pairs) - len(measured_anew)
    pairs = _with_unique_labels(measured_anew)
    comparable = [pair for pair in pairs if verdict_on_pair(pair) is None]
    names, warnings = _metrics(rules, comparable)
    warnings += _on_same_runs(same_runs, comparable)
    warnings += _on_other_environments(pairs)
    judged, kept = [rules.of(name) for name in names], frozenset(names)
    samples = [sample for pair in comparable for sample in _samples(pair, judged, rules)]
    samples, on_cold_runs = without_cold_runs(samples, by_campaign=rules.correction is not Correction.NONE)
    warnings += on_cold_runs
    rows = _rows(pairs, [(sample, measure(sample)) for sample in samples], rules)
    together = fleet(judged, rows, samples, level=rules.level)
    warnings += _on_order(samples, together)
    return Comparison(
        base=base.name,
        new=new.name,
        pairs=tuple(
            replace(pair, base=_keep_metrics(pair.base, kept), new=_keep_metrics(pair.new, kept)) for pair in pairs
        ),
        rows=tuple(rows),
        fleet=together,
        environment=shared(pairs),
        rules=rules.described(),
        warnings=tuple(dict.fromkeys((*base.warnings, *new.warnings, *warnings))),
        same_runs=same_runs,
        machines=screens.differences(base.screens, new.screens),
    )


def _has_the_same_runs(pair: Pair) -> bool:
    """Return whether the new side has ok runs, and all of them are runs of base, too."""
    if pair.base is None or pair.new is None or not pair.new.runs or is_failed(pair.new):
        return False
    return not _runs(pair)[1]


def _on_same_runs(left_out: int, pairs: Sequence[Pair]) -> list[str]:
    """Return sentences about the experiments that are left out, and about pairs whose sides share some runs."""
    partly = sum(pair.new is not None and len(_runs(pair)[1]) < len(pair.new.runs) for pair in pairs)
    sentences = []
    if left_out:
        verb = "is" if left_out == 1 else "are"
        sentences.append(
            f"{counted(left_out, 'experiment')} {verb} left out: both sides have the same runs, so nothing was measured anew"
        )
    if partly:
        verb = "has" if partly == 1 else "have"
        sentences.append(
            f"{counted(partly, 'experiment')} {verb} some runs that are on both sides: these runs are counted only for base"
        )
    return sentences


def _on_other_environments(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence if nothing is on both sides because the sides have other software environments."""
    sides = [
        [entry for entry in side if entry is not None] for side in zip(*((p.base, p.new) for p in pairs), strict=True)
    ]
    base, new = ({str(entry.key.get(SOFTWARE)) for entry in side} for side in sides or ([], []))
    if not base or not new or base & new or any(pair.base is not None and pair.new is not None for pair in pairs):
        return []
    names = [name for name in OURS if name != SOFTWARE and all(name in entry.key for side in sides for entry in side)]
    return [
        f"the sides have no software environment in common ({', '.join(sorted(base))} and {', '.join(sorted(new))}); "
        f"to compare them, write --by {','.join(names)}"
    ]


def _on_order(samples: Sequence[Sample], together: Sequence[Fleet]) -> list[str]:
    """Return a sentence if the sides of experiments ran one after the other, and no line over all experiments says it.

    One run per side does not count: two runs always have this order.
    """
    if any(line.one_after_the_other for line in together):
        return []
    tested: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if sample.rule.judged is Judged.TEST and len(sample.base) + len(sample.new) > 2:
            tested[sample.label].append(sample)
    apart = sum(map(one_after_the_other, tested.values()))
    where = "" if apart == len(tested) else f" of {counted(apart, 'experiment')}"
    sentence = f"the sides{where} ran one after the other: a difference between two days would look the same"
    return [sentence] if apart else []


def _with_unique_labels(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with unique labels, since rows name their pair by its label."""
    taken: set[str] = {pair.label for pair in pairs}
    seen: set[str] = set()
    unique = []
    for pair in pairs:
        label = pair.label
        if label in seen:
            numbered = (f"{pair.label} ({number})" for number in count(2))
            label = next(candidate for candidate in numbered if candidate not in taken)
        seen.add(label)
        taken.add(label)
        unique.append(pair if label == pair.label else replace(pair, label=label))
    return unique


def shared(pairs: Iterable[Pair]) -> tuple[Difference, ...]:
    """Return the differences of environment that are the same in all two-sided pairs, in the order of the first pair."""
    two_sided = [pair.environment for pair in pairs if pair.base is not None and pair.new is not None]
    if not two_sided:
        return ()
    first, *others = two_sided
    common = set(first).intersection(*others)
    return tuple(difference for difference in first if difference in common)


def _metrics(rules: Rules, comparable: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Return two values: the metrics to judge, in their order, and sentences about metrics that only one side has.

    Between two results folders, a speed that only base has is judged, too. Otherwise a gate would test nothing. Other metrics that
    only base has are not judged, because the new side may have run without their monitor.
    """
    sides = [_runs(pair) for pair in comparable]
    base = {name for runs, _ in sides for run in runs for name in run.numbers}
    new = {name for _, runs in sides for run in runs for name in run.numbers}
    rules.check_names(base | new)
    if rules.metrics:
        unknown = [name for name in rules.metrics if name not in base | new]
        if unknown and base | new:
            hint = suggestion(unknown[0], base | new)
            raise SelectionError(f"--metrics {unknown[0]}: no compared run has this metric{hint}")
        return list(rules.metrics), []
    both = base & new
    is_complete = all(entry.whole for pair in comparable for entry in (pair.base, pair.new) if entry is not None)
    lost = (base - new).intersection(HEADLINES) if is_complete else set()
    names = [name for name in DEFAULT if name in both | lost]
    if TOKENS in names and any(map(other_padding_is_known, comparable)):
        names.insert(names.index(TOKENS) + 1, REAL_TOKENS)
    if both.isdisjoint(DEFAULT):
        names += sorted(name for name in both if better_direction(name) is not Direction.NONE)
    one_sided = [(name, "base") for name in DEFAULT if name in base - new - lost]
    one_sided += [(name, "the new side") for name in DEFAULT if name in new - base]
    return names, [f"{name}: only {side} has it, so it is not compared" for name, side in one_sided]


def _samples(pair: Pair, judged: Sequence[Rule], rules: Rules) -> list[Sample]:
    base, new = map(in_order, _runs(pair))
    held = [rule for rule in judged if any(rule.metric in run.numbers for run in (*base, *new))]
    if not rules.metrics:
        left_out = TOKENS if other_padding_is_known(pair) else REAL_TOKENS
        known = {rule.metric for rule in held}
        held = one_headline([rule for rule in held if rule.metric != left_out or TOKENS not in known])
    return [
        Sample(
            label=pair.label,
            rule=rule,
            base=tuple(run for run in base if rule.metric in run.numbers),
            new=tuple(run for run in new if rule.metric in run.numbers),
            never_steady=len(new) == 1 and new[0].never_steady,
            unlike=unlike(pair, rule.metric),
        )
        for rule in held
    ]


def _rows(pairs: Sequence[Pair], judgements: Sequence[Judgement], rules: Rules) -> list[Row]:
    """Return all rows, in the order of the pairs. Unless each row is judged by itself, the rows of a metric share their noise."""
    if rules.correction is not Correction.NONE:
        judgements = _over_many_rows(judgements)
    by_label: dict[str, list[Row]] = defaultdict(list)
    for (sample, measured), p in zip(judgements, _p_values(judgements, rules.correction), strict=True):
        by_label[sample.label].append(row(sample, measured, rules=rules, p_adjusted=p))
    return [line for pair in pairs for line in by_label.get(pair.label) or [_without_numbers(pair)]]


def _without_numbers(pair: Pair) -> Row:
    verdict, why = verdict_on_pair(pair) or (Verdict.UNTESTED, "neither side has a metric that is judged")
    return Row(label=pair.label, metric="", verdict=verdict, why=why)


def _over_many_rows(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements with the noise that the tested rows of a metric share."""
    shared = list(judgements)
    for places in _families(judgements):
        for at, measured in zip(places, with_shared_noise([judgements[at][1] for at in places]), strict=True):
            shared[at] = (judgements[at][0], measured)
    return shared


def _families(judgements: Sequence[Judgement]) -> list[list[int]]:
    """Return the places of the tested rows of each metric."""
    families: dict[str, list[int]] = defaultdict(list)
    for at, (sample, measured) in enumerate(judgements):
        if p_value(sample.rule, measured) is not None:
            families[sample.rule.metric].append(at)
    return list(families.values())


def _p_values(judgements: Sequence[Judgement], correction: Correction) -> list[float | None]:
    """Return the p value of each judgement, corrected over all rows of its metric."""
    p_values = [p_value(sample.rule, measured) for sample, measured in judgements]
    if correction is Correction.NONE:
        return p_values
    for places in _families(judgements):
        corrected = intervals.adjusted([p_values[at] or 0.0 for at in places])
        for at, p in zip(places, corrected, strict=True):
            p_values[at] = p
    return p_values


def _runs(pair: Pair) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """Return the ok runs of base, and the ok runs of the new side that are not also in base."""
    base, new = (entry.runs if entry else () for entry in (pair.base, pair.new))
    is_one_experiment = pair.base is not None and pair.new is not None and pair.base.id == pair.new.id
    return base, not_among(new, base) if is_one_experiment else new


def _keep_metrics(entry: Entry | None, names: frozenset[str]) -> Entry | None:
    """Return the entry with only the compared metrics, because a run has two hundred numbers, too many for a file."""
    if entry is None:
        return None
    kept = ({name: value for name, value in run.numbers.items() if name in names} for run in entry.runs)
    return replace(entry, runs=tuple(replace(run, numbers=few) for run, few in zip(entry.runs, kept, strict=True)))
