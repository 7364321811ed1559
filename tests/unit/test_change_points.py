"""Steps in series: the fit against all fits that there are, its symmetries, how often it errs and what it finds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compare.history.change_points import MIN_LENGTH, levels, weighted_median

TINY = 1e-9
Noise = Callable[[random.Random], float]


def normal(rng: random.Random) -> float:
    return rng.gauss(0, 1)


def two_sided_exponential(rng: random.Random) -> float:
    return rng.expovariate(math.sqrt(2)) * rng.choice((-1, 1))


def heavy_tailed(rng: random.Random) -> float:
    """Student's t with three degrees of freedom."""
    return rng.gauss(0, 1) / math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(3)) / 3)


def steps(values: Sequence[float], *, error: float = TINY) -> list[int]:
    return [one.start for one in levels(values, errors=[error] * len(values))[1:]]


def noisy_step(rng: random.Random, count: int, size: float) -> list[float]:
    return [normal(rng) + (size if at >= count // 2 else 0) for at in range(count)]


def deviations(values: Sequence[float], bounds: Sequence[int]) -> float:
    parts = [values[start:stop] for start, stop in pairwise(bounds)]
    return math.fsum(abs(value - weighted_median(part, [1.0] * len(part))) for part in parts for value in part)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=9))
def test_no_other_places_for_as_many_steps_fit_better(values: list[float]) -> None:
    found = levels(values, errors=[0.1] * len(values))
    bounds = [0, *(one.stop for one in found)]
    every = [
        (0, *places, len(values))
        for places in combinations(range(1, len(values)), len(found) - 1)
        if all(stop - start >= MIN_LENGTH for start, stop in pairwise((0, *places, len(values)))) or not places
    ]
    assert deviations(values, bounds) == pytest.approx(min(deviations(values, one) for one in every), abs=1e-9)


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(0.01, 10)), max_size=30))
def test_levels_lie_end_to_end_and_each_is_its_values_weighted_median(points: list[tuple[float, float]]) -> None:
    values, errors = [value for value, _ in points], [error for _, error in points]
    found = levels(values, errors=errors)
    assert [one.start for one in found] == [0, *(one.stop for one in found)][: len(found)]
    assert (found[-1].stop if found else 0) == len(values)
    for one in found:
        weights = [1 / error for error in errors[one.start : one.stop]]
        assert one.value == weighted_median(values[one.start : one.stop], weights)
        assert len(found) == 1 or one.stop - one.start >= MIN_LENGTH


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.01, 10)), min_size=1, max_size=20))
def test_a_weighted_median_has_the_least_weighted_deviations(points: list[tuple[float, float]]) -> None:
    values, weights = [value for value, _ in points], [weight for _, weight in points]

    def cost(middle: float) -> float:
        return math.fsum(weight * abs(value - middle) for value, weight in points)

    assert cost(weighted_median(values, weights)) <= min(map(cost, values)) + 1e-6


@pytest.mark.parametrize("noise", [normal, two_sided_exponential, heavy_tailed])
@pytest.mark.parametrize("count", [4, 5, 6, 8, 12, 20, 40])
def test_a_series_without_a_step_has_none_found_in_it(noise: Noise, count: int) -> None:
    rng = random.Random(f"{noise.__name__} {count}")
    wrong = sum(bool(steps([noise(rng) for _ in range(count)])) for _ in range(300))
    assert wrong <= 0.05 * 300


@pytest.mark.parametrize(("count", "size"), [(20, 3), (30, 3), (8, 5), (20, 5)])
def test_a_step_is_found_at_its_place(count: int, size: float) -> None:
    """Give or take one campaign: the noise of the two beside the step may change their places."""
    rng = random.Random(f"{count} {size}")
    found = [steps(noisy_step(rng, count, size)) for _ in range(200)]
    right = sum(len(places) == 1 and abs(places[0] - count // 2) <= 1 for places in found)
    assert sum(bool(places) for places in found) >= 0.9 * len(found)
    assert right >= 0.85 * len(found)


def test_two_steps_are_two() -> None:
    rng = random.Random(5)
    values = [normal(rng) / 10 + level for level in (0, 2, 1) for _ in range(8)]
    assert steps(values) == [8, 16]


@pytest.mark.parametrize("seed", range(20))
def test_scaling_and_shifting_change_no_step_and_reversing_mirrors_them(seed: int) -> None:
    rng = random.Random(seed)
    values = noisy_step(rng, rng.randint(6, 30), rng.choice((0, 4, 8)))
    errors = [rng.uniform(0.1, 0.4) for _ in values]
    found = levels(values, errors=errors)
    scaled = levels([64 * value for value in values], errors=[64 * error for error in errors])
    assert [one.start for one in scaled] == [one.start for one in found]
    shifted = levels([value + 16 for value in values], errors=errors)
    assert [one.start for one in shifted] == [one.start for one in found]
    mirrored = levels(values[::-1], errors=errors[::-1])
    assert [(len(values) - one.stop, one.value) for one in reversed(mirrored)] == [
        (one.start, one.value) for one in found
    ]


def test_one_odd_campaign_is_no_step_and_pulls_no_level() -> None:
    values = [0.00, 0.01, -0.01, 0.02, 3.0, 0.01, -0.02, 0.0, 0.01]
    (only,) = levels(values, errors=[0.01] * len(values))
    assert only.value == 0.01


def test_identical_values_step_where_they_do() -> None:
    assert steps([1.0] * 5 + [1.005] * 3, error=0.001) == [5]
    assert steps([1.0] * 8, error=0.001) == []


def test_no_smaller_noise_is_believed_than_the_values_are_known_to_have() -> None:
    values = [0.0, 0.001, 0.0, 0.001, 0.02, 0.021, 0.02, 0.021]
    assert steps(values, error=0.001) == [4]
    assert steps(values, error=0.05) == []


def test_what_is_known_better_weighs_more() -> None:
    assert weighted_median([1.0, 2.0, 3.0], [1, 1, 5]) == 3
    assert weighted_median([1.0, 2.0], [1, 1]) == 1.5
    with pytest.raises(ValueError, match="at least one value"):
        weighted_median([], [])


def test_few_values_have_one_level_and_none_has_no_level() -> None:
    assert levels([], errors=[]) == ()
    for count in (1, 2, 3):
        assert len(levels([10.0**at for at in range(count)], errors=[TINY] * count)) == 1


@pytest.mark.parametrize("errors", [[0.1], [0.1, 0.0], [0.1, -1.0], [0.1, math.nan]])
def test_each_value_needs_an_error(errors: list[float]) -> None:
    with pytest.raises(ValueError, match="standard error"):
        levels([1.0, 2.0], errors=errors)


def test_a_value_of_a_large_error_confirms_no_level() -> None:
    """An odd night before a night whose runs differed by half was a step, although nothing confirmed it."""
    rng = random.Random(4)
    plain = [rng.gauss(0, 1) for _ in range(10)]
    odd = [*plain, 12.0, 15.0]
    assert [one.start for one in levels(odd, errors=[1.0] * 12)] == [0, 10]
    assert [one.start for one in levels(odd, errors=[1.0] * 11 + [20.0])] == [0]
    assert [one.start for one in levels([*odd, 11.0], errors=[1.0] * 11 + [20.0, 1.0])] == [0, 10]
    assert [one.start for one in levels(odd, errors=[1.0] * 10 + [3.0, 3.0])] == [0, 10]
