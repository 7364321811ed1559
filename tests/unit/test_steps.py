"""The steps that ranks make together: they begin and end with the last rank, and no clock but the last one's is in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measure.steps import Step, parse, together

seconds = st.floats(0.001, 10, allow_nan=False)
series = st.lists(st.tuples(seconds, st.floats(0, 1)), min_size=1, max_size=30)


def steps_of(times: Sequence[tuple[float, float]], *, began: float = 0.0, tokens: int | None = 10) -> tuple[Step, ...]:
    """Steps of (seconds, share of it that was a wait), one behind the other."""
    ends = accumulate((took for took, _ in times), initial=began)
    return tuple(
        Step(
            number=number,
            ended_at=end,
            seconds=took,
            compute_s=took * (1 - waited),
            wait_s=took * waited,
            tokens=tokens,
            real=8,
            labelled=7,
            samples=2,
            squares=50,
        )
        for number, ((took, waited), (_, end)) in enumerate(zip(times, pairwise(ends), strict=True), start=1)
    )


@given(series)
def test_one_rank_is_what_it_was(times: list[tuple[float, float]]) -> None:
    assert together({0: steps_of(times)}) == steps_of(times)


@given(st.lists(series, min_size=2, max_size=4), st.lists(st.floats(0, 5), min_size=4, max_size=4))
def test_they_follow_each_other_from_the_last_beginning_to_the_last_end(
    ranks: list[list[tuple[float, float]]], begins: list[float]
) -> None:
    found = {rank: steps_of(times, began=begins[rank]) for rank, times in enumerate(ranks)}
    joint = together(found)
    assert len(joint) == min(map(len, ranks))
    assert sum(step.seconds for step in joint) == pytest.approx(
        max(of[len(joint) - 1].ended_at for of in found.values()) - max(begins[: len(ranks)])
    )
    for before, step in pairwise(joint):
        assert step.ended_at - step.seconds == pytest.approx(before.ended_at)
    for at, step in enumerate(joint):
        parts = [of[at] for of in found.values()]
        assert step.seconds <= max(part.seconds for part in parts) * (1 + 1e-9)
        assert -1e-9 <= step.wait_s <= step.seconds * (1 + 1e-9)
        assert step.wait_s + step.compute_s == pytest.approx(step.seconds)


@given(series, series)
def test_a_clock_that_is_an_hour_ahead_is_the_last_throughout(
    ahead: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    joint = together({0: steps_of(other), 1: steps_of(ahead, began=3600)})
    expected = steps_of(ahead, began=3600)[: len(joint)]
    assert [step.seconds for step in joint] == pytest.approx([step.seconds for step in expected])
    assert [step.wait_s for step in joint] == pytest.approx([step.wait_s for step in expected], abs=1e-9)


def test_the_wait_for_data_of_one_rank_is_that_of_all() -> None:
    """Rank 1 gets its batch after half of the step; rank 0 has its own at once, and waits in the middle of its computation."""
    joint = together({0: steps_of([(1.0, 0.0)] * 3), 1: steps_of([(1.0, 0.5)] * 3)})
    assert [step.wait_s for step in joint] == pytest.approx([0.5] * 3)


def test_ranks_that_share_a_batch_count_it_once() -> None:
    ranks = {rank: steps_of([(1.0 + rank, 0.0)], tokens=10 + rank // 2) for rank in (3, 2, 1, 0)}
    (step,) = together(ranks, ranks_per_batch=2)
    assert (step.tokens, step.samples, step.squares) == (21, 4, 100)
    assert step.seconds == together(ranks)[0].seconds, "but a step ends with the last of all ranks"


def test_counts_add_up_and_one_that_is_unknown_leaves_the_sum_unknown() -> None:
    one, other = steps_of([(1.0, 0.0)] * 2), steps_of([(1.0, 0.0)] * 2, tokens=None)
    first, _ = together({0: one, 1: other})
    assert (first.tokens, first.real, first.labelled, first.samples, first.squares) == (None, 16, 14, 4, 100)


def test_steps_count_once_and_in_their_order_however_they_were_written() -> None:
    whole = steps_of([(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)])
    jumbled = (whole[1], whole[0], whole[2], whole[1])
    assert [step.seconds for step in together({0: jumbled, 1: whole})] == [1.0, 2.0, 3.0]
    assert [step.number for step in together({0: (*whole, whole[1])})] == [1, 2, 3]
    far = (replace(whole[0], number=1), replace(whole[1], number=64), replace(whole[2], number=1000))
    assert [step.number for step in together({0: far[::-1], 1: far})] == [1, 64, 1000]


def test_a_step_that_claims_to_have_computed_longer_than_it_took_waited_for_nothing() -> None:
    odd = tuple(replace(step, compute_s=5.0) for step in steps_of([(2.0, 0.0)] * 3))
    assert [(step.seconds, step.compute_s, step.wait_s) for step in together({0: odd, 1: odd})] == [(2.0, 2.0, 0.0)] * 3


def test_what_the_trainer_did_is_said_once() -> None:
    plain = steps_of([(1.0, 0.0)])
    saved = tuple(replace(step, after=("evaluate", "save")) for step in plain)
    evaluated = tuple(replace(step, after=("evaluate",)) for step in plain)
    assert together({0: saved, 1: evaluated})[0].after == ("evaluate", "save")


def test_steps_that_a_rank_does_not_have_are_left_out() -> None:
    whole = steps_of([(1.0, 0.0)] * 4)
    assert [step.number for step in together({0: whole, 1: (*whole[:1], *whole[2:3])})] == [1, 3]
    assert together({}) == ()
    assert together({0: whole, 1: ()}) == ()


@pytest.mark.parametrize("field", ["step", "s", "t", "tokens", "samples"])
@pytest.mark.parametrize("value", ["12", "١٢", "1_000", True])
def test_a_text_in_a_line_is_no_number(field: str, value: object) -> None:
    line = {"step": 1, "t": 1e9, "s": 0.5, "tokens": 4, "samples": 1}
    assert parse(json.dumps(line).encode()) is not None
    assert parse(json.dumps({**line, field: value}).encode()) is None
