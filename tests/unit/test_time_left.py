"""How long a campaign may still take, by what ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories.results import BASE, ended, failed
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign.status.time_left import Expectation, Took, Work, gpus_at_once, latest, left_s, took
from orchestrator.records import Status


def of(experiment_id: str, seconds: float, *, to_its_end: bool = True, **more: object) -> Took:
    fields = {"scenario": "full", "model": "m", "trainer": BASE.trainer, "num_gpus": 1, **more}
    return Took(
        experiment_id=experiment_id, seconds=seconds, began_at=0.0, ended_at=seconds, to_its_end=to_its_end, **fields
    )  # type: ignore[arg-type]


ASKED = replace(BASE, id="asked", scenario="full", model="m", num_gpus=2)
ITSELF = of("asked", 10.0, num_gpus=2)
CELL = of("other", 20.0, num_gpus=2)
MODEL = of("other", 30.0, num_gpus=4)
GPUS = of("other", 40.0, num_gpus=2, model="n")
ANY = of("other", 50.0, num_gpus=4, model="n")
FAILED = of("other", 60.0, num_gpus=2, to_its_end=False)
BY_CLOSENESS = [ITSELF, CELL, MODEL, GPUS, ANY, FAILED]


@pytest.mark.parametrize("first", range(len(BY_CLOSENESS)))
def test_the_closest_kin_says_how_long(first: int) -> None:
    assert Expectation(BY_CLOSENESS[first:]).run_s(ASKED) == BY_CLOSENESS[first].seconds


def test_runs_of_another_trainer_say_nothing() -> None:
    """A plan of operators, which took 17 s, said 4.58 s, the time of trainings in the same folder."""
    operator = replace(ASKED, trainer="operators")
    assert Expectation(BY_CLOSENESS[1:]).run_s(operator) is None
    assert Expectation([GPUS, replace(ANY, trainer="operators")]).run_s(operator) == ANY.seconds


def test_nothing_ended_nothing_known() -> None:
    assert Expectation(()).run_s(ASKED) is None
    assert Expectation(()).remaining_s(ASKED, elapsed_s=1.0) is None
    assert left_s([Work(num_gpus=1, seconds=None)]) is None
    assert left_s([Work(num_gpus=1, seconds=5.0), Work(num_gpus=1, seconds=None)]) is None
    assert left_s([Work(num_gpus=1, seconds=None, times=0)]) == 0


def test_an_experiment_that_fails_early_is_expected_to_fail_early_again() -> None:
    again = Expectation([of("asked", 3.0, num_gpus=2, to_its_end=False), CELL])
    assert again.run_s(ASKED) == 3.0


def test_a_run_that_somebody_ended_says_nothing() -> None:
    for status in (Status.CANCELLED, Status.LOST):
        assert took(BASE, replace(ended(BASE, 1), status=status)) is None
    well, badly = took(BASE, ended(BASE, 1)), took(BASE, failed(BASE, 1))
    assert well is not None and badly is not None
    assert (well.to_its_end, badly.to_its_end, well.seconds, well.ended_at - well.began_at) == (True, False, 12.5, 12.5)


def test_what_is_left_of_a_run_is_told_by_itself_then_by_its_steps_then_by_others() -> None:
    itself, others = Expectation([ITSELF]), Expectation([CELL])
    assert itself.remaining_s(ASKED, elapsed_s=4.0, by_steps_s=99.0) == 6.0
    assert others.remaining_s(ASKED, elapsed_s=4.0, by_steps_s=99.0) == 99.0
    assert others.remaining_s(ASKED, elapsed_s=4.0) == 16.0
    assert itself.remaining_s(ASKED, elapsed_s=400.0) is None, "it takes longer than it ever did"


def test_runs_one_after_the_other_add_up_and_runs_side_by_side_share_the_gpus() -> None:
    works = [Work(num_gpus=1, seconds=10.0, times=6), Work(num_gpus=2, seconds=20.0)]
    assert left_s(works) == 80.0
    assert left_s(works, gpus_at_once=4) == pytest.approx((60 + 40) / 4)
    assert left_s([Work(num_gpus=1, seconds=30.0)], gpus_at_once=4) == 30.0, "no run is faster than itself"
    assert left_s([Work(num_gpus=8, seconds=30.0, times=2)], gpus_at_once=4) == 60.0, "more GPUs than were ever in use"


def test_runs_that_touch_are_not_side_by_side() -> None:
    assert gpus_at_once([(0.0, 1.0, 8), (1.0, 2.0, 8), (2.0, 3.0, 1)]) is None
    assert gpus_at_once([(0.0, 2.0, 1), (1.0, 3.0, 2), (1.5, 1.7, 4), (5.0, 6.0, 8)]) == 7
    assert (
        gpus_at_once(latest([(0.0, 2.0, 1), (1.0, 3.0, 2), *((10.0 * n, 10.0 * n + 5, 1) for n in range(1, 99))]))
        is None
    )


works = st.lists(st.builds(Work, num_gpus=st.integers(1, 8), seconds=st.floats(0, 1e6), times=st.integers(0, 50)))


@given(works, st.integers(1, 64))
def test_sharing_is_never_slower_than_waiting_nor_faster_than_the_longest(found: list[Work], gpus: int) -> None:
    one_by_one, shared = left_s(found), left_s(found, gpus_at_once=gpus)
    assert one_by_one is not None and shared is not None
    longest = max((work.seconds or 0.0 for work in found if work.times), default=0.0)
    assert longest <= shared <= one_by_one * (1 + 1e-9) + 1e-9
