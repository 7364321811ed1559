"""The rules of a race: who runs in which round, who leaves, when it ends; and that it can be interrupted anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.measure.intervals.race import Race, Rules, race, standing

Rounds = dict[str, dict[int, float | None]]


def carried_out(
    speeds: Mapping[str, float], *, noise: float = 0.0, seed: int = 0, slow: tuple[str, ...] = ()
) -> tuple[Race, Rounds]:
    """Carry out a race of experiments with these true speeds. Return its end and its values."""
    rng = np.random.default_rng(seed)
    values: Rounds = {name: {} for name in speeds}
    while (state := race([*speeds], values, slow=slow)).due:
        for name in state.due:
            values[name][state.round] = math.log(speeds[name]) + float(rng.normal(0, noise))
    return state, values


def test_a_clear_winner_needs_few_runs() -> None:
    speeds = {f"cell{at}": 100.0 * 0.8**at for at in range(10)}
    state, values = carried_out(speeds)
    assert state.racing == ("cell0",)
    assert {name: len(rounds) for name, rounds in values.items()} == {
        name: 2 if at < 4 else 1 for at, name in enumerate(speeds)
    }
    assert set(state.left) == set(speeds) - {"cell0"}
    behind = state.left["cell1"]
    assert behind.round == 2 and behind.at_most is not None and 0.8 < behind.at_most < 0.84, "a bound, not the estimate"


def test_nobody_leaves_for_a_rank() -> None:
    speeds = {f"cell{at}": 100.0 + 0.01 * at for at in range(20)}
    state, values = carried_out(speeds, noise=0.01)
    assert len(state.racing) > 10 and state.due == ()
    assert min(len(values[name]) for name in state.racing) >= 4, "a tie of 2 % needs runs"


def test_a_slower_round_moves_nobody() -> None:
    """Every round is slower by 20 % than the one before. The runs of an experiment that left early are not better for it."""
    speeds = {"a": 100.0, "b": 99.5, "c": 98.9, "d": 97.0, "e": 95.0, "f": 60.0}
    values: Rounds = {name: {} for name in speeds}
    while (state := race([*speeds], values)).due:
        for name in state.due:
            values[name][state.round] = math.log(speeds[name]) - 0.2 * state.round
    assert state.racing[0] == "a" and "f" in state.left
    found = standing(values, upto=state.round, rules=Rules())
    assert found.speeds["a"] - found.speeds["f"] == pytest.approx(math.log(100 / 60), abs=1e-6)
    assert found.noise < 0.015


def test_slow_starts_join_later_and_run_less_often() -> None:
    speeds = {"a": 100.0, "b": 99.9, "compiled": 100.1, "also": 99.8}
    _, values = carried_out(speeds, noise=0.01, slow=("compiled", "also"))
    assert 1 in values["a"] and 1 not in values["compiled"]
    assert all(number % 2 == 0 for number in (*values["compiled"], *values["also"])) and len(values["a"]) > len(
        values["also"]
    )


def test_if_all_start_slowly_nobody_waits() -> None:
    assert race(["a", "b"], {}, slow=("a", "b")).due == ("a", "b")


def test_one_run_without_a_speed_decides_nothing_and_two_do() -> None:
    values: Rounds = {"a": {1: 4.6}, "b": {1: None}, "c": {1: None}}
    state = race([*values], values)
    assert state.round == 2 and set(state.due) == {"a", "b", "c"}
    values = {"a": {1: 4.6, 2: 4.6}, "b": {1: None, 2: 4.5}, "c": {1: None, 2: None}}
    state = race([*values], values)
    assert state.left["c"].at_most is None and state.left["b"].at_most is not None
    assert state.racing == ("a",)


def test_without_any_speed_the_race_ends() -> None:
    values: Rounds = {"a": {1: None, 2: None}, "b": {1: None, 2: None}}
    state = race([*values], values)
    assert state.due == () and state.racing == () and set(state.left) == {"a", "b"}


def test_a_race_has_an_end() -> None:
    """Two experiments 1.5 % apart, whose runs differ by more: neither apart nor equal for a long time."""
    values: Rounds = {"a": {}, "b": {}}
    while (state := race([*values], values)).due:
        sign = (-1) ** state.round
        values["a"][state.round], values["b"][state.round] = 0.03 * sign, -0.015 - 0.03 * sign
    assert state.round == Rules().most_rounds and state.racing == ("a", "b")


speeds_of = st.lists(st.floats(50, 150), min_size=1, max_size=8)


@given(speeds_of, st.floats(0, 0.05), st.integers(0, 1000), st.data())
@settings(deadline=None, max_examples=60)
def test_a_race_that_was_interrupted_goes_on_where_it_was(
    some: list[float], noise: float, seed: int, data: st.DataObject
) -> None:
    speeds = {f"cell{at}": speed for at, speed in enumerate(some)}
    end, values = carried_out(speeds, noise=noise, seed=seed)
    done = [(number, name) for name, rounds in values.items() for number in rounds]
    kept = data.draw(st.sets(st.sampled_from(done)))
    last = max((number for number, _ in kept), default=0)
    known = {name: {at: v for at, v in of.items() if at < last or (at, name) in kept} for name, of in values.items()}
    state = race([*speeds], known)
    assert state.round <= max(last, 1) + 1
    while state.due:
        for name in state.due:
            known[name][state.round] = values[name][state.round]
        state = race([*speeds], known)
    assert (state.racing, state.left) == (end.racing, end.left)


@given(speeds_of, st.floats(0, 0.05), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_everyone_is_either_in_the_race_or_has_left(some: list[float], noise: float, seed: int) -> None:
    speeds = {f"cell{at}": speed for at, speed in enumerate(some)}
    state, values = carried_out(speeds, noise=noise, seed=seed)
    assert {*state.racing} | {*state.left} == {*speeds} and not {*state.racing} & {*state.left}
    assert state.standing is not None
    assert [state.standing.speeds[name] for name in state.racing] == sorted(
        (state.standing.speeds[name] for name in state.racing), reverse=True
    )
    for name, left in state.left.items():
        assert max(values[name]) <= left.round and left.at_most is not None and left.at_most < 1
