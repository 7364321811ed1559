"""Logged losses as a cell: means stay means however they are thinned, and two trainings meet at a step that both logged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measure.losses import Shared, as_text, over_the_same_steps
from orchestrator.measure.metrics import METRICS

LOSSES = st.lists(st.floats(0.01, 20), min_size=1, max_size=200)


def logged(losses: list[float], every: int) -> list[tuple[int, float]]:
    return [(every * place, loss) for place, loss in enumerate(losses, start=1)]


def test_few_losses_stand_as_they_were_logged() -> None:
    assert as_text([(10, 9.23811111), (20, 4.5), (25, 3.0)]) == "10:9.23811 20:4.5 25:3"
    assert as_text([]) is None
    assert as_text([(10, 1.0), (10, 2.0)]) is None


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e31, -1e300, 1e-320])
def test_what_is_no_loss_is_no_cell(loss: float) -> None:
    """A sum of such would be no number, or a ratio would be none."""
    assert as_text([(10, loss)]) is None
    assert over_the_same_steps(f"10:{loss}", "10:2") is None


def test_of_many_there_are_four_for_each_doubling_and_the_last() -> None:
    text = as_text(logged([float(n) for n in range(1, 36)], every=5))
    assert text is not None
    points = text.split(" ")
    assert [int(point.partition(":")[0]) // 5 for point in points] == [*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 35]
    assert points[8:10] == ["50:9.5", "60:11.5"] and points[-1] == "175:34"
    assert "Each doubling of the step number has at most four points" in METRICS["logged_losses"].description


@given(LOSSES, LOSSES, st.integers(1, 20))
def test_the_mean_is_that_of_the_steps_of_both(one: list[float], other: list[float], every: int) -> None:
    """By the losses themselves, up to a step that lies behind four fifths of the shorter training."""
    texts = [as_text(logged(losses, every)) or "" for losses in (one, other)]
    shorter = min(len(one), len(other))
    means = {
        n: (sum(one[:n]) / n, sum(other[:n]) / n) for n in range(1, shorter + 1) if n >= shorter or 5 * n > 4 * shorter
    }
    found = over_the_same_steps(*texts)
    assert found is not None
    assert (found.first, found.second) == pytest.approx(means[found.steps // every], rel=1e-4)


def test_repeats_meet_where_all_have_a_point() -> None:
    assert over_the_same_steps("2:1 4:3, 2:3", "2:5 4:9 6:9") == Shared(steps=2, first=2.0, second=5.0)


def test_the_beginning_alone_is_no_comparison() -> None:
    """All losses are alike there."""
    assert over_the_same_steps("1:11 7:11", "1:11 10:5 40:1") is None
    assert over_the_same_steps("10:11 900:11", "10:11 1000:2") is None
    assert over_the_same_steps("10:11 19:11", "10:11 20:11") == Shared(steps=10, first=11.0, second=11.0)


@pytest.mark.parametrize(
    "other", ["3:1", "", "None", "2:nan", "2:1:3", "4:1 2:1", "2:1 x", "0:1", "2:1  4:1", "9" * 20 + ":1"]
)
def test_where_nothing_is_shared_there_is_no_mean(other: str) -> None:
    assert over_the_same_steps("2:1 4:3", other) is None
    assert over_the_same_steps(other, "2:1 4:3") is None
