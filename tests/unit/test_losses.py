"""Logged losses as a cell: means stay means however they are thinned, and two trainings meet at a step that both logged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.losses import MAX_POINTS, as_text, over_the_same_steps
from orchestrator.metrics import METRICS

LOSSES = st.lists(st.floats(0.01, 20), min_size=1, max_size=200)


def logged(losses: list[float], every: int) -> list[tuple[int, float]]:
    return [(every * place, loss) for place, loss in enumerate(losses, start=1)]


def test_few_losses_stand_as_they_were_logged() -> None:
    assert as_text([(10, 9.23811111), (20, 4.5), (25, 3.0)]) == "10:9.23811 20:4.5 25:3"
    assert as_text([]) is None
    assert as_text([(10, math.nan)]) is None
    assert as_text([(10, 1.0), (10, 2.0)]) is None


def test_many_are_put_together_from_the_beginning() -> None:
    text = as_text(logged([float(n) for n in range(1, 36)], every=5))
    assert text is not None
    assert text.split(" ")[:2] + text.split(" ")[-2:] == ["10:1.5", "20:3.5", "170:33.5", "175:35"]
    assert len(text.split(" ")) == 18
    assert f"at most {MAX_POINTS} points" in METRICS["logged_losses"].description


@given(LOSSES, LOSSES, st.integers(1, 20))
def test_the_mean_is_that_of_the_steps_of_both(one: list[float], other: list[float], every: int) -> None:
    """By the shorter training's own losses, up to its last point or, thinned, the last that the coarser has as well."""
    texts = [as_text(logged(losses, every)) for losses in (one, other)]
    assert texts[0] is not None and texts[1] is not None
    assert max(len(text.split(" ")) for text in texts if text) <= MAX_POINTS
    found = over_the_same_steps(texts[0], texts[1])
    steps = [[int(point.partition(":")[0]) for point in text.split(" ")] for text in texts if text]
    shared = set(steps[0]) & set(steps[1])
    if not shared:
        assert min(len(one), len(other)) < 200 / MAX_POINTS * 2
        return
    n = max(shared) // every
    assert n > min(len(one), len(other)) - 2 * max(len(one), len(other)) / MAX_POINTS - 1, (
        "nearly the shorter one's end"
    )
    assert found == pytest.approx((sum(one[:n]) / n, sum(other[:n]) / n), rel=1e-4)


def test_repeats_meet_where_all_have_a_point() -> None:
    assert over_the_same_steps("2:1 4:3, 2:3", "2:5 4:9 6:9") == (2.0, 5.0)


@pytest.mark.parametrize(
    "other", ["3:1", "", "None", "2:nan", "2:1:3", "4:1 2:1", "2:1 x", "0:1", "2:1  4:1", "9" * 20 + ":1"]
)
def test_where_nothing_is_shared_there_is_no_mean(other: str) -> None:
    assert over_the_same_steps("2:1 4:3", other) is None
    assert over_the_same_steps(other, "2:1 4:3") is None
