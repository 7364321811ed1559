"""The rules of a race: who runs in which round, who leaves, when it ends; and that it can be interrupted anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.measure.intervals.race import Race, Rules, race

Runs = dict[str, list[float | None]]


def carried_out(
    speeds: Mapping[str, float], *, noise: float = 0.0, seed: int = 0, slow: tuple[str, ...] = ()
) -> tuple[Race, Runs]:
    """Carry out a race of experiments with these true speeds. Return its end and its runs."""
    rng = np.random.default_rng(seed)
    runs: Runs = {name: [] for name in speeds}
    while (state := race([*speeds], runs, slow=slow)).due:
        for name in state.due:
            runs[name].append(math.log(speeds[name]) + float(rng.normal(0, noise)))
    return state, runs


def test_a_clear_winner_needs_few_runs() -> None:
    speeds = {f"cell{at}": 100.0 * 0.8**at for at in range(10)}
    state, runs = carried_out(speeds)
    assert state.racing == ("cell0",)
    assert {name: len(of) for name, of in runs.items()} == {name: 2 if at < 4 else 1 for at, name in enumerate(speeds)}
    assert set(state.left) == set(speeds) - {"cell0"}
    behind = state.left["cell1"]
    assert behind.round == 2 and behind.at_most is not None and 0.8 < behind.at_most < 0.84, "a bound, not the estimate"


def test_nobody_leaves_for_a_rank() -> None:
    speeds = {f"cell{at}": 100.0 + 0.01 * at for at in range(20)}
    state, runs = carried_out(speeds, noise=0.01)
    assert len(state.racing) > 10 and state.due == ()
    assert min(len(runs[name]) for name in state.racing) >= 4, "a tie of 2 % needs runs"


def test_a_slower_round_moves_nobody() -> None:
    """Every round is slower by 20 % than the one before. An experiment that left early is not better for it."""
    speeds = {"a": 100.0, "b": 99.5, "c": 98.9, "d": 97.0, "e": 95.0, "f": 60.0}
    runs: Runs = {name: [] for name in speeds}
    while (state := race([*speeds], runs)).due:
        for name in state.due:
            runs[name].append(math.log(speeds[name]) - 0.2 * state.round)
    assert state.racing[0] == "a" and "f" in state.left and state.standing is not None
    assert len(runs["f"]) == 1 and state.standing.behind("f", "a") == pytest.approx(math.log(100 / 60), abs=1e-6)
    assert state.standing.noise < 0.015


def test_slow_starts_join_later_and_run_less_often() -> None:
    speeds = {"a": 100.0, "b": 99.9, "compiled": 100.1, "also": 99.8}
    slow = ("compiled", "also")
    assert race([*speeds], {}, slow=slow).due == ("a", "b")
    assert {*race([*speeds], {"a": [4.6], "b": [4.6]}, slow=slow).due} == {*speeds}
    _, runs = carried_out(speeds, noise=0.01, slow=slow)
    assert max(len(runs[name]) for name in slow) <= math.ceil(len(runs["a"]) / 2) < len(runs["a"])


def test_if_all_start_slowly_nobody_waits() -> None:
    assert race(["a", "b"], {}, slow=("a", "b")).due == ("a", "b")


def test_one_run_without_a_speed_decides_nothing_and_two_do() -> None:
    runs: Runs = {"a": [4.6], "b": [None], "c": [None]}
    state = race([*runs], runs)
    assert state.round == 2 and set(state.due) == {"a", "b", "c"}
    runs = {"a": [4.6, 4.6], "b": [None, 4.5], "c": [None, None]}
    state = race([*runs], runs)
    assert state.left["c"].at_most is None and state.left["b"].at_most is not None
    assert state.racing == ("a",)


def test_without_any_speed_the_race_ends() -> None:
    runs: Runs = {"a": [None, None], "b": [None, None]}
    state = race([*runs], runs)
    assert state.due == () and state.racing == () and set(state.left) == {"a", "b"}


def test_a_race_has_an_end() -> None:
    """Two experiments 1.5 % apart, whose runs differ by more: neither apart nor equal for a long time."""
    runs: Runs = {"a": [], "b": []}
    while (state := race([*runs], runs)).due:
        sign = (-1) ** state.round
        runs["a"].append(0.03 * sign)
        runs["b"].append(-0.015 - 0.03 * sign)
    assert state.round == Rules().most_rounds and state.racing == ("a", "b")


def test_runs_of_an_earlier_campaign_count() -> None:
    """A folder with three runs of each experiment needs no run more if these decide."""
    state = race(["a", "b", "c"], {"a": [4.6, 4.61, 4.6], "b": [4.2, 4.2, 4.2], "c": [4.1, 4.1, 4.1]})
    assert state.due == () and state.racing == ("a",)


speeds_of = st.lists(st.floats(50, 150), min_size=1, max_size=8)


@given(speeds_of, st.floats(0, 0.05), st.integers(0, 1000), st.booleans(), st.data())
@settings(deadline=None, max_examples=60)
def test_a_race_that_was_interrupted_goes_on_where_it_was(
    some: list[float], noise: float, seed: int, is_first_slow: bool, data: st.DataObject
) -> None:
    speeds = {f"cell{at}": speed for at, speed in enumerate(some)}
    slow = ("cell0",) if is_first_slow else ()
    end, runs = carried_out(speeds, noise=noise, seed=seed, slow=slow)
    known = {name: of[: data.draw(st.integers(0, len(of)))] for name, of in runs.items()}
    while (state := race([*speeds], known, slow=slow)).due:
        for name in state.due:
            known[name].append(runs[name][len(known[name])])
    assert (state.racing, state.left, known) == (end.racing, end.left, runs)


@given(speeds_of, st.floats(0, 0.05), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_everyone_is_either_in_the_race_or_has_left(some: list[float], noise: float, seed: int) -> None:
    speeds = {f"cell{at}": speed for at, speed in enumerate(some)}
    state, runs = carried_out(speeds, noise=noise, seed=seed)
    assert {*state.racing} | {*state.left} == {*speeds} and not {*state.racing} & {*state.left}
    assert state.standing is not None
    places = [state.standing.speeds[name] for name in state.racing]
    assert places == sorted(places, reverse=True)
    for name, left in state.left.items():
        assert len(runs[name]) <= left.round and left.at_most is not None and left.at_most < 1
