"""All experiments together: what the rounds share is noise, and a change of all experiments is found all the same."""

from __future__ import annotations

import math

import pytest
from factories.comparisons import MOVED, NOISY, SPEED, compared, entry, paired, share_of, simulated
from hypothesis import given
from hypothesis import strategies as st
from simulated.shapes import Shape

from orchestrator.compare.comparison import Verdict
from orchestrator.compare.view import as_markdown, terminal


@pytest.mark.parametrize("runs", [3, 5])
def test_a_mood_of_a_round_is_no_change(runs: int) -> None:
    """1 % that all experiments of a round share. By the rows only, 14 to 26 % of such campaigns seemed to have changed."""
    found = [line for one in simulated(Shape(rows=20, runs=runs, common=0.01), count=150) for line in one.fleet]
    assert len(found) == 150 and share_of(found, *MOVED) <= 0.06


@pytest.mark.parametrize("runs", [3, 5])
def test_a_slower_fleet_is_found(runs: int) -> None:
    found = [line for one in simulated(Shape(rows=20, runs=runs), [0.02] * 20, count=100) for line in one.fleet]
    assert len(found) == 100 and share_of(found, Verdict.REGRESSED) >= 0.95


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

    assert fleet(1000.5).count("would look the same") == 2
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
