"""What `compare` says of two sides: each verdict by example, and what holds for all sides."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev

import pytest
from factories.cases import cases
from factories.comparisons import (
    FIRST,
    LOSS,
    MEMORY,
    MOVED,
    NOISY,
    SPEED,
    STEP,
    compared,
    entry,
    judged,
    paired,
    share_of,
    simulated,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nct
from simulated.shapes import Shape

from orchestrator.compare import gate
from orchestrator.compare.comparison import Comparison, Difference, Entry, Pair, Run, Verdict
from orchestrator.compare.gate import Cause
from orchestrator.compare.rules import DEFAULT, LEVEL, Correction, Rules, parse
from orchestrator.compare.sides.pairing import places
from orchestrator.compare.view import wording
from orchestrator.errors import SelectionError
from orchestrator.measure.metrics import METRICS, Direction, Judged

ALONE = Rules(correction=Correction.NONE)


def times(factor: float, values: tuple[float, ...] = NOISY) -> list[float]:
    return [value * factor for value in reversed(values)]


# One row


@pytest.mark.parametrize(("metric", "factor", "verdict"), cases("verdicts/runs_on_both_sides_are_tested"))
def test_runs_on_both_sides_are_tested(metric: str, factor: float, verdict: Verdict) -> None:
    row = judged(metric, NOISY, times(factor))
    assert row.verdict == verdict
    assert row.ratio is not None and row.ratio.interval is not None and row.p_adjusted is not None
    assert row.ratio.value == pytest.approx(factor)
    assert (row.needs is not None) == (verdict == Verdict.INCONCLUSIVE)


def test_a_change_that_is_sure_but_small_is_none() -> None:
    """1 % with 0.3 % between runs is no chance, and matters to nobody."""
    row = judged(SPEED, NOISY, times(0.99))
    assert row.p_adjusted is not None and row.p_adjusted < 0.01
    assert row.verdict is Verdict.SAME
    assert judged(SPEED, NOISY, times(0.99), Rules(min_effect=0.005)).verdict is Verdict.REGRESSED


def test_more_runs_settle_what_is_inconclusive() -> None:
    wide = (1000.0, 1050.0, 950.0)
    row = judged(SPEED, wide, times(0.93, wide))
    assert row.verdict is Verdict.INCONCLUSIVE
    assert row.needs is not None
    factor = math.ceil((3 + row.needs) / 3)
    assert judged(SPEED, wide * factor, times(0.93, wide) * factor).verdict is Verdict.REGRESSED


@pytest.mark.parametrize("have", [2, 3, 5])
def test_the_runs_that_are_said_have_an_interval_narrow_enough_for_a_chance_of_80_percent(have: int) -> None:
    """Of runs that go on to spread as they did: one run fewer has a wider interval."""
    few, narrower = _evenly_spread(have), float(nct.ppf(0.7, 2 * have - 2, 2.1))
    row = judged(SPEED, few, times(0.95, few))
    assert row.verdict is Verdict.INCONCLUSIVE and row.needs is not None
    for less, is_narrow in ((0, True), (1, False)):
        many = _evenly_spread(have + row.needs - less)
        found = judged(SPEED, many, times(0.95, many)).ratio
        assert found is not None and found.interval is not None
        half_width = math.log(found.interval.high / found.interval.low) / 2
        assert (half_width <= -math.log(0.95) * 2.1 / narrower) is is_narrow


def test_a_row_that_a_hundred_more_runs_would_not_settle_is_hopeless() -> None:
    wide = (1000.0, 1500.0, 700.0)
    row = judged(SPEED, wide, times(0.985, wide))
    assert (row.verdict, row.needs) == (Verdict.INCONCLUSIVE, None)


@pytest.mark.parametrize(("have", "sd"), [(3, 0.01), (5, 0.01), (5, 0.015)])
def test_as_many_more_runs_as_are_said_settle_four_of_five_unchanged_rows(have: int, sd: float) -> None:
    rng, settled, count = random.Random(8), 0, 0
    for _ in range(300):
        sides = [[1000 * math.exp(rng.gauss(0, sd)) for _ in range(100)] for _ in range(2)]
        first = judged(SPEED, sides[0][:have], sides[1][:have])
        if first.needs is not None and first.needs <= 95:
            count += 1
            more = judged(SPEED, *(side[: have + first.needs] for side in sides))
            settled += more.verdict is not Verdict.INCONCLUSIVE
    assert count > 100 and settled / count >= 0.75, "80 %, and the uncertainty of 100 to 300 rows"


def test_one_run_that_never_got_steady_is_not_missing() -> None:
    """A run of few ragged steps has no speed in 4 % of the cases; then another run helps."""
    base = entry("a", {SPEED: [1000.0], STEP: [0.1], MEMORY: [1e9]})
    new = entry("a", {MEMORY: [1e9]})
    unsteady = replace(new, runs=(replace(new.runs[0], never_steady=True),))
    other = paired(entry("b", {SPEED: [1.0], STEP: [1.0]}), entry("b", {SPEED: [1.0], STEP: [1.0]}))
    comparison = compared(paired(base, unsteady), other)
    found = {row.metric: (row.verdict, row.needs) for row in comparison.rows if row.label == "a"}
    assert found == dict.fromkeys((SPEED, STEP), (Verdict.INCONCLUSIVE, 1)) | {MEMORY: (Verdict.SAME, None)}
    assert gate.exit_code(comparison) == gate.INCONCLUSIVE
    assert gate.exit_code(compared(paired(base, new), other)) == gate.WORSE, "without that reason, the speed is missing"
    twice = replace(unsteady, runs=(*unsteady.runs, replace(unsteady.runs[0], repeat=2)))
    assert gate.exit_code(compared(paired(base, twice), other)) == gate.WORSE, "every run lost its speed"


@pytest.mark.parametrize("unsteady", ["base", "new"])
def test_the_speed_of_a_single_run_without_a_steady_state_is_not_claimed(unsteady: str) -> None:
    """Its whole time is mostly start-up: 13 % of it say nothing about the training."""
    speed = "train_tokens_per_second"
    sides = {"base": entry("a", {speed: [6977.0]}), "new": entry("a", {speed: [7899.0]})}
    claimed = compared(paired(sides["base"], sides["new"])).rows[0]
    assert claimed.verdict is Verdict.IMPROVED
    only = sides[unsteady]
    sides[unsteady] = replace(only, runs=(replace(only.runs[0], never_steady=True),))
    for pair, way in ((sides["base"], sides["new"]), "there"), ((sides["new"], sides["base"]), "back"):
        row = compared(paired(*pair)).rows[0]
        assert (row.verdict, row.needs) == (Verdict.INCONCLUSIVE, 1), way
        assert row.why == "no steady state in the only run of a side" and row.may_be_worse_by


REAL, WHOLE = "real_tokens_per_s", "train_tokens_per_second"


@given(
    argument=st.sampled_from(["max_seq_len", "effective_packing", "per_device_train_batch_size", "optim"]),
    shares=st.tuples(*[st.sampled_from([0.0, 0.04, 0.06, 0.3, None])] * 2),
    name=st.sampled_from([SPEED, WHOLE]),
    is_asked=st.booleans(),
)
def test_a_speed_that_counts_padding_is_judged_only_if_the_padding_is_the_same(
    argument: str, shares: tuple[float | None, float | None], name: str, is_asked: bool
) -> None:
    """Shorter rows have less padding. So fewer tokens per second were processed, and as many that are no padding."""
    sides = [
        entry(
            "a", {name: speeds, **({} if share is None else {SPEED: speeds, REAL: [x * (1 - share) for x in speeds]})}
        )
        for share, speeds in zip(shares, (NOISY, times(0.9)), strict=True)
    ]
    changed = (Difference(name=argument, base="128", new="64"),)
    rules = Rules(metrics=(name,)) if is_asked else Rules()
    rows = {row.metric: row for row in compared(paired(*sides, arguments=changed), rules=rules).rows}
    is_known, is_length = None not in shares, argument in ("max_seq_len", "effective_packing")
    is_large = is_known and abs(shares[0] - shares[1]) > 0.05
    is_other = (is_large or (argument != "optim" and shares[0] != shares[1])) if is_known else is_length
    if is_known and is_other and not is_asked:
        assert rows.keys() == {REAL} and rows[REAL].verdict in (Verdict.IMPROVED, Verdict.REGRESSED, Verdict.SAME)
        return
    row = rows[name if is_asked or not is_known else SPEED]
    assert REAL not in rows and (row.verdict is Verdict.UNTESTED) == is_other
    why = f"{argument.removeprefix('effective_')} differs, which changes the padding that it counts"
    if argument == "optim" and is_other:
        why = f"it counts padding, which was {shares[0]:.1%} and is {shares[1]:.1%} of the tokens"
    assert row.why == (why if is_other else "")


@pytest.mark.parametrize(("share", "is_other"), [(0.87, False), (0.58, True)])
def test_padding_that_no_argument_explains_is_no_speed(share: float, is_other: bool) -> None:
    """A newer collator padded to the longest row that is allowed. Files such as benchmarks.csv do not know its version."""
    sides = [entry("a", {SPEED: NOISY, REAL: times(factor)}) for factor in (0.9, share)]
    (row,) = compared(paired(*sides)).rows
    assert (row.metric, row.verdict) == ((REAL, Verdict.REGRESSED) if is_other else (SPEED, Verdict.SAME))


@pytest.mark.parametrize("option", ["min_effect", "threshold", "rule_out"])
def test_the_shares_of_tokens_hold_without_padding_too(option: str) -> None:
    """Speeds without padding take the place of the usual ones where an argument changed the padding."""
    rules = parse(**{option: [f"{SPEED}=0.3"]})
    fields = {"min_effect": "min_effect", "threshold": "one_run_effect", "rule_out": "rule_out"}
    assert getattr(rules.of(REAL), fields[option]) == getattr(rules.of(SPEED), fields[option]) == 0.3
    own = parse(**{option: [f"{SPEED}=0.3", f"{REAL}=0.4"]})
    assert getattr(own.of(REAL), fields[option]) == 0.4


@pytest.mark.parametrize(
    ("name", "is_judged"),
    [
        (f"custom.metrics.{SPEED}.pattern", False),
        (f"custom.metrics.{SPEED}.unit", False),
        ("custom.results", False),
        ("custom.metrics.train_loss.key", True),
        ("custom.command", True),
        ("steps", False),
        ("measure.discard_steps", False),
        ("measure.at_most_steps", True),
    ],
)
def test_a_metric_that_is_read_from_another_place_is_not_judged(name: str, is_judged: bool) -> None:
    """A better pattern for the same training was a regression by 20 %, and a mended unit an improvement by 60 times."""
    changed = (Difference(name=name, base="a", new="b"),)
    pair = replace(paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: times(0.5)})), environment=changed)
    (row,) = compared(pair).rows
    assert (row.verdict is Verdict.REGRESSED) == is_judged
    assert is_judged or (row.verdict, row.why) == (Verdict.UNTESTED, f"{name} differs, so it may be another number")


@pytest.mark.parametrize("steps_on", ["base", "the new side"])
def test_a_speed_from_steps_is_not_compared_with_a_printed_one(steps_on: str) -> None:
    """A program printed its speed with the warm-up. CSV files do not say that `steps:` was added since."""
    of_steps = {SPEED: NOISY, "discarded_steps": [4.0] * len(NOISY), "train_runtime": NOISY}
    sides = [entry("a", of_steps), entry("a", {SPEED: times(0.5), "train_runtime": times(0.5)})]
    rows = compared(paired(*(sides if steps_on == "base" else sides[::-1]))).rows
    why = f"only {steps_on} says that it is measured from steps, so it may be another number"
    assert [(row.verdict, row.why) for row in rows if row.metric == SPEED] == [(Verdict.UNTESTED, why)]
    sides = [entry("a", of_steps), entry("a", {**of_steps, SPEED: times(0.5)})]
    assert compared(paired(*sides)).rows[0].verdict is Verdict.REGRESSED


def test_over_all_experiments_speeds_with_and_without_padding_are_apart() -> None:
    both = {SPEED: NOISY, REAL: times(0.8)}
    changed = (Difference(name="max_seq_len", base="128", new="64"),)
    shorter = {SPEED: times(0.9), REAL: times(0.8)}
    pairs = [paired(entry(f"{n}", both), entry(f"{n}", both if n < 2 else shorter)) for n in range(4)]
    pairs[2:] = [replace(pair, arguments=changed) for pair in pairs[2:]]
    found = compared(*pairs)
    assert [(row.label, row.metric) for row in found.rows] == [("0", SPEED), ("1", SPEED), ("2", REAL), ("3", REAL)]
    assert [(line.metric, line.pairs) for line in found.fleet] == [(SPEED, 2), (REAL, 2)]


BUSY = "on a busy host"


@pytest.mark.parametrize("disturbed", range(6))
def test_a_change_of_speed_does_not_count_if_most_runs_of_the_slower_side_were_disturbed(disturbed: int) -> None:
    """The report claims no speed of them. On a busy host, five runs one after the other are all slower."""
    fast = entry("a", {SPEED: NOISY, MEMORY: [1e9] * 5})
    slow = _disturbed(entry("a", {SPEED: times(0.9), MEMORY: [2e9] * 5}), disturbed)
    for base, new, better in ((fast, slow, False), (slow, fast, True)):
        comparison = compared(paired(base, new))
        rows = {row.metric: row for row in comparison.rows}
        assert rows[MEMORY].verdict in (Verdict.REGRESSED, Verdict.IMPROVED), "memory does not suffer"
        row = rows[SPEED]
        if disturbed < 3:
            assert row.verdict is (Verdict.IMPROVED if better else Verdict.REGRESSED) and not row.doubt
        else:
            where = "base" if better else "new"
            assert (row.verdict, row.doubt) == (Verdict.INCONCLUSIVE, f"most runs of {where} were on a busy host")
            assert (row.needs, row.may_be_worse_by is None) == (2 * disturbed - 5, better)
            assert f"needs {row.needs} more undisturbed runs per side" in wording.note(
                row
            ) and "80%" not in wording.note(row)


@given(
    metric=st.sampled_from([SPEED, STEP]),
    shares=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    factor=st.sampled_from([0.5, 0.8, 0.9, 1.1, 1.25, 2.0]),
)
def test_only_a_disturbance_of_the_slower_side_explains_a_change(
    metric: str, shares: tuple[int, int], factor: float
) -> None:
    """A disturbance of the faster side hides a part of the change: what is left was certainly there."""
    base, new = entry("a", {metric: NOISY}), entry("a", {metric: times(factor)})
    (expected,) = compared(paired(base, new)).rows
    assert expected.verdict in MOVED
    is_slower = expected.verdict is Verdict.REGRESSED
    disturbed = [_disturbed(side, count) for side, count in zip((base, new), shares, strict=True)]
    (row,) = compared(paired(*disturbed)).rows
    if shares[is_slower] > 2:
        assert (row.verdict, row.doubt) == (
            Verdict.INCONCLUSIVE,
            f"most runs of {'new' if is_slower else 'base'} were {BUSY}",
        )
    else:
        assert (row.verdict, row.doubt, row.needs) == (expected.verdict, "", None)


def _disturbed(side: Entry, count: int) -> Entry:
    """The entry with so many runs on a busy host, which made them 2.5 times as slow at most."""
    return replace(
        side, runs=tuple(replace(run, doubt=BUSY if run.repeat <= count else "", slowed=2.5) for run in side.runs)
    )


@pytest.mark.parametrize(("factor", "counts"), [(0.1, True), (0.39, True), (0.41, False), (2.4, False), (2.6, True)])
def test_a_change_that_the_disturbance_cannot_explain_counts(factor: float, counts: bool) -> None:
    """Threads that waited in 20 % of the time do not make a training a tenth as fast."""
    sides = entry("a", {SPEED: NOISY}), entry("a", {SPEED: times(factor)})
    (row,) = compared(paired(*(_disturbed(side, 5) for side in sides))).rows
    assert (row.verdict is not Verdict.INCONCLUSIVE) == counts


def test_over_all_experiments_a_change_does_not_count_if_most_of_them_were_disturbed() -> None:
    pairs = []
    for number in range(5):
        base, new = entry(f"{number}", {SPEED: NOISY}), entry(f"{number}", {SPEED: times(0.9)})
        runs = tuple(replace(run, doubt=BUSY, slowed=None) for run in new.runs)
        pairs.append((base, new, replace(new, runs=runs)))
    for busy, verdict in ((2, Verdict.REGRESSED), (3, Verdict.INCONCLUSIVE)):
        found = [
            paired(base, disturbed if number < busy else new) for number, (base, new, disturbed) in enumerate(pairs)
        ]
        (line,) = compared(*found).fleet
        assert line.verdict is verdict


def _evenly_spread(count: int) -> tuple[float, ...]:
    """So many runs with 5 % between them, however many they are."""
    places = [2 * place / (count - 1) - 1 for place in range(count)]
    return tuple(1000 * math.exp(0.05 * place / stdev(places)) for place in places)


@pytest.mark.parametrize(
    ("metric", "base", "new", "verdict"), cases("verdicts/one_run_on_a_side_goes_by_the_threshold")
)
def test_one_run_on_a_side_goes_by_the_threshold(
    metric: str, base: list[float], new: list[float], verdict: Verdict
) -> None:
    row = judged(metric, base, new)
    assert (row.verdict, row.p_adjusted) == (verdict, None)
    assert verdict == Verdict.SAME or "one run" in row.why


def test_a_first_step_that_doubles_is_found_though_the_steps_are_the_same() -> None:
    """Users met it: a kernel compiled anew at every start, which no average of steps shows."""
    first = (1.5, 1.9, 1.3, 1.6, 1.4)
    base = entry("one", {STEP: NOISY, FIRST: first})
    new = entry("one", {STEP: times(1.0), FIRST: times(2.0, first)})
    found = {row.metric: row.verdict for row in compared(paired(base, new)).rows}
    assert found == {STEP: Verdict.SAME, FIRST: Verdict.REGRESSED}


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.0, Verdict.SAME), (1.019, Verdict.SAME), (1.021, Verdict.REGRESSED), (0.97, Verdict.IMPROVED)],
)
def test_memory_goes_by_its_tolerance_and_the_lowest_run(factor: float, verdict: Verdict) -> None:
    row = judged(MEMORY, [1e9, 2e9], [3e9, 1e9 * factor])
    assert (row.verdict, row.base, row.new, row.highest) == (verdict, 1e9, 1e9 * factor, (2e9, 3e9))
    assert row.ratio is not None and row.ratio.interval is None and row.p_adjusted is None


@pytest.mark.parametrize("few", [1, 2, 3])
def test_memory_of_more_runs_is_judged_by_the_lowest_of_as_many(few: int) -> None:
    """The lowest of ten runs is lower than the lowest of three, and that is no improvement."""
    many = [1e9 * (1 + place / 100) for place in range(10)]
    row = judged(MEMORY, many[:few], many)
    choices = [min(choice) for choice in combinations(many, few)]
    assert row.new == pytest.approx(fmean(choices)) and row.base == 1e9
    assert judged(MEMORY, [1e9] * few, [1e9] * 10).verdict is Verdict.SAME


def test_two_levels_of_an_allocator_are_the_same_memory() -> None:
    low, high = 1e9, 1.08e9
    assert judged(MEMORY, [low] * 5, [low, high, low, low, high]).verdict is Verdict.SAME
    assert judged(MEMORY, [low, low, high], [low * 1.05, high * 1.05, low * 1.05]).verdict is Verdict.REGRESSED


@pytest.mark.parametrize(("base", "new", "verdict", "counts"), cases("verdicts/a_loss_is_a_guard_both_ways"))
def test_a_loss_is_a_guard_both_ways(base: float, new: float, verdict: Verdict, counts: int) -> None:
    """A loss that fell is called improved, and stops a build all the same: it may be another training."""
    comparison = compared(paired(entry("one", {LOSS: [base]}), entry("one", {LOSS: [new]})))
    assert comparison.rows[0].verdict == verdict
    assert gate.causes(comparison)[Cause.GUARD] == counts
    assert gate.exit_code(comparison) == counts


def ended(loss: float, steps: int | None, logged: str | None, *, early: bool = True) -> Entry:
    """One run, ended by `measure:` where it is early."""
    made = entry("one", {LOSS: [loss], **({"steps": [steps]} if steps else {})})
    return replace(made, runs=(replace(made.runs[0], ended_early=early, logged_losses=logged),))


@pytest.mark.parametrize(
    ("base", "new", "verdict", "values"),
    [
        (ended(2.5, 20, "10:3 20:2"), ended(2.0, 30, "10:3 20:2 30:1"), Verdict.SAME, (2.5, 2.5)),
        (ended(2.5, 20, "10:3 20:2"), ended(2.0, 30, "10:3 20:3 30:0"), Verdict.REGRESSED, (2.5, 3.0)),
        (ended(2.5, 20, "10:3 20:2"), ended(2.0, 40, "10:3 20:2 40:1.5", early=False), Verdict.SAME, (2.5, 2.5)),
        (ended(2.5, 20, "10:3 20:2"), ended(2.0, 20, "10:3 20:2"), Verdict.IMPROVED, (2.5, 2.0)),  # of the whole runs
        (ended(2.5, None, "10:3 20:2"), ended(2.0, None, "10:3 20:2"), Verdict.SAME, (2.5, 2.5)),
        (ended(-1.0, 20, "20:-1"), ended(-3.0, 30, "20:-1 30:-7"), Verdict.SAME, (-1.0, -1.0)),
        (ended(2.5, 20, None), ended(2.0, 30, "10:3 20:2 30:1"), Verdict.UNTESTED, (2.5, 2.0)),
        (
            ended(2.5, 20, "20:2.5", early=False),
            ended(2.0, 30, "20:2.5 30:1", early=False),
            Verdict.IMPROVED,
            (2.5, 2.0),
        ),
    ],
)
def test_losses_of_runs_that_ended_early_are_held_against_each_other_over_the_steps_of_both(
    base: Entry, new: Entry, verdict: Verdict, values: tuple[float, float]
) -> None:
    """Where nothing ended early, other numbers of steps are another training, and their losses tell."""
    (row,) = [row for row in compared(paired(base, new)).rows if row.metric == LOSS]
    assert (row.verdict, row.base, row.new) == (verdict, *values)
    assert ("ended early at different or unknown steps" in row.why) is (verdict is Verdict.UNTESTED)
    assert ("over the first 20 steps" in row.why) is (row.new is not None and row.new not in (2.0, -3.0))


@pytest.mark.parametrize(("new", "verdict"), [(0, Verdict.SAME), (3, Verdict.REGRESSED)])
def test_what_was_0_has_no_ratio_and_a_verdict_all_the_same(new: float, verdict: Verdict) -> None:
    row = judged("alloc_retries", [0, 0], [0, new], parse(metrics=["alloc_retries:lower"]))
    assert (row.verdict, row.ratio) == (verdict, None)


@pytest.mark.parametrize(("metric", "base", "new", "verdict"), cases("verdicts/a_rate_that_fell_to_0"))
def test_a_rate_that_fell_to_0_is_worse_and_a_time_of_0_is_no_time(
    metric: str, base: Sequence[float], new: Sequence[float], verdict: Verdict
) -> None:
    row = judged(metric, base, new)
    assert (row.verdict, row.ratio) == (verdict, None) and "not above 0" in row.why


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.01, Verdict.SAME), (1.05, Verdict.UNTESTED), (1.2, Verdict.IMPROVED)]
)
def test_runs_too_similar_to_test_are_no_sample(factor: float, verdict: Verdict) -> None:
    """Five copies of one number are one run."""
    row = judged(SPEED, [1000.0] * 5, [1000.0 * factor] * 5)
    assert (row.verdict, row.p_adjusted) == (verdict, None)
    assert "too similar" in row.why


def test_copies_are_no_sample_in_turns_either() -> None:
    base = entry("one", {SPEED: [1000.0] * 3}, started_at=(0, 2, 4))
    new = entry("one", {SPEED: [1050.0] * 3}, started_at=(1, 3, 5))
    (row,) = compared(paired(base, new)).rows
    assert (row.verdict, row.paired) == (Verdict.UNTESTED, True)


# Pairs


def test_a_pair_without_numbers_has_one_row() -> None:
    ok, broken = entry("a", {SPEED: NOISY}), entry("a")
    pairs = {
        "missing": paired(ok, None),
        "new": paired(None, ok),
        "failed": paired(ok, broken),
        "failed on both": paired(broken, broken),
        "mended": paired(broken, ok),
        "other": paired(ok, ok, disqualifying=("gpu",)),
    }
    comparison = compared(*(replace(pair, label=label) for label, pair in pairs.items()))
    found = {row.label: (row.verdict, row.metric, row.base, row.ratio) for row in comparison.rows}
    assert found == {
        "missing": (Verdict.MISSING, "", None, None),
        "new": (Verdict.NEW, "", None, None),
        "failed": (Verdict.FAILED, "", None, None),
        "failed on both": (Verdict.FAILED, "", None, None),
        "mended": (Verdict.NEW, "", None, None),
        "other": (Verdict.NOT_COMPARABLE, "", None, None),
    }
    assert gate.causes(comparison)[Cause.FAILED] == 1


def test_an_experiment_most_of_whose_repeats_fail_newly_has_failed() -> None:
    fine, some = entry("a", {SPEED: NOISY}), entry("a", {SPEED: NOISY}, failed_runs=5, failure="nccl: timed out")
    most = entry("a", {SPEED: [1000.0]}, failed_runs=5, failure="nccl: timed out")
    (row,) = (newly := compared(paired(fine, most))).rows
    assert (row.verdict, row.metric, row.why) == (Verdict.FAILED, "", "5 of 6 runs: nccl: timed out")
    assert (gate.causes(newly)[Cause.FAILED], gate.exit_code(newly)) == (1, 1)
    (row,) = compared(paired(most, fine)).rows
    assert (row.verdict, row.why) == (Verdict.NEW, "failed on base: 5 of 6 runs: nccl: timed out")
    for base, new in ((fine, some), (some, fine), (most, most)):  # no more than half; or no news, and there are numbers
        (row,) = compared(paired(base, new)).rows
        assert row.metric == SPEED and row.base is not None and row.new is not None
    for base, new in ((most, entry("a")), (entry("a"), most)):
        (row,) = (both := compared(paired(base, new))).rows
        assert row.verdict is Verdict.FAILED and row.why.startswith("on both sides: ")
        assert gate.causes(both)[Cause.FAILED] == 0


def test_what_cannot_be_read_is_no_failure() -> None:
    """It may have ended ok: the gate says that it does not know, unless base failed, too."""
    fine, broken, unread = entry("a", {SPEED: NOISY}), entry("a"), entry("a", unreadable_runs=1)
    other = entry("b", {SPEED: NOISY})
    expected: list[tuple[Entry | None, Entry | None, Verdict, str, int]] = [
        (fine, unread, Verdict.UNKNOWN, "not compared: on the new side, its record cannot be read", 3),
        (unread, fine, Verdict.UNKNOWN, "not compared: on base, its record cannot be read", 0),
        (broken, unread, Verdict.UNKNOWN, "not compared: on the new side, its record cannot be read", 0),
        (unread, None, Verdict.UNKNOWN, "only on base, where its record cannot be read", 0),
        (unread, broken, Verdict.FAILED, "oom_cuda: no memory left; on base, its record cannot be read", 1),
    ]
    for base, new, verdict, why, code in expected:
        row, _ = (comparison := compared(paired(base, new), paired(other, other))).rows
        assert (row.verdict, row.metric, row.why, gate.exit_code(comparison)) == (verdict, "", why, code)
    alone = compared(paired(fine, unread))
    assert (gate.exit_code(alone), gate.causes(alone)[Cause.FAILED]) == (4, 0), "nothing else is compared"


@pytest.mark.parametrize(
    ("ok", "failed_runs", "unreadable_runs", "verdict"),
    [
        (1, 0, 2, Verdict.SAME),
        (0, 1, 1, Verdict.UNKNOWN),
        (0, 2, 1, Verdict.FAILED),
        (1, 2, 1, Verdict.UNKNOWN),
        (1, 3, 1, Verdict.FAILED),
    ],
)
def test_a_failure_counts_if_no_unreadable_record_can_change_it(
    ok: int, failed_runs: int, unreadable_runs: int, verdict: Verdict
) -> None:
    numbers = {MEMORY: [1000.0] * ok} if ok else None
    new = entry("a", numbers, failed_runs=failed_runs, unreadable_runs=unreadable_runs, failure="nccl: timed out")
    (row,) = compared(paired(entry("a", {MEMORY: [1000.0]}), new)).rows
    assert row.verdict is verdict


def test_rows_name_their_pair_by_a_label_of_its_own() -> None:
    one = paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: times(0.9)}))
    two = paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: times(1.0)}))
    comparison = compared(one, two, paired(entry("a (2)", {SPEED: NOISY}), None))
    assert [pair.label for pair in comparison.pairs] == ["a", "a (3)", "a (2)"]
    assert [row.label for row in comparison.rows] == ["a", "a (3)", "a (2)"]


def test_a_metric_that_one_side_lost_is_missing_where_the_side_has_it_elsewhere() -> None:
    whole, without = {SPEED: NOISY, MEMORY: [1e9] * 5}, {SPEED: NOISY}
    pairs = paired(entry("a", whole), entry("a", whole)), paired(entry("b", whole), entry("b", without))
    rows = {(row.label, row.metric): row.verdict for row in compared(*pairs).rows}
    assert rows["b", MEMORY] is Verdict.MISSING
    swapped = compared(*(replace(pair, base=pair.new, new=pair.base) for pair in pairs))
    assert {(row.label, row.metric): row.verdict for row in swapped.rows}["b", MEMORY] is Verdict.NEW


def test_a_metric_that_a_whole_side_lacks_is_said_and_not_judged() -> None:
    base, new = entry("a", {SPEED: NOISY, MEMORY: [1e9] * 5}), entry("a", {SPEED: NOISY})
    comparison = compared(paired(base, new))
    assert [row.metric for row in comparison.rows] == [SPEED]
    assert comparison.warnings == (f"{MEMORY}: only base has it, so it is not compared",)
    named = compared(paired(base, new), rules=parse(metrics=[MEMORY]))
    assert [row.verdict for row in named.rows] == [Verdict.MISSING]


def test_one_speed_is_judged_the_steady_one_first() -> None:
    trainer = "train_tokens_per_second"
    ours, theirs = {SPEED: NOISY, trainer: NOISY}, {trainer: NOISY, "train_runtime": NOISY}
    pairs = paired(entry("a", ours), entry("a", ours)), paired(entry("b", theirs), entry("b", theirs))
    assert [(row.label, row.metric) for row in compared(*pairs).rows] == [("a", SPEED), ("b", trainer)]
    named = compared(*pairs, rules=parse(metrics=[trainer, SPEED]))
    assert [(row.label, row.metric) for row in named.rows] == [("a", trainer), ("a", SPEED), ("b", trainer)]


def test_metrics_that_nobody_registered_are_judged_by_their_unit_where_there_are_no_others() -> None:
    numbers = {"attention_time_s": NOISY, "points": NOISY}
    comparison = compared(paired(entry("a", numbers), entry("a", {**numbers, "attention_time_s": times(1.1)})))
    assert [(row.metric, row.verdict) for row in comparison.rows] == [("attention_time_s", Verdict.REGRESSED)]


def test_differences_that_all_pairs_share_are_lifted() -> None:
    driver, host = Difference(name="driver", base="1", new="2"), Difference(name="host", base="a", new="b")
    one, other = entry("a", {SPEED: NOISY}), entry("b", {SPEED: NOISY})
    pairs = paired(one, one, environment=(host, driver)), paired(other, other, environment=(driver,)), paired(None, one)
    assert compared(*pairs).environment == (driver,)


# In turns


def runs(*starts: float | None) -> list[Run]:
    return [Run(repeat=number, numbers={}, started_at=start) for number, start in enumerate(starts, start=1)]


@pytest.mark.parametrize(("base", "new", "found"), cases("verdicts/sides_take_turns_where_neither_is_earlier"))
def test_sides_take_turns_where_neither_is_earlier(
    base: tuple[float, ...], new: tuple[float, ...], found: tuple[list[int], list[int]] | None
) -> None:
    assert places(runs(*base), runs(*new)) == (found and tuple(found))


def test_a_drift_over_interleaved_runs_is_no_noise() -> None:
    """The machine gets 10 % slower; the new side is 3 % slower throughout. Side by side it is plain, apart it is not seen."""
    drift = [1 - 0.1 * place / 9 for place in range(10)]
    noise = [value / 1000 for value in (*NOISY, *reversed(NOISY))]
    values = [1000 * d * n for d, n in zip(drift, noise, strict=True)]
    base = entry("a", {SPEED: values[0::2]}, started_at=range(0, 10, 2))
    new = entry("a", {SPEED: [value * 0.97 for value in values[1::2]]}, started_at=range(1, 10, 2))
    (row,) = compared(paired(base, new)).rows
    assert (row.verdict, row.paired) == (Verdict.REGRESSED, True)
    assert row.ratio is not None and row.ratio.value == pytest.approx(0.97, abs=0.005)
    apart = [replace(one, runs=tuple(replace(run, started_at=None) for run in one.runs)) for one in (base, new)]
    (row,) = compared(paired(*apart)).rows
    assert (row.verdict, row.paired) == (Verdict.INCONCLUSIVE, False)


# All together


@pytest.mark.parametrize(
    ("factor", "verdict"), [(0.985, Verdict.REGRESSED), (0.995, Verdict.SAME), (1.02, Verdict.IMPROVED)]
)
def test_all_together_go_by_half_the_effect_of_a_row(factor: float, verdict: Verdict) -> None:
    pairs = [
        paired(entry(str(n), {SPEED: [1000 + n]}), entry(str(n), {SPEED: [(1000 + n) * factor]})) for n in range(9)
    ]
    assert [line.verdict for line in compared(*pairs).fleet] == [verdict]
    named = compared(*pairs, rules=parse(min_effect=["fleet=5%"]))
    assert [line.verdict for line in named.fleet] == [Verdict.SAME]


def test_sides_one_after_the_other_are_said_once() -> None:
    def pair(label: str, base: Sequence[float], new: Sequence[float]) -> Pair:
        numbers = {SPEED: NOISY[: len(base)], STEP: NOISY[: len(base)], FIRST: NOISY[: len(base)]}
        return paired(entry(label, numbers, started_at=base), entry(label, numbers, started_at=new))

    apart, turns = pair("a", range(5), range(5, 10)), pair("b", range(0, 10, 2), range(1, 10, 2))
    said = "ran one after the other: a difference between two days would look the same"
    assert compared(apart).warnings == (f"the sides {said}",)
    assert compared(apart, turns).warnings == (f"the sides of 1 experiment {said}",)
    assert compared(turns).warnings == compared(pair("a", [0], [1])).warnings == ()
    both = compared(apart, pair("b", range(5), range(5, 10)))
    assert both.warnings == () and both.fleet[0].one_after_the_other, "the line over all experiments says it"


def test_one_pair_is_no_fleet_and_a_loss_is_none() -> None:
    numbers = {SPEED: [1000.0], LOSS: [2.0]}
    one = paired(entry("a", numbers), entry("a", numbers))
    assert compared(one).fleet == ()
    two = paired(entry("b", numbers), entry("b", numbers))
    assert [line.metric for line in compared(one, two).fleet] == [SPEED]


# What holds for all sides

numbers = st.lists(st.floats(0.5, 2.0).map(lambda value: round(value, 3)), min_size=1, max_size=6)
metrics = st.dictionaries(st.sampled_from([SPEED, STEP, MEMORY, LOSS, FIRST]), numbers, min_size=1, max_size=3)
entries = st.one_of(st.none(), st.just({}), metrics)
interleaved = st.booleans()


@st.composite
def comparable(draw: st.DrawFn) -> list[Pair]:
    """Pairs of all kinds, some of whose sides took turns."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        label = f"e{number}"
        sides = [draw(entries), draw(entries)]
        turns = draw(interleaved)
        both: list[Entry | None] = []
        for side, numbers_of in enumerate(sides):
            starts = [2.0 * place + side for place in range(6)] if turns else None
            both.append(None if numbers_of is None else entry(label, numbers_of, started_at=starts))
        if both == [None, None]:
            both[0] = entry(label)
        found.append(paired(*both, disqualifying=("gpu",) if draw(st.integers(0, 9)) == 0 and None not in both else ()))
    return found


def swapped(pair: Pair) -> Pair:
    return replace(pair, base=pair.new, new=pair.base)


@given(comparable())
def test_a_campaign_held_against_itself_shows_nothing(pairs: list[Pair]) -> None:
    own = [replace(pair, base=pair.base or pair.new, new=pair.base or pair.new, disqualifying=()) for pair in pairs]
    comparison = compared(*own)
    assert {row.verdict for row in comparison.rows if row.metric} <= {Verdict.SAME}
    assert {line.verdict for line in comparison.fleet} <= {Verdict.SAME}
    assert gate.exit_code(comparison) in (gate.NOTHING_WORSE, gate.NOTHING_COMPARABLE)


EXCHANGED = {
    Verdict.IMPROVED: Verdict.REGRESSED,
    Verdict.REGRESSED: Verdict.IMPROVED,
    Verdict.MISSING: Verdict.NEW,
    Verdict.NEW: Verdict.MISSING,
}


@given(comparable(), st.sampled_from(Correction))
def test_sides_exchanged_invert_every_ratio_and_every_verdict(pairs: list[Pair], correction: Correction) -> None:
    rules = Rules(correction=correction)
    there, back = compared(*pairs, rules=rules), compared(*map(swapped, pairs), rules=rules)
    assert [row.label for row in there.rows] == [row.label for row in back.rows]
    for row, other in zip(there.rows, back.rows, strict=True):
        assert row.metric == other.metric
        if row.metric:
            assert other.verdict is EXCHANGED.get(row.verdict, row.verdict)
        assert (row.ratio is None) == (other.ratio is None)
        if row.ratio is not None and other.ratio is not None:
            assert row.ratio.value * other.ratio.value == pytest.approx(1)
        assert (row.needs, row.paired) == (other.needs, other.paired)
    for one, inverse in zip(there.fleet, back.fleet, strict=True):
        assert inverse.verdict is EXCHANGED.get(one.verdict, one.verdict)


@given(comparable(), comparable())
def test_another_row_changes_no_verdict_without_the_correction(pairs: list[Pair], more: list[Pair]) -> None:
    """All metrics named, since the choice of those that are judged hangs on what both sides have."""
    rules = Rules(metrics=(SPEED, STEP, MEMORY, LOSS, FIRST), correction=Correction.NONE)
    anchor = paired(
        entry("all", {name: [1.0] for name in rules.metrics}), entry("all", {name: [1.0] for name in rules.metrics})
    )
    others = [replace(pair, label=f"more {pair.label}") for pair in more]
    alone, beside = compared(anchor, *pairs, rules=rules), compared(anchor, *pairs, *others, rules=rules)
    assert beside.rows[: len(alone.rows)] == alone.rows


@given(comparable())
def test_the_correction_takes_back_verdicts_and_adds_none(pairs: list[Pair]) -> None:
    said = (Verdict.IMPROVED, Verdict.REGRESSED)
    corrected, plain = compared(*pairs), compared(*pairs, rules=ALONE)
    for row, other in zip(corrected.rows, plain.rows, strict=True):
        assert row.verdict is other.verdict or (other.verdict in said and row.verdict is Verdict.INCONCLUSIVE)


@given(comparable())
def test_rows_stand_in_the_order_of_the_pairs_each_with_one_at_least(pairs: list[Pair]) -> None:
    comparison = compared(*pairs)
    assert list(dict.fromkeys(row.label for row in comparison.rows)) == [pair.label for pair in pairs]


# Rules


def test_what_is_judged_has_a_direction_and_is_registered() -> None:
    for name in DEFAULT:
        rule = Rules().of(name)
        assert rule.direction is not Direction.NONE
        assert name in METRICS or name == "round_time_s"
        assert rule.min_effect < rule.rule_out
        assert 0 < rule.fleet_effect < rule.min_effect <= rule.one_run_effect or rule.judged is not Judged.TEST


def test_options_change_what_matters() -> None:
    rules = parse(
        metrics=[SPEED, "points:higher"],
        min_effect=["3%", f"{MEMORY}=0.1", "fleet=0.5%"],
        threshold=["0.2", f"{FIRST}=0.4"],
        rule_out=["8%", f"{STEP}=4%"],
        level=0.01,
        correction=Correction.NONE,
    )
    assert (rules.of(SPEED).min_effect, rules.of(MEMORY).min_effect) == (0.03, 0.1)
    assert rules.of(LOSS).min_effect == 0.05, "what is said of all is about what is tested"
    assert (rules.of(SPEED).one_run_effect, rules.of(FIRST).one_run_effect) == (0.2, 0.4)
    assert rules.of("points").direction is Direction.HIGHER
    assert rules.of(SPEED).fleet_effect == 0.005
    assert [rules.of(name).rule_out for name in (SPEED, STEP)] == [0.08, 0.04]
    assert Rules(rule_out=0.08).of(FIRST).rule_out == 0.5, "at least the change that counts"
    assert [Rules().of(name).rule_out for name in (SPEED, FIRST)] == [0.05, 1.25]
    assert rules.described() == {
        "metrics": f"{SPEED},points:higher",
        "min_effect": f"0.03,{MEMORY}=0.1,fleet=0.005",
        "threshold": f"0.2,{FIRST}=0.4",
        "rule_out": f"0.08,{STEP}=0.04",
        "level": 0.01,
        "correction": "none",
    }


def test_a_metric_has_one_direction() -> None:
    with pytest.raises(
        SelectionError, match="points: it is named with both directions; keep points:higher or points:lower"
    ):
        parse(metrics=["points:higher", "points:lower"])
    assert parse(metrics=["points:lower", "points", "points:lower"]).of("points").direction is Direction.LOWER


@pytest.mark.parametrize("option", ["min_effect", "threshold", "rule_out"])
def test_a_share_above_one_needs_the_sign(option: str) -> None:
    flag = f"--{option.replace('_', '-')}"
    with pytest.raises(SelectionError, match=rf"{flag} '{SPEED}=4'.*write 4% or 0.04"):
        parse(**{option: [f"{SPEED}=4"]})
    large = parse(**{option: ["400%"]})
    assert large.described()[option] == "400%" and parse(**{option: ["400%"]}) == large


@pytest.mark.parametrize("option", ["min_effect", "threshold", "rule_out"])
@pytest.mark.parametrize(("name", "said"), [("tok/s", f"did you mean '{SPEED}'"), ("bad", f"Allowed: .*{SPEED}")])
def test_a_share_for_an_unknown_metric_is_refused(option: str, name: str, said: str) -> None:
    pair = paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: NOISY}))
    with pytest.raises(SelectionError, match=f"--{option.replace('_', '-')} {name}: .*{said}"):
        compared(pair, rules=parse(**{option: [f"{name}=2%"]}))
    own = paired(entry("a", {"bad": NOISY}), entry("a", {"bad": NOISY}))
    assert compared(own, rules=parse(metrics=["bad:lower"], **{option: ["bad=2%", f"{FIRST}=60%"]})).rows


def test_only_the_smallest_effect_is_for_all_experiments_together() -> None:
    for option in ("threshold", "rule_out"):
        with pytest.raises(SelectionError, match="only --min-effect"):
            parse(**{option: ["fleet=0.1%"]})


# The gate


def with_verdicts(**counts: int) -> Comparison:
    """A comparison of which one knows the verdicts."""
    makers = {
        "regressed": lambda n: paired(entry(n, {SPEED: [1000]}), entry(n, {SPEED: [500]})),
        "improved": lambda n: paired(entry(n, {SPEED: [1000]}), entry(n, {SPEED: [2000]})),
        "same": lambda n: paired(entry(n, {SPEED: [1000]}), entry(n, {SPEED: [1000]})),
        "inconclusive": lambda n: paired(entry(n, {SPEED: [900, 1000]}), entry(n, {SPEED: [901, 1004]})),
        "missing": lambda n: paired(entry(n, {SPEED: [1000]}), None),
        "new": lambda n: paired(None, entry(n, {SPEED: [1000]})),
        "failed": lambda n: paired(entry(n, {SPEED: [1000]}), entry(n)),
        "old": lambda n: paired(entry(n), entry(n)),
        "other": lambda n: paired(entry(n, {SPEED: [1]}), entry(n, {SPEED: [1]}), disqualifying=("gpu",)),
    }
    return compared(*(makers[name](f"{name}{number}") for name, count in counts.items() for number in range(count)))


@pytest.mark.parametrize(("counts", "code"), cases("verdicts/exit_codes"))
def test_exit_codes(counts: dict[str, int], code: int) -> None:
    assert gate.exit_code(with_verdicts(**counts)) == code


def test_fail_on_says_what_counts() -> None:
    comparison = with_verdicts(regressed=1, same=2, missing=1, inconclusive=1, other=1)
    assert gate.exit_code(comparison, fail_on=()) == 0
    assert gate.exit_code(comparison, fail_on=[Cause.INCONCLUSIVE]) == 3
    assert gate.exit_code(comparison, fail_on=[Cause.NOT_COMPARABLE]) == 1
    assert gate.exit_code(with_verdicts(other=1), fail_on=()) == 4
    assert gate.parse_causes(["regressed", "fleet"]) == (Cause.REGRESSED, Cause.FLEET)
    assert gate.parse_causes(["none"]) == ()
    for words in (["slower"], []):
        with pytest.raises(SelectionError, match="not_comparable"):
            gate.parse_causes(words)


def test_the_last_line_counts_an_experiment_once_for_each_cause() -> None:
    """It counted some causes by rows and others by experiments: `2 may be much worse` was below five such rows."""
    wide = tuple(1000 * math.exp(9 * math.log(value / 1000)) for value in NOISY)
    unsure = entry("a", {SPEED: wide, STEP: wide}), entry("a", {SPEED: times(0.96, wide), STEP: times(1.04, wide)})
    gone = entry("b", {SPEED: NOISY, STEP: NOISY, LOSS: [1.0]}), entry("b", {LOSS: [1.0]})
    comparison = compared(paired(*unsure), paired(*gone))
    assert (gate.causes(comparison)[Cause.MISSING], gate.causes(comparison)[Cause.INCONCLUSIVE]) == (2, 2)
    said = wording.conclusion(comparison, gate.DEFAULT)
    assert said == "worse: 1 experiment with something missing, 1 may be much worse (exit code 1)"
    (more,) = wording.conclusion(comparison, [Cause.INCONCLUSIVE]).split(";")[1:2]
    assert more == " for more runs: `tunebench rerun --from FILE.json`, with the file of `compare --output FILE.json`"


@pytest.mark.parametrize(
    ("metric", "factor", "noise", "code"),
    [
        (SPEED, 0.985, 2, 0),  # -2.5 % to -0.5 %: inconclusive, and 5 % is ruled out
        (SPEED, 0.975, 6, 3),
        (STEP, 1.025, 6, 3),
        (SPEED, 1.04, 9, 0),  # -0.1 % to +8.2 %: only much better is possible
        (STEP, 0.96, 9, 0),
    ],
)
def test_only_a_row_that_may_be_much_worse_makes_exit_code_3(
    metric: str, factor: float, noise: float, code: int
) -> None:
    wide = tuple(1000 * math.exp(noise * math.log(value / 1000)) for value in NOISY)
    comparison = compared(paired(entry("a", {metric: wide}), entry("a", {metric: times(factor, wide)})))
    (row,) = comparison.rows
    assert row.verdict is Verdict.INCONCLUSIVE
    assert (gate.exit_code(comparison), row.may_be_worse_by) == (code, 0.05 if code else None)
    lenient = compared(*comparison.pairs, rules=parse(rule_out=["20%"]))
    assert gate.exit_code(lenient) == 0, "whoever tolerates more gets fewer open builds"


@given(comparable())
def test_exit_code_3_means_an_open_row_whose_interval_reaches_the_slow_side(pairs: list[Pair]) -> None:
    for row in compared(*pairs).rows:
        if row.verdict is not Verdict.INCONCLUSIVE:
            assert row.may_be_worse_by is None
            continue
        rule = Rules().of(row.metric)
        assert row.ratio is not None and row.ratio.interval is not None
        worst = row.ratio.interval.low if rule.direction is Direction.HIGHER else 1 / row.ratio.interval.high
        assert (row.may_be_worse_by is not None) is (worst <= (1 + 1e-9) / (1 + rule.rule_out))


# What the docs promise, on simulated campaigns

ROWS = 4000  # 0.2 % of uncertainty about a share of 2 %


@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_few_false_alarms_and_few_misses_at_five_runs_a_side(drift: float) -> None:
    """Interleaved, 1.5 % between runs: each row by itself, which is the worst case."""
    shape = Shape(rows=ROWS, drift=drift)
    assert share_of(simulated(shape, alone=True)[0].rows, *MOVED) <= 0.024
    assert share_of(simulated(shape, [0.05] * ROWS, alone=True)[0].rows, Verdict.REGRESSED) >= 0.975


def test_the_correction_holds_false_alarms_down_in_a_campaign() -> None:
    unchanged = [row for one in simulated(Shape(rows=20), count=200) for row in one.rows]
    assert share_of(unchanged, *MOVED) <= 0.005
    slower = [row for one in simulated(Shape(rows=20), [0.05] * 20, count=200) for row in one.rows]
    assert share_of(slower, Verdict.REGRESSED) >= 0.98


def test_the_docs_table_is_how_it_is_judged() -> None:
    text = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    for name in DEFAULT:
        rule = Rules().of(name)
        one = rule.one_run_effect if rule.judged is Judged.TEST else rule.min_effect
        fleet = "-" if rule.judged is Judged.GUARD else f"{rule.fleet_effect * 100:g} %"
        row = (
            f"| `{name}` | {rule.judged} | {rule.direction} | {rule.min_effect * 100:g} % | {one * 100:g} % | {fleet} |"
        )
        assert row in text
    assert f"level is {LEVEL}," in text


@pytest.mark.parametrize(
    ("model", "package", "is_judged"),
    [
        ("config:tiny-llama", "transformers", False),
        ("config:tiny-llama", "torch", False),
        ("config:tiny-llama", "driver", True),
        ("meta-llama/Llama-3.2-1B", "transformers", True),
    ],
)
def test_losses_of_random_weights_are_not_compared_across_the_versions_that_draw_them(
    model: str, package: str, is_judged: bool
) -> None:
    base, new = entry("a", {LOSS: [8.351] * 3}), entry("a", {LOSS: [8.221] * 3})
    key = {**base.key, "model_name_or_path": model}
    changed = (Difference(name=package, base="4.55.4", new="5.23.0"),)
    pair = replace(paired(replace(base, key=key), replace(new, key=key)), environment=changed)
    (row,) = compared(pair).rows
    assert (row.verdict is not Verdict.UNTESTED) == is_judged
    assert is_judged or f"random weights, which another version of {package} may draw otherwise" in row.why
    arguments = {"weights": "saved"}
    saved = replace(paired(*(replace(one, key=key, arguments=arguments) for one in (base, new))), environment=changed)
    assert compared(saved).rows[0].verdict is not Verdict.UNTESTED


@pytest.mark.parametrize("known", ["4f0c", None])
def test_losses_of_runs_that_started_from_other_weights_are_not_compared(known: str | None) -> None:
    """The file of saved weights is each machine's own. An older record does not say which weights were loaded."""
    base, new = entry("a", {LOSS: [8.351] * 3}), entry("a", {LOSS: [8.9] * 3})
    changed = (Difference(name="effective_model_fingerprint", base=known, new="93ab"),)
    (row,) = compared(replace(paired(base, new), arguments=changed)).rows
    assert (row.verdict is Verdict.UNTESTED) == (known is not None)
    assert known is None or row.why == "the runs started from other weights (model_fingerprint 4f0c and 93ab)"


@pytest.mark.parametrize(
    ("argument", "is_judged"),
    [("gradient_accumulation_steps", False), ("effective_global_batch", False), ("r", True), ("optim", True)],
)
def test_the_time_of_a_step_is_not_compared_if_a_step_has_other_work(argument: str, is_judged: bool) -> None:
    """Twice the batch took 1.8 times as long, and a build failed although the training was faster."""
    base = entry("a", {"step_time_s": [1.0, 1.01, 0.99], "tokens_per_s": [100.0, 101.0, 99.0]})
    new = entry("a", {"step_time_s": [1.8, 1.81, 1.79], "tokens_per_s": [110.0, 111.0, 109.0]})
    pair = replace(paired(base, new), arguments=(Difference(name=argument, base="1", new="2"),))
    rows = {row.metric: row for row in compared(pair).rows}
    assert rows["tokens_per_s"].verdict is Verdict.IMPROVED
    assert rows["step_time_s"].verdict is (Verdict.REGRESSED if is_judged else Verdict.UNTESTED)
    name = argument.removeprefix("effective_")
    assert is_judged or rows["step_time_s"].why == f"{name} differs, which changes the work that it measures"


@pytest.mark.parametrize(
    ("errors", "side"), [((1.2, 1.2), "base and the new side"), ((1.2, 1e-7), "base"), ((1e-7, 1e-7), "")]
)
def test_the_call_of_an_operator_with_a_wrong_result_has_no_speed(errors: tuple[float, float], side: str) -> None:
    """A function that returned zeros on both sides was `improved`, and a right one in place of a wrong one `regressed`."""
    base, new = (
        entry("a", {"call_time_s": times(4.0**end), "relative_error": [1e-7] * 4 + [error]})
        for end, error in enumerate(errors)
    )
    row = {row.metric: row for row in compared(paired(base, new)).rows}["call_time_s"]
    why = f"the operator's result is wrong on {side}, so it has no speed"
    assert (row.verdict, row.why) == ((Verdict.UNTESTED, why) if side else (Verdict.REGRESSED, ""))


@pytest.mark.parametrize(
    ("arguments", "reason", "numbers"),
    [
        (
            ["optim", "per_device_train_batch_size"],
            "per_device_train_batch_size",
            {FIRST: 3.0, STEP: 3.0, LOSS: 0.8, "steps_to_target": 2.0, "train_runtime": 3.0},
        ),
        (["max_steps", "lr_scheduler_type"], "max_steps", {LOSS: 1.2, "train_runtime": 3.0}),
        (
            ["shape"],
            "shape",
            {"call_time_s": 4.0, "host_time_s": 4.0, "device_time_s": 4.0, "relative_error": 3.0},
        ),
    ],
)
def test_other_work_of_a_step_or_a_call_is_no_regression(
    arguments: list[str], reason: str, numbers: dict[str, float]
) -> None:
    """With batch 4 instead of 1, the first step was 60 % slower, and with a larger shape the host: both ended with exit code 1."""
    base, new = (
        entry("a", {name: times(factor**end) for name, factor in numbers.items()} | {MEMORY: [1000.0] * 5})
        for end in (0, 1)
    )
    pair = replace(paired(base, new), arguments=tuple(Difference(name=name, base="1", new="2") for name in arguments))
    found = compared(pair)
    rows = {row.metric: row for row in found.rows}
    assert rows.keys() == {*numbers, MEMORY}
    assert rows.pop(MEMORY).verdict is Verdict.SAME
    assert {row.why for row in rows.values()} == {f"{reason} differs, which changes the work that it measures"}
    assert {row.verdict for row in rows.values()} == {Verdict.UNTESTED} and gate.exit_code(found) == 0
    first = next(iter(numbers))
    sides = {"base": base, "new": new}
    alone = {side: replace(one, runs=entry("a", {first: times(1)}).runs) for side, one in sides.items()}
    nothing = compared(replace(pair, **alone))
    assert gate.exit_code(nothing) == gate.NOTHING_COMPARABLE
    assert wording.conclusion(nothing, gate.DEFAULT).startswith("nothing comparable: each row is untested")
    larger = replace(pair, new=replace(new, runs=entry("a", {MEMORY: [2000.0] * 5}).runs))
    assert [row.metric for row in compared(larger).rows if row.verdict is Verdict.REGRESSED] == [MEMORY]


def test_a_pair_with_other_work_counts_for_no_mean_over_all_experiments() -> None:
    factors = {"a": 1.01, "b": 1.02, "c": 1.03}
    pairs = [
        paired(entry(name, {STEP: times(1)}), entry(name, {STEP: times(factor)})) for name, factor in factors.items()
    ]
    batch = Difference(name="per_device_train_batch_size", base="1", new="4")
    noisy = paired(entry("other", {STEP: NOISY}), entry("other", {STEP: (1.0, 9.0, 2.0, 8.0, 3.0)}))
    assert compared(*pairs, replace(noisy, arguments=(batch,))).fleet == compared(*pairs).fleet
    assert compared(*pairs, noisy).fleet != compared(*pairs).fleet
