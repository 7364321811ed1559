"""The early end of a program that reports its own steps: the same decision as inside a Trainer."""

from __future__ import annotations

import random

import pytest
from ending import Stopping
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import Measure
from orchestrator.run.reported_steps.early_end import EarlyEnd


def ended(measure: Measure, seconds: list[float]) -> tuple[str | None, int | None]:
    rule = EarlyEnd(measure)
    for value in seconds:
        rule.add(value)
    return rule.why, rule.step


def noisy(count: int, share: float, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [1.0 + share * draw.gauss(0, 1) for _ in range(count)]


def test_a_number_of_steps_ends_a_run() -> None:
    assert ended(Measure(at_most_steps=7), [0.1] * 6) == (None, None)
    assert ended(Measure(at_most_steps=7), [0.1] * 30) == ("at_most_steps", 7)


def test_without_a_rule_nothing_ends_it() -> None:
    assert ended(Measure(discard_steps=3), [0.1] * 500) == (None, None)


def test_what_comes_first_ends_it() -> None:
    assert ended(Measure(at_most_steps=300, within=0.05), noisy(400, 0.001))[0] == "within"
    assert ended(Measure(at_most_steps=30, within=0.0001), noisy(400, 0.05)) == ("at_most_steps", 30)


@given(
    st.integers(0, 100), st.sampled_from([None, 0, 5]), st.sampled_from([None, 12, 40]), st.sampled_from([0.002, 0.02])
)
def test_it_decides_as_the_rule_inside_a_trainer(
    seed: int, discard: int | None, least: int | None, share: float
) -> None:
    seconds = [3.0] * 5 + noisy(300, share, seed)
    inside, when = Stopping(discard, least, 0.01), None
    for made, value in enumerate(seconds, start=1):
        inside.add(value)
        if made % 10 == 0 and inside.verdict()[0]:
            when = made
            break
    assert ended(Measure(discard_steps=discard, at_least_steps=least, within=0.01), seconds)[1] == when


@given(st.integers(0, 20), st.sampled_from([None, 5]), st.floats(0, 120))
def test_it_waits_for_the_time_as_the_rule_inside_a_trainer(seed: int, discard: int | None, least_s: float) -> None:
    seconds = noisy(150, 0.002, seed)
    inside, when = Stopping(discard, None, 0.01, least_s), None
    for made, value in enumerate(seconds, start=1):
        inside.add(value)
        if made % 10 == 0 and inside.verdict()[0]:
            when = made
            break
    why, step = ended(Measure(discard_steps=discard, within=0.01, at_least_s=least_s), seconds)
    assert (why, step) == ("within", when)
    assert when is not None and least_s <= sum(seconds[:when])
    soonest = ended(Measure(discard_steps=discard, within=0.01), seconds)[1]
    assert when == soonest or sum(seconds[: when - 10]) < least_s


@pytest.mark.parametrize(
    ("measure", "made", "left"),
    [
        (Measure(at_most_steps=50), 0, 50),
        (Measure(at_most_steps=50), 49, 1),
        (Measure(discard_steps=5, within=0.01), 0, 30),
        (Measure(within=0.01), 10, 30),
        (Measure(at_most_steps=25, within=0.01), 10, 15),
        (Measure(discard_steps=0, within=0.01, at_least_s=85.0), 40, 50),
    ],
)
def test_it_says_after_how_many_steps_to_look_again(measure: Measure, made: int, left: int) -> None:
    rule = EarlyEnd(measure)
    for step in range(made):
        rule.add(1.0 + step % 7 / 1000)
    assert rule.steps_to_go() == left
