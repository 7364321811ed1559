"""The rules of a race: who runs in which round, who leaves, when it ends; and that it can be interrupted anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.measure.intervals.race import Left, NoSpeed, Race, Rules, race

Runs = dict[str, list[float | NoSpeed]]
FAILED, IN_DOUBT, NO_MEMORY = NoSpeed.FAILED, NoSpeed.IN_DOUBT, NoSpeed.NO_MEMORY


def carried_out(
    speeds: Mapping[str, float],
    *,
    noise: float = 0.0,
    seed: int = 0,
    slow: tuple[str, ...] = (),
    orders: Sequence[Sequence[str]] = (),
    repeats: int = 1,
    most: int | None = None,
) -> tuple[Race, Runs]:
    """Carry out a race of experiments with these true speeds. Return its end and its runs. 0: it runs out of memory."""
    rng = np.random.default_rng(seed)
    runs: Runs = {name: [] for name in speeds}
    while (state := race([*speeds], runs, slow=slow, orders=orders, repeats=repeats, most=most)).due:
        for name in state.due:
            value = math.log(speeds[name]) + float(rng.normal(0, noise)) if speeds[name] else NO_MEMORY
            runs[name].append(value)
    return state, runs


def test_a_clear_winner_needs_few_runs() -> None:
    speeds = {f"cell{at}": 100.0 * 0.8**at for at in range(10)}
    state, runs = carried_out(speeds)
    assert state.racing == ("cell0",)
    assert {name: len(of) for name, of in runs.items()} == {name: 2 if at < 2 else 1 for at, name in enumerate(speeds)}
    assert set(state.left) == set(speeds) - {"cell0"}
    behind = state.left["cell1"]
    assert behind.round == 2 and behind.at_most is not None and 0.8 < behind.at_most < 0.84, "a bound, not the estimate"


@pytest.mark.parametrize(
    ("speeds", "second"),
    [
        ([100, 99, 98, 97, 96], 4),
        ([100, 99, 81, 79, 70], 3),
        ([100, 60, 50, 40, 30], 2),
    ],
)
def test_the_second_round_has_the_best_that_are_near_the_fastest_and_at_least_two(
    speeds: list[float], second: int
) -> None:
    names = [*"abcde"]
    first: Runs = {name: [math.log(speed)] for name, speed in zip(names, speeds, strict=True)}
    assert race(names, first).due == tuple(names[:second])


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


def test_one_failure_decides_nothing_and_two_do() -> None:
    runs: Runs = {"a": [4.6], "b": [FAILED], "c": [FAILED]}
    state = race([*runs], runs)
    assert state.round == 2 and set(state.due) == {"a", "b", "c"}
    runs = {"a": [4.6, 4.6], "b": [FAILED, 4.5], "c": [FAILED, FAILED]}
    state = race([*runs], runs)
    assert state.left["c"] == Left(round=2, why=FAILED) and state.left["b"].at_most is not None
    assert state.racing == ("a",)


def test_what_has_no_memory_leaves_after_one_run() -> None:
    runs: Runs = {"a": [4.6], "b": [NO_MEMORY], "c": [4.5]}
    state = race([*runs], runs)
    assert state.left == {"b": Left(round=1, why=NO_MEMORY)} and state.due == ("a", "c")
    runs = {"a": [4.6], "b": [4.7, NoSpeed.OVER_LIMIT], "c": [4.5]}
    assert "b" not in race([*runs], runs).left, "the second run is not of this round"


def test_runs_in_doubt_decide_nothing_and_are_made_again() -> None:
    runs: Runs = {"a": [4.6, 4.6], "b": [IN_DOUBT, IN_DOUBT], "c": [4.1, 4.1]}
    state = race([*runs], runs)
    assert state.round == 3 and state.due == ("a", "b") and set(state.left) == {"c"}
    runs["b"].append(4.7)
    runs["a"].append(4.6)
    assert race([*runs], runs).racing == ("b",)
    runs["b"][-1] = IN_DOUBT
    assert race([*runs], runs).left["b"] == Left(round=3, why=IN_DOUBT)


def test_the_spread_of_the_only_experiment_with_two_runs_is_noise() -> None:
    """It was taken for an effect of the rounds: runs 11 % apart, and a rival with one run left by an assumed noise of 1.5 %."""
    speeds = {"a": (10209, 11324), "b": (7643, None), "c": (None, 9544)}
    runs: Runs = {name: [IN_DOUBT if one is None else math.log(one) for one in of] for name, of in speeds.items()}
    state = race([*runs], runs)
    assert state.round == 3 and state.due == ("a", "c") and set(state.left) == {"b"}
    assert state.standing is not None and state.standing.degrees == 1 and 0.07 < state.standing.noise < 0.08
    assert math.exp(state.standing.speeds["a"]) == pytest.approx(math.sqrt(10209 * 11324))


def test_the_assumed_noise_does_not_outweigh_the_noise_of_the_runs() -> None:
    runs: Runs = {"a": [4.6, 4.6], "b": [4.4, 4.6], "c": [4.1, 4.1]}
    standing = race([*runs], runs).standing
    assert standing is not None and (standing.degrees, standing.noise) == (1, pytest.approx(0.1)), "it was 4.3 %"
    none = race(["a", "b"], {"a": [4.6], "b": [4.4]}).standing
    assert none is not None and (none.degrees, none.noise) == (0, Rules().noise)


def test_a_race_whose_runs_are_all_in_doubt_ends_early() -> None:
    runs: Runs = {name: [IN_DOUBT, IN_DOUBT] for name in "abc"}
    state = race([*runs], runs)
    assert state.due == () and state.round == 2 and state.standing is not None and not state.standing.speeds


def test_without_any_speed_the_race_ends() -> None:
    runs: Runs = {"a": [FAILED, FAILED], "b": [FAILED, FAILED]}
    state = race([*runs], runs)
    assert state.due == () and state.racing == () and set(state.left) == {"a", "b"}


def test_one_experiment_needs_no_second_run() -> None:
    assert race(["a"], {"a": [4.6]}).due == ()
    runs: Runs = {"a": [4.6], "b": [NO_MEMORY]}
    assert race([*runs], runs).racing == ("a",) and race([*runs], runs).due == ()


@given(
    st.lists(st.floats(50, 150), min_size=2, max_size=8),
    st.floats(0, 0.05),
    st.integers(1, 5),
    st.integers(0, 99),
    st.integers(0, 3),
)
@example([100.0, 100.0, 101.0], 0.04, 3, 3, 1)
@settings(deadline=None, max_examples=60)
def test_a_race_never_makes_more_runs_than_it_may(
    some: list[float], noise: float, repeats: int, seed: int, compiled: int
) -> None:
    """The winner's repeats count, so a race with the grid's number of runs never costs more than the grid.

    A compiled winner has fewer runs than the others, so it still needs more.
    """
    speeds = {f"cell{at}": speed for at, speed in enumerate(some)}
    most, slow = max(3, repeats) * len(some), (*speeds,)[len(some) - compiled :] if compiled < len(some) else ()
    state, runs = carried_out(speeds, noise=noise, seed=seed, repeats=repeats, most=most, slow=slow)
    assert state.racing
    missing = max(0, repeats - len(runs[state.racing[0]]))
    assert sum(map(len, runs.values())) + missing <= most
    free, _ = carried_out(speeds, noise=noise, seed=seed, slow=slow)
    assert state.is_cut or (state.racing, state.round) == (free.racing, free.round)


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
    orders = [list(speeds)[: data.draw(st.integers(2, len(some)))]] if len(some) > 1 else []
    end, runs = carried_out(speeds, noise=noise, seed=seed, slow=slow, orders=orders)
    known: Runs = {name: [] for name in speeds}
    left = data.draw(st.integers(0, sum(map(len, runs.values()))))
    while left and (state := race([*speeds], known, slow=slow, orders=orders)).due:
        for name in data.draw(st.permutations(state.due))[:left]:
            known[name].append(runs[name][len(known[name])])
            left -= 1
    while (state := race([*speeds], known, slow=slow, orders=orders)).due:
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


def of_sizes(half: float, base: float = 100.0) -> dict[str, float]:
    """Return the speeds at the batch sizes 1, 2, 4 … 128: they rise up to a plateau."""
    return {f"{base:.0f}/{2**at}": base * 2**at / (2**at + half) for at in range(8)}


def test_of_an_order_only_what_is_near_the_peak_runs() -> None:
    speeds, slower = of_sizes(30), of_sizes(30, base=50)
    state, runs = carried_out({**speeds, **slower}, orders=[[*speeds], [*slower]])
    assert state.racing == ("100/128",)
    not_run = [name for name, of in runs.items() if not of]
    assert not_run == [f"{base}/{size}" for base in (100, 50) for size in (2, 4, 8, 32)]
    assert all(state.left[name].why is NoSpeed.NOT_NEEDED for name in not_run)


def test_what_is_larger_than_the_memory_is_not_needed() -> None:
    speeds = {name: 0.0 if int(name[4:]) > 8 else speed for name, speed in of_sizes(3).items()}
    state, runs = carried_out(speeds, orders=[[*speeds]])
    assert state.racing[0] == "100/8"
    assert [int(name[4:]) for name, of in runs.items() if not of] == [32, 64]


def test_a_failure_in_an_order_hides_no_peak() -> None:
    """The middle one fails for a reason that says nothing about the others: its neighbours are asked."""
    runs: Runs = {str(size): [] for size in range(7)}
    while (state := race([*runs], runs, orders=[[*runs]])).due:
        for name in state.due:
            runs[name].append(FAILED if name == "3" else -abs(int(name) - 2) * 0.1)
    assert state.racing[0] == "2" and state.left["3"].why is FAILED


def test_an_order_without_any_speed_runs_whole() -> None:
    runs: Runs = {str(size): [] for size in range(6)}
    while (state := race([*runs], runs, orders=[[*runs]])).due:
        for name in state.due:
            runs[name].append(0.0 if name == "4" else FAILED)
    assert state.racing == ("4",)


@given(st.lists(st.integers(1, 5), max_size=10), st.lists(st.integers(1, 5), max_size=10))
@settings(deadline=None)
def test_the_peak_of_an_order_is_always_found(rises: list[int], falls: list[int]) -> None:
    logs = [0.0]
    for step in (*rises, *(-step for step in falls)):
        logs.append(logs[-1] + step * 0.03)
    speeds = {f"size{at}": math.exp(value) for at, value in enumerate(logs)}
    state, runs = carried_out(speeds, orders=[[*speeds]] if len(speeds) > 1 else [])
    assert state.racing[0] == f"size{len(rises)}"
    assert {*state.racing} | {*state.left} == {*speeds} and not {*state.racing} & {*state.left}
    assert {name for name, of in runs.items() if not of} == {
        name for name, left in state.left.items() if left.why is NoSpeed.NOT_NEEDED
    }


def test_runs_of_an_earlier_campaign_count_in_an_order_too() -> None:
    """Two peaks: the race by itself would never run the second one, but the folder has its runs."""
    speeds = {"1": 80.0, "2": 150.0, "4": 60.0, "8": 59.0, "16": 101.0}
    runs: Runs = {name: [math.log(speed)] * 3 for name, speed in speeds.items()}
    state = race([*speeds], runs, orders=[[*speeds]])
    assert state.due == () and state.racing == ("2",)
    alone, _ = carried_out(speeds, orders=[[*speeds]])
    assert alone.racing == ("16",)


def test_the_last_experiment_gets_its_tries() -> None:
    """The first one fails once, and all others that ran were too large. Larger ones are not asked at all."""
    runs: Runs = {str(size): [] for size in (8, 16, 32, 64, 128)}
    while (state := race([*runs], runs, orders=[[*runs]])).due:
        for name in state.due:
            is_first = name == "8" and not runs[name]
            runs[name].append(FAILED if is_first else NO_MEMORY if int(name) >= 32 else math.log(int(name)))
    assert state.racing == ("16",)
    assert len(runs["8"]) > 1 and not runs["64"]
    runs = {str(size): [] for size in (8, 16, 32, 64, 128)}
    while (state := race([*runs], runs, orders=[[*runs]])).due:
        for name in state.due:
            runs[name].append(NO_MEMORY if int(name) >= 32 else FAILED)
    assert not state.racing and state.left["64"].why is NoSpeed.NOT_NEEDED and len(runs["16"]) == 2


@given(st.lists(st.floats(50, 150), min_size=4, max_size=9), st.integers(0, 99), st.integers(8, 40))
@settings(deadline=None, max_examples=60)
def test_an_experiment_in_the_race_at_its_end_has_run(some: list[float], seed: int, most: int) -> None:
    speeds = {f"cell{at}": speed for at, speed in enumerate(some)}
    state, runs = carried_out(speeds, noise=0.02, seed=seed, orders=[[*speeds]], most=most)
    assert all(runs[name] for name in state.racing)
    assert {*state.racing} | {*state.left} == {*speeds}


def test_an_experiment_that_fails_twice_leaves_although_it_is_the_fastest() -> None:
    runs: Runs = {"a": [4.61, FAILED, FAILED], "b": [4.6, 4.6, 4.6], "c": [4.59, IN_DOUBT, IN_DOUBT, IN_DOUBT]}
    while (state := race([*runs], runs)).due:
        for name in state.due:
            runs[name].append({"a": 4.61, "b": 4.6, "c": 4.59}[name])
    assert state.left["a"].why is FAILED and state.racing[0] == "b" and "c" not in state.left
