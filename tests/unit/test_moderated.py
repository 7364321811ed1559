"""The noise that many rows share: what it changes, what it never changes, and how much more is found with it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from factories.comparisons import MOVED, SPEED, compared, entry, paired, share_of, simulated
from hypothesis import given
from hypothesis import strategies as st
from simulated.shapes import Shape

from orchestrator.compare.comparison import Verdict
from orchestrator.compare.view import wording
from orchestrator.measure.intervals import Estimate, estimate
from orchestrator.measure.intervals.moderated import DEGREES, FEWEST, common, moderated


def rows(variances: list[float], degrees: float = 7.0) -> list[Estimate]:
    more = {"shift": 0.01, "weight": 2.4, "degrees": degrees, "n_base": 5, "n_new": 5}
    return [Estimate(variance=variance, **more) for variance in variances]  # type: ignore[arg-type]


def noise(count: int, *, spread: float, degrees: int = 7, seed: int = 1) -> list[float]:
    """Measured variances of rows that have a true variance of 1, or variances around 1."""
    rng = random.Random(seed)
    true = [math.exp(2 * rng.gauss(0, spread)) for _ in range(count)]
    return [one * sum(rng.gauss(0, 1) ** 2 for _ in range(degrees)) / degrees for one in true]


def test_few_rows_have_only_their_own_noise() -> None:
    few = rows([1.0, 2.0] * (FEWEST // 2))[: FEWEST - 1]
    assert moderated(few) == few
    assert moderated([]) == [] and moderated(few[:1]) == few[:1]
    assert moderated(rows([0.0] * FEWEST)) == rows([0.0] * FEWEST)


def test_equal_noise_is_pooled_and_no_row_knows_more_than_all_rows() -> None:
    made = moderated(rows(noise(200, spread=0)))
    assert {row.degrees for row in made} == {DEGREES[-1] + 7.0}
    assert all(0.9 < row.variance < 1.1 for row in made)
    assert {row.degrees for row in moderated(rows([1.0] * FEWEST))} == {7.0 * FEWEST}


def test_unequal_noise_stays_with_its_row() -> None:
    prior = common([(variance, 7.0) for variance in noise(200, spread=2.0)])
    assert prior is not None and prior.degrees < 1
    one = moderated(rows([*noise(200, spread=2.0), 100.0]))[-1]
    assert one.variance > 80


@pytest.mark.parametrize("true", [4.0, 16.0])
def test_the_degrees_of_the_model_are_found(true: float) -> None:
    """True variances of a scaled inverse chi-squared distribution around 1e-4."""
    rng = random.Random(1)
    made = [(1e-4 * true / rng.gammavariate(true / 2, 2) * rng.gammavariate(3.5, 2) / 7, 7.0) for _ in range(2000)]
    prior = common(made)
    assert prior is not None
    assert true / 1.5 <= prior.degrees <= true * 1.5
    assert prior.variance == pytest.approx(1e-4, rel=0.1)


variances = st.lists(st.floats(1e-8, 1e-2), min_size=FEWEST, max_size=30)


@given(variances, st.floats(2, 20))
def test_a_variance_moves_towards_the_common_one_and_the_ratio_never(values: list[float], degrees: float) -> None:
    prior = common([(value, degrees) for value in values])
    assert prior is not None
    for before, after in zip(rows(values, degrees), moderated(rows(values, degrees)), strict=True):
        low, high = sorted((before.variance, prior.variance))
        assert low * (1 - 1e-9) <= after.variance <= high * (1 + 1e-9)
        assert before.degrees <= after.degrees <= before.degrees * len(values)
        assert replace(after, variance=before.variance, degrees=before.degrees) == before


@given(variances, st.sampled_from([1e-3, 7.0, 1e4]))
def test_the_unit_does_not_matter(values: list[float], factor: float) -> None:
    for one, scaled in zip(moderated(rows(values)), moderated(rows([v * factor for v in values])), strict=True):
        assert scaled.variance == pytest.approx(one.variance * factor, rel=1e-6)
        assert scaled.degrees == one.degrees


@given(st.lists(st.lists(st.floats(0.9, 1.1), min_size=4, max_size=4), min_size=FEWEST, max_size=FEWEST))
def test_exchanged_sides_invert_the_moderated_ratios(sides: list[list[float]]) -> None:
    there = moderated([estimate(side[:2], side[2:]) for side in sides])
    back = moderated([estimate(side[2:], side[:2]) for side in sides])
    for one, other in zip(there, back, strict=True):
        assert one.ratio().value * other.ratio().value == pytest.approx(1)
        assert one.ratio().p == pytest.approx(other.ratio().p, rel=1e-6)


# In a comparison


def test_interval_and_p_value_use_the_same_noise() -> None:
    shape = Shape(rows=40)
    together, by_itself = simulated(shape)[0].rows, simulated(shape, alone=True)[0].rows
    for row, other in zip(together, by_itself, strict=True):
        assert row.ratio is not None and other.ratio is not None
        assert row.ratio.interval is not None and row.ratio.p is not None
        assert row.ratio.value == other.ratio.value
        assert (row.ratio.p < 0.05) == (not row.ratio.interval.low <= 1 <= row.ratio.interval.high)
    assert [row.ratio for row in together] != [row.ratio for row in by_itself]


def test_an_inconclusive_row_says_why_its_interval_excludes_0() -> None:
    same, slower = (1000.0, 1040.0, 960.0, 1020.0, 980.0), (945.0, 985.0, 905.0, 965.0, 925.0)
    others = [paired(entry(str(n), {SPEED: same}), entry(str(n), {SPEED: same[1:]})) for n in range(7)]
    row = compared(paired(entry("slower", {SPEED: same}), entry("slower", {SPEED: slower})), *others).rows[0]
    assert row.verdict is Verdict.INCONCLUSIVE
    assert row.ratio is not None and row.ratio.interval is not None and row.ratio.interval.high < 1
    assert "excludes 0%, but adjusted p" in wording.note(row)


def test_one_slow_row_of_many_is_found() -> None:
    """Five runs per side, 1.5 % between runs, one row of 20 slower by 5 %: 95 %, and 61 % by the noise of the row only."""
    campaigns = simulated(Shape(rows=20), [0.05], count=150)
    assert share_of([campaign.rows[0] for campaign in campaigns], Verdict.REGRESSED) >= 0.9
    assert share_of([row for one in simulated(Shape(rows=20), count=150) for row in one.rows], *MOVED) <= 0.004
    campaigns = simulated(Shape(rows=200), [0.05], count=20)
    assert share_of([campaign.rows[0] for campaign in campaigns], Verdict.REGRESSED) >= 0.8
