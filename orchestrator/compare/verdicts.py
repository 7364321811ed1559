"""Judge the pairs of two sides: each metric of each pair, and all pairs together. Pure.

A pair that cannot be compared has one row without numbers: missing, new, failed, not comparable. Any other pair has a row for
each judged metric that a side has. p values are corrected over all rows of one metric, since each metric is a separate question.
`rules` says how a metric is judged, and `judging` judges a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from orchestrator.compare.comparison import Comparison, Difference, Entry, Fleet, Pair, Row, Run, Side, Verdict
from orchestrator.compare.judging import Measured, by_test, measure, p_value, row
from orchestrator.compare.rules import DEFAULT, HEADLINES, Correction, Rule, Rules, has_direction, one_headline
from orchestrator.errors import SelectionError, suggestion
from orchestrator.measure import intervals
from orchestrator.measure.metrics import Judged
from orchestrator.records import Status

OK = Status.OK.value

# A pair's place, and one metric of it.
Judgement = tuple[int, Rule, Measured]


def compare(base: Side, new: Side, *, pairs: Sequence[Pair], rules: Rules) -> Comparison:
    """Return the comparison of two paired sides. Raises SelectionError for a metric that no run has."""
    pairs = _told_apart(pairs)
    comparable = [place for place, pair in enumerate(pairs) if standing(pair) is None]
    names, said = _names(rules, *_held(pairs[place] for place in comparable), whole=_are_whole(pairs, comparable))
    judged = {name: rules.of(name) for name in names}
    found = [one for place in comparable for one in _measured(place, pairs[place], list(judged.values()), rules)]
    rows = _rows(pairs, found, rules)
    return Comparison(
        base=base.name,
        new=new.name,
        pairs=tuple(_with_judged_alone(pair, frozenset(names)) for pair in pairs),
        rows=tuple(rows),
        fleet=_fleet(judged, rows, rules),
        environment=shared(pairs),
        rules=rules.described(),
        warnings=tuple(dict.fromkeys((*base.warnings, *new.warnings, *said))),
    )


def _told_apart(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with unique labels: rows name their pair by its label."""
    taken: set[str] = {pair.label for pair in pairs}
    seen: set[str] = set()
    found = []
    for pair in pairs:
        label = pair.label
        if label in seen:
            label = next(one for number in count(2) if (one := f"{pair.label} ({number})") not in taken)
        seen.add(label)
        taken.add(label)
        found.append(pair if label == pair.label else replace(pair, label=label))
    return found


def standing(pair: Pair) -> tuple[Verdict, str] | None:
    """Return the verdict on a pair without comparable numbers, and why; None if it has such numbers."""
    base, new = pair.base, pair.new
    if base is None:
        return Verdict.NEW, "only on the new side"
    if new is None:
        failed = f", where it failed: {_failure(base)}" if _fails(base) else ""
        return Verdict.UNTESTED if failed else Verdict.MISSING, f"only on base{failed}"
    if pair.disqualifying:
        return Verdict.NOT_COMPARABLE, f"other {', '.join(pair.disqualifying)}"
    if _fails(base) and _fails(new) and not base.status == OK == new.status:
        return Verdict.FAILED, f"on both sides: {_failure(new)}"
    if _fails(base) == _fails(new):
        return None
    if _fails(new):
        return Verdict.FAILED, _failure(new)
    return Verdict.NEW, f"failed on base: {_failure(base)}"


def failed_newly(pair: Pair) -> bool:
    """Return whether an experiment that ran on base fails on the new side, on comparable machines."""
    found = standing(pair)
    return found is not None and found[0] is Verdict.FAILED and pair.base is not None and not _fails(pair.base)


def _fails(entry: Entry) -> bool:
    """Return whether no repeat ended ok, or more failed than ended ok. One run that a machine spoiled does not make an experiment
    fail."""
    return entry.status != OK or entry.failed_runs > len(entry.runs)


def _failure(entry: Entry) -> str:
    some = f"{entry.failed_runs} of {entry.failed_runs + len(entry.runs)} runs: " if entry.runs else ""
    return f"{some}{entry.failure or entry.status}"


def shared(pairs: Iterable[Pair]) -> tuple[Difference, ...]:
    """Return the differences of environment that all two-sided pairs have, in the order of the first pair."""
    two_sided = [pair.environment for pair in pairs if pair.base is not None and pair.new is not None]
    if not two_sided:
        return ()
    first, *others = two_sided
    common = set(first).intersection(*others)
    return tuple(difference for difference in first if difference in common)


def _held(pairs: Iterable[Pair]) -> tuple[set[str], set[str]]:
    """Return the metrics that any run has, on base and on the new side."""
    found: tuple[set[str], set[str]] = (set(), set())
    for pair in pairs:
        for names, runs in zip(found, _runs(pair), strict=True):
            for run in runs:
                names.update(run.numbers)
    return found


def _are_whole(pairs: Sequence[Pair], comparable: Iterable[int]) -> bool:
    """Return whether everything is known of both sides, so that a missing speed was not measured."""
    entries = [entry for place in comparable for entry in (pairs[place].base, pairs[place].new) if entry is not None]
    return bool(entries) and all(entry.whole for entry in entries)


def _names(rules: Rules, base: set[str], new: set[str], *, whole: bool) -> tuple[list[str], list[str]]:
    """Return the metrics to judge, in their order, and sentences about metrics that only one side has.

    Of two results folders a speed that the new side lost in every run is judged, too. It is missing, and a gate would otherwise
    test nothing. Any other metric may be gone with its monitor.
    """
    if rules.metrics:
        unknown = [name for name in rules.metrics if name not in base | new]
        if unknown and base | new:
            hint = suggestion(unknown[0], base | new)
            raise SelectionError(f"--metrics {unknown[0]}: no run that could be compared has it{hint}")
        return list(rules.metrics), []
    both = base & new
    lost = {name for name in HEADLINES if whole and name in base - new}
    names = [name for name in DEFAULT if name in both | lost]
    if both.isdisjoint(DEFAULT):
        names += sorted(name for name in both if has_direction(name))
    alone = [(name, "base") for name in DEFAULT if name in base - new - lost]
    alone += [(name, "the new side") for name in DEFAULT if name in new - base]
    return names, [f"{name}: only {side} has it, so that it is not compared" for name, side in alone]


def _measured(place: int, pair: Pair, judged: Sequence[Rule], rules: Rules) -> Iterable[Judgement]:
    base, new = _runs(pair)
    found = [(rule, measure(rule, base, new)) for rule in judged]
    known = {rule.metric: one for rule, one in found if one is not None}
    chosen = [rule for rule, _ in found if rule.metric in known]
    return [(place, rule, known[rule.metric]) for rule in (chosen if rules.metrics else one_headline(chosen))]


def _rows(pairs: Sequence[Pair], found: Sequence[Judgement], rules: Rules) -> list[Row]:
    """Return all rows, in the order of the pairs."""
    p_values = _adjusted(found, rules.correction)
    of_place: dict[int, list[Row]] = defaultdict(list)
    for (place, rule, measured), p in zip(found, p_values, strict=True):
        of_place[place].append(row(pairs[place].label, rule, measured, rules=rules, p_adjusted=p))
    return [one for place, pair in enumerate(pairs) for one in of_place.get(place) or [_without_numbers(pair)]]


def _without_numbers(pair: Pair) -> Row:
    verdict, why = standing(pair) or (Verdict.UNTESTED, "neither side has a metric that is judged")
    return Row(label=pair.label, metric="", verdict=verdict, why=why)


def _adjusted(found: Sequence[Judgement], correction: Correction) -> list[float | None]:
    """Return each p value, corrected over all rows of its metric."""
    p_values = [p_value(rule, measured) for _, rule, measured in found]
    if correction is Correction.NONE:
        return p_values
    families: dict[str, list[int]] = defaultdict(list)
    for at, (p, (_, rule, _)) in enumerate(zip(p_values, found, strict=True)):
        if p is not None:
            families[rule.metric].append(at)
    for places in families.values():
        corrected = intervals.adjusted([p_values[at] or 0.0 for at in places])
        for at, p in zip(places, corrected, strict=True):
            p_values[at] = p
    return p_values


def _fleet(judged: dict[str, Rule], rows: Sequence[Row], rules: Rules) -> tuple[Fleet, ...]:
    of_metric: dict[str, list[Row]] = defaultdict(list)
    for one in rows:
        of_metric[one.metric].append(one)
    lines = (_fleet_line(rule, of_metric[name], level=rules.level) for name, rule in judged.items())
    return tuple(one for one in lines if one is not None)


def _runs(pair: Pair) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    return (pair.base.runs if pair.base else (), pair.new.runs if pair.new else ())


def _with_judged_alone(pair: Pair, names: frozenset[str]) -> Pair:
    """Return the pair with only the compared numbers of its runs: a run has two hundred, too many for a file."""
    return replace(pair, base=_less(pair.base, names), new=_less(pair.new, names))


def _less(entry: Entry | None, names: frozenset[str]) -> Entry | None:
    if entry is None:
        return None
    runs = (
        replace(run, numbers={name: run.numbers[name] for name in run.numbers if name in names}) for run in entry.runs
    )
    return replace(entry, runs=tuple(runs))


def _fleet_line(rule: Rule, rows: Sequence[Row], *, level: float) -> Fleet | None:
    """Return one metric's verdict over all experiments; None for fewer than two rows with a ratio, and for a guard.

    It is the geometric mean of the ratios, so that 2 % everywhere is seen where no row shows it. The pair is the sample: its ratio
    counts once, however many runs it has. What all pairs share (the day, the room's temperature) is not noise here: a fleet
    that moved did move, whatever the cause.
    """
    ratios = [row.ratio.value for row in rows if row.ratio is not None]
    if len(ratios) < 2 or rule.judged is Judged.GUARD:
        return None
    found = intervals.paired_ratio([1.0] * len(ratios), ratios)
    verdict, _ = by_test(replace(rule, min_effect=rule.fleet_effect), found, level=level, p=found.p)
    return Fleet(metric=rule.metric, verdict=verdict, ratio=found, pairs=len(ratios))
