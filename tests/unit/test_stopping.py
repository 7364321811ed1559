"""The early stop's rule, as the training process applies it. How often it is right is simulated in test_statistics."""

from __future__ import annotations

import random

import pytest
from stopping import Stopping, half_width

from orchestrator.measure.intervals import median_interval


def looks(rule: Stopping, seconds: list[float], *, every: int = 10) -> int | None:
    """After how many steps it is enough."""
    for number, value in enumerate(seconds, start=1):
        rule.add(value)
        if number % every == 0 and rule.verdict()[0]:
            return number
    return None


def noisy(n: int, sd: float) -> list[float]:
    rng = random.Random(3)
    return [rng.gauss(1.0, sd) for _ in range(n)]


def test_the_interval_is_the_one_that_the_report_shows() -> None:
    for length in (40, 120):
        series = noisy(length, 0.05)
        interval = median_interval(series)
        assert interval is not None
        middle = (interval.low + interval.high) / 2
        assert half_width(series) == pytest.approx((interval.high - interval.low) / 2 / middle, rel=1e-5)


def test_a_quiet_run_stops_after_two_looks() -> None:
    assert looks(Stopping(0, None, 0.01), noisy(500, 0.001)) == 30
    assert looks(Stopping(0, 100, 0.01), noisy(500, 0.001)) == 120


def test_a_noisy_run_goes_on() -> None:
    rule = Stopping(0, None, 0.01)
    assert looks(rule, noisy(200, 0.2)) is None
    assert rule.verdict()[1] is not None and rule.verdict()[1] > 0.01  # type: ignore[operator]


def test_a_declared_warm_up_does_not_count() -> None:
    assert looks(Stopping(50, None, 0.01), [5.0] * 50 + noisy(500, 0.001)) == 80


def test_an_undeclared_warm_up_can_hold_half_of_the_steps() -> None:
    stopped = looks(Stopping(None, None, 0.01), [5.0] * 30 + noisy(500, 0.001))
    assert stopped is not None and stopped >= 60


def test_too_few_steps_say_nothing() -> None:
    rule = Stopping(None, None, 0.01)
    rule.add(1.0)
    assert rule.verdict() == (False, None)
    assert half_width([1.0] * 7) is None
