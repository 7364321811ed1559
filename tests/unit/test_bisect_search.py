"""The search of a bisection: which candidate is measured next, what its rounds say of it, and where the search ends."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compare.bisect.evidence import Evidence, Round
from orchestrator.compare.bisect.search import (
    RUNS,
    Decision,
    Found,
    State,
    Unmeasured,
    most_probes,
    next_probe,
    search,
    step,
)
from orchestrator.compare.rules import Rules

SPEED, TIME = Rules().of("tokens_per_s"), Rules().of("step_time_median_s")
GOOD, BAD, SKIPPED = State.GOOD, State.BAD, State.SKIPPED
Values = Callable[[int, int], float]


def found(
    last: int, values: Values, *, rule: Any = SPEED, broken: tuple[int, ...] = ()
) -> tuple[Found, list[Decision]]:
    """Search where `values` gives the value of a place in a round."""
    decisions: list[Decision] = []

    def measure(place: int | None, count: int) -> list[Round] | Unmeasured:
        if place in broken:
            return Unmeasured(why="it fails")
        probe = (lambda number: None) if place is None else (lambda number: values(place, number))
        return [Round(good=values(0, one), bad=values(last, one), probe=probe(one)) for one in range(count)]

    return search(last, rule=rule, measure=measure, on_decision=decisions.append), decisions


def noisy(place: int, number: int) -> float:
    """Return noise of 1 % that is the same in every call."""
    return math.exp(random.Random(f"{place}:{number}").gauss(0, 0.01))


def after(first: int, share: float) -> Values:
    return lambda place, number: 1000 * noisy(place, number) * (1 - share if place >= first else 1)


# The next probe.


def test_the_next_probe_is_in_the_middle_or_next_to_what_is_skipped() -> None:
    ends = {0: GOOD, 8: BAD}
    assert next_probe(ends) == 4
    assert next_probe({**ends, 4: SKIPPED}) == 3
    assert next_probe({**ends, 4: SKIPPED, 3: SKIPPED}) == 5
    assert next_probe({**ends, 4: GOOD}) == 6
    assert next_probe({**ends, 4: BAD}) == 2
    assert next_probe({0: GOOD, 1: SKIPPED, 2: BAD, 8: BAD}) is None
    assert next_probe({0: GOOD, 1: BAD}) is None


@given(last=st.integers(1, 300), first=st.integers(1, 300))
def test_without_skipped_candidates_the_step_takes_at_most_the_promised_probes(last: int, first: int) -> None:
    first = min(first, last)
    states, probes = {0: GOOD, last: BAD}, 0
    while (place := next_probe(states)) is not None:
        states[place] = BAD if place >= first else GOOD
        probes += 1
    assert step(states) == (first - 1, first) and probes <= most_probes(last)


# The evidence of rounds.


def test_a_drift_that_a_round_shares_changes_nothing() -> None:
    level = [1.0, 1.3, 0.8, 1.1, 0.9]
    rounds = [Round(good=1000 * by, bad=900 * by, probe=950 * by) for by in level]
    evidence = Evidence(last=4, slower_is_more=False, ends=rounds, probes={2: rounds})
    assert evidence.estimate(0, 2).ratio().value == pytest.approx(0.95)
    assert evidence.estimate(4, 2).ratio().value == pytest.approx(950 / 900)
    assert evidence.estimate(0, 4).ratio().value == pytest.approx(0.9)
    ratio = evidence.estimate(0, 4).ratio()
    assert ratio.interval is not None and ratio.interval.low > 0.89, "rounds that agree exactly still have some noise"


def test_all_rounds_show_the_noise_and_the_distance_of_the_ends() -> None:
    ends = [Round(good=1000 * noisy(0, one), bad=900 * noisy(9, one)) for one in range(RUNS)]
    alone = Evidence(last=9, slower_is_more=False, ends=ends).estimate(0, 9)
    rounds = [
        Round(good=1000 * noisy(0, one), bad=900 * noisy(9, one), probe=900 * noisy(4, one)) for one in range(5, 10)
    ]
    both = Evidence(last=9, slower_is_more=False, ends=ends, probes={4: rounds}).estimate(0, 9)
    assert (alone.degrees, both.degrees) == (4, 13) and both.weight == 2 * alone.weight


def test_cold_first_rounds_are_left_out() -> None:
    def rounds(cold: float) -> list[Round]:
        return [
            Round(good=1000 * noisy(0, one), bad=900 * noisy(9, one), probe=900 * noisy(4, one) * (1 if one else cold))
            for one in range(RUNS)
        ]

    ends = [Round(good=one.good, bad=one.bad) for one in rounds(1)]
    warm, cold = (
        Evidence(last=9, slower_is_more=False, ends=ends, probes={4: rounds(by)}).estimate(0, 4) for by in (1, 0.8)
    )
    assert cold.n_new == RUNS - 1 and warm.n_new == RUNS
    assert cold.shift == pytest.approx(warm.shift, abs=0.01)


# The search.


@pytest.mark.parametrize("first", [1, 7, 15, 16])
def test_the_step_is_found_with_an_interval(first: int) -> None:
    result, decisions = found(16, after(first, 0.05))
    assert (result.last_good, result.first_bad) == (first - 1, first) and not result.hidden and not result.in_doubt
    assert result.probes == len(decisions) <= most_probes(16)
    assert all(one.state is (BAD if one.place >= first else GOOD) and one.rounds == RUNS for one in decisions)
    assert result.ratio is not None and result.ratio.interval is not None
    assert result.ratio.interval.low < 0.95 < result.ratio.interval.high


def test_a_time_that_rises_is_a_slowdown_and_a_speed_that_rises_is_none() -> None:
    faster, _ = found(8, after(3, -0.05))
    assert not faster.differ and faster.ends.value > 1.04
    slower, _ = found(8, after(3, -0.05), rule=TIME)
    assert slower.differ and slower.first_bad == 3


def test_ends_that_do_not_differ_end_the_search_after_three_looks() -> None:
    result, decisions = found(8, after(9, 0.05))
    assert not result.differ and not decisions and result.rounds == 3 * RUNS


def test_skipped_candidates_hide_the_step() -> None:
    result, decisions = found(8, after(4, 0.05), broken=(3, 4))
    assert (result.last_good, result.first_bad) == (2, 5) and [*result.hidden] == [3, 4]
    assert {one.place: one.why for one in decisions if one.state is SKIPPED} == {4: "it fails", 3: "it fails"}
    assert result.probes == len(decisions) - 2


def test_a_probe_in_the_middle_gets_more_runs_and_then_belongs_to_an_end_in_doubt() -> None:
    def values(place: int, number: int) -> float:
        loud = 1.1 if number % 2 else 0.9
        return 1000 * noisy(place, number) * (0.95 if place == 2 else 0.975 * loud if place else 1)

    result, (decision,) = found(2, values)
    assert decision.rounds == 3 * RUNS and decision.in_doubt and not decision.between
    assert result.in_doubt


def test_two_steps_are_told_and_the_larger_one_is_found() -> None:
    def values(place: int, number: int) -> float:
        return 1000 * noisy(place, number) * (1 if place < 5 else 0.96 if place < 12 else 0.85)

    result, decisions = found(16, values)
    assert (result.last_good, result.first_bad) == (11, 12)
    assert [one.place for one in decisions if one.between] == [8], "later probes are compared with this one"
    assert result.ratio is not None and result.ratio.value == pytest.approx(0.85 / 0.96, abs=0.02)
