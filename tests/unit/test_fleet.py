"""All experiments together: what the rounds share is noise, and a change of all experiments is found all the same."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from factories.comparisons import NOISY, SPEED, compared, entry, paired
from hypothesis import given
from hypothesis import strategies as st
from verdicts import Setting, campaign

from orchestrator.compare.comparison import Entry, Pair, Verdict
from orchestrator.compare.view import as_markdown, terminal


def with_moods(pairs: list[Pair], rng: random.Random, *, mood: float) -> list[Pair]:
    """Change all runs of one round of a side by the same share."""

    def changed(one: Entry | None, moods: list[float]) -> Entry:
        assert one is not None
        runs = zip(one.runs, moods, strict=False)
        return replace(one, runs=tuple(replace(run, numbers={SPEED: run.numbers[SPEED] * mood}) for run, mood in runs))

    base, new = ([math.exp(rng.gauss(0, mood)) for _ in range(10)] for _ in range(2))
    return [replace(pair, base=changed(pair.base, base), new=changed(pair.new, new)) for pair in pairs]


def verdicts(count: int, *, runs: int, effect: float = 1.0, mood: float = 0.0) -> list[Verdict]:
    rng = random.Random(runs)
    made = (campaign(rng, Setting(runs=runs), effects=[effect] * 20) for _ in range(count))
    return [compared(*with_moods(pairs, rng, mood=mood)).fleet[0].verdict for pairs in made]


@pytest.mark.parametrize("runs", [3, 5])
def test_a_mood_of_a_round_is_no_change(runs: int) -> None:
    """1 % that all experiments of a round share. By the rows only, 14 to 26 % of such campaigns seemed to have changed."""
    found = verdicts(150, runs=runs, mood=0.01)
    assert len(found) - found.count(Verdict.SAME) - found.count(Verdict.INCONCLUSIVE) <= 0.06 * len(found)


@pytest.mark.parametrize("runs", [3, 5])
def test_a_slower_fleet_is_found(runs: int) -> None:
    found = verdicts(100, runs=runs, effect=0.98)
    assert found.count(Verdict.REGRESSED) >= 95


def test_rows_that_lack_rounds_count_by_their_ratio_only() -> None:
    full = [paired(entry(str(n), {SPEED: NOISY}), entry(str(n), {SPEED: NOISY[::-1]})) for n in range(5)]
    short = paired(entry("short", {SPEED: NOISY[:1]}), entry("short", {SPEED: [1010.0]}))
    alone, beside = compared(*full).fleet[0], compared(*full, short).fleet[0]
    assert (alone.pairs, beside.pairs) == (5, 6)
    assert beside.ratio.value == pytest.approx(1.01 ** (1 / 6), rel=1e-6)


def test_one_side_after_the_other_is_said() -> None:
    def fleet(new_at: float) -> str:
        pairs = [
            paired(
                entry(str(n), {SPEED: NOISY}, started_at=range(n, n + 50, 10)),
                entry(str(n), {SPEED: NOISY}, started_at=[new_at + n + 10 * k for k in range(5)]),
            )
            for n in range(3)
        ]
        comparison = compared(*pairs)
        return terminal.text(comparison, width=140) + as_markdown.text(comparison, conclusion="")

    assert fleet(1000.5).count("cannot be told from another day") == 2
    assert "another day" not in fleet(0.5)


values = st.lists(st.floats(0.5, 2.0).map(lambda value: round(value, 3)), min_size=1, max_size=5)


@given(st.lists(st.tuples(values, values), min_size=2, max_size=6))
def test_the_exchange_of_sides_inverts_and_rounds_only_widen(rows: list[tuple[list[float], list[float]]]) -> None:
    def of(sides: list[tuple[list[float], list[float]]]) -> tuple[float, float, float]:
        pairs = [paired(entry(str(n), {SPEED: a}), entry(str(n), {SPEED: b})) for n, (a, b) in enumerate(sides)]
        ratio = compared(*pairs).fleet[0].ratio
        assert ratio.interval is not None
        return math.log(ratio.value), math.log(ratio.interval.low), math.log(ratio.interval.high)

    value, low, high = of(rows)
    other, other_low, other_high = of([(new, base) for base, new in rows])
    assert (value, low, high) == pytest.approx((-other, -other_high, -other_low), rel=1e-6, abs=1e-6)
    assert low <= value <= high
