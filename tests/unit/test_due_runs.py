"""How many repeats are owed: fixed numbers, agreement, failures; and that it always ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories.results import BASE, ended, failed, job
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.records import Experiment, JobState, Reason, Repeats, RunRecord, Status
from orchestrator.results.contents import StoredExperiment, StoredRun
from orchestrator.results.due_runs import (
    NO_RETRY,
    Retry,
    agree,
    due_runs,
    half_width,
    is_due_again,
    shortfall,
    wanted,
    without_cold_first,
)

ADAPTIVE = replace(BASE, repeats=3, adaptive=Repeats(min=3, max=6, within=0.01))


def runs(*speeds: float, name: str = "tokens_per_s") -> list[RunRecord]:
    return [ended(BASE, repeat, **{name: speed}) for repeat, speed in enumerate(speeds, start=1)]


def test_a_fixed_number_is_owed_whatever_was_measured() -> None:
    assert wanted(BASE, []) == wanted(BASE, runs(1.0, 5.0, 1.0, 2.0)) == 3
    assert BASE.most_repeats == 3 and ADAPTIVE.most_repeats == 6


@pytest.mark.parametrize(
    ("records", "owed"),
    [
        ([], 3),
        (runs(100.0, 100.1), 3),
        (runs(100.0, 100.1, 100.2), 3),
        (runs(100.0, 110.0, 90.0), 4),
        (runs(100.0, 110.0, 90.0, 100.0, 100.0, 100.0), 6),
        (runs(100.0, 100.1, 100.2, name="train_tokens_per_second"), 3),
        (runs(10.0, 12.0, 8.0, name="train_runtime"), 4),
        ([ended(BASE, 1), ended(BASE, 2), ended(BASE, 3)], 4),
        ([failed(BASE, 1), failed(BASE, 2), failed(BASE, 3)], 3),
        ([*runs(100.0, 100.1), failed(BASE, 3)], 3),
        ([*runs(100.0, 110.0), failed(BASE, 3)], 4),
        (runs(*[100.0, 150.0] * 4), 8),
        ([*runs(100.0, 100.1, 100.2), ended(BASE, 100_000_000)], 3),
        ([*runs(100.0, 100.1, 100.2), ended(BASE, 5, train_runtime=1.0)], 3),
    ],
)
def test_an_adaptive_number_follows_what_was_measured(records: list[RunRecord], owed: int) -> None:
    assert wanted(ADAPTIVE, records) == owed


def test_a_run_that_never_got_steady_is_no_value_and_another_number_is_none_for_it() -> None:
    unsteady = ended(BASE, 3, train_runtime=5.0)
    alike = [ended(BASE, n, tokens_per_s=speed, train_runtime=5.0) for n, speed in ((1, 50.0), (2, 100.0))]
    assert not agree([*alike, unsteady], within=0.01)
    assert not agree([alike[0], unsteady], within=0.01)
    tight = [ended(BASE, n, tokens_per_s=100.0 + n / 100, train_runtime=5.0 * n) for n in (1, 2)]
    assert agree([*tight, unsteady], within=0.01)


def test_how_far_runs_are_from_agreeing() -> None:
    assert half_width(runs(100.0)) is None and half_width([failed(BASE, 1)]) is None
    width = half_width(runs(100.0, 110.0, 90.0))
    assert width is not None and 0.25 < width < 0.35


@given(st.lists(st.one_of(st.none(), st.floats(1, 1e5)), max_size=12), st.integers(2, 6), st.integers(0, 4))
def test_asking_again_always_comes_to_an_end(values: list[float | None], least: int, more: int) -> None:
    experiment: Experiment = replace(BASE, repeats=least, adaptive=Repeats(min=least, max=least + more, within=0.01))
    records: list[RunRecord] = []
    while wanted(experiment, records) > len(records):
        repeat = len(records) + 1
        speed = values[len(records) % len(values)] if values else None
        records.append(failed(BASE, repeat) if speed is None else ended(BASE, repeat, tokens_per_s=speed))
    assert least <= len(records) <= least + more


def test_a_run_with_a_record_that_cannot_be_read_is_due_where_lost_runs_are_asked_for() -> None:
    run = StoredRun(job=job(), state=JobState.ENDED)
    retries = [
        NO_RETRY,
        Retry(failed=True, kinds=("oom_cuda",)),
        Retry(failed=True, kinds=("lost",)),
        Retry(failed=True),
    ]
    assert [is_due_again(run, retry) for retry in retries] == [False, False, True, True]


def test_a_failed_repeat_above_a_lowered_max_is_not_tried_again() -> None:
    records = [*runs(100.0, 110.0, 90.0, 100.0), failed(BASE, 5)]
    lowered = replace(ADAPTIVE, adaptive=Repeats(min=3, max=4, within=0.01))
    stored = [StoredRun(job=job(one.repeat), state=JobState.ENDED, record=one) for one in records]
    for experiment, due in ((ADAPTIVE, [(BASE.id, 5, 2), (BASE.id, 6, 1)]), (lowered, [])):
        assert list(due_runs([experiment], {BASE.id: stored}, seed=0, retry=Retry(failed=True))) == due


@pytest.mark.parametrize(
    ("records", "experiment", "expected"),
    [
        ([], BASE, (0, 3)),
        (runs(100.0, 110.0), BASE, (2, 3)),
        (runs(100.0, 110.0, 90.0), BASE, None),
        ([*runs(100.0, 110.0), failed(BASE, 3)], BASE, None),  # no call repeats a failure by itself
        ([*runs(100.0, 110.0), replace(failed(BASE, 3), status=Status.CANCELLED)], BASE, (2, 3)),
        (runs(100.0, 110.0), replace(BASE, skip=Reason(kind="batch", text="no")), None),
        ([ended(BASE, 9, tokens_per_s=100.0)], BASE, (0, 3)),
        (runs(100.0, 100.0, 100.0), replace(BASE, repeats=2), None),
        (runs(100.0, 150.0, 90.0), ADAPTIVE, (3, 4)),
    ],
)
def test_a_shortfall_counts_what_the_next_call_would_run(
    records: list[RunRecord], experiment: Experiment, expected: tuple[int, int] | None
) -> None:
    ended_runs = tuple(StoredRun(job=job(one.repeat), state=JobState.ENDED, record=one) for one in records)
    stored = StoredExperiment(experiment=experiment, runs=ended_runs)
    assert shortfall(stored) == expected
    assert bool(expected) == bool(list(due_runs([experiment], {BASE.id: ended_runs}, seed=0)))


def test_a_run_that_goes_on_is_neither_done_nor_due() -> None:
    states = (JobState.ENDED, JobState.RUNNING, JobState.LOST)
    records = (*runs(100.0), None, None)
    stored = tuple(
        StoredRun(job=job(number), state=state, record=record)
        for number, (state, record) in enumerate(zip(states, records, strict=True), start=1)
    )
    assert shortfall(StoredExperiment(experiment=BASE, runs=stored)) == (1, 3)
    assert shortfall(StoredExperiment(experiment=replace(BASE, repeats=2), runs=stored[:2])) is None


# A cold first run

COLD = (900.0, 1000.0, 1010.0, 990.0, 1005.0)
FIVE = replace(BASE, repeats=5, adaptive=Repeats(min=5, max=5, discard_first="auto"))


@pytest.mark.parametrize(
    ("records", "owed"),
    [
        ([], 5),
        (runs(*COLD), 6),
        (runs(*COLD, 1000.0), 6),
        (runs(*COLD[1:], 1000.0), 5),
        (runs(*(1e6 / speed for speed in COLD), name="train_runtime"), 6),
        (runs(*(2e3 - speed for speed in COLD)), 5),  # a fast first run is not cold
        ([failed(BASE, 1), *runs(*COLD)[1:]], 5),
    ],
)
def test_a_cold_first_run_does_not_count_and_one_more_is_made(records: list[RunRecord], owed: int) -> None:
    assert wanted(FIVE, records) == owed
    assert FIVE.most_repeats == 6
    kept = [record.repeat for record in without_cold_first(FIVE.adaptive, records)]
    assert kept == [record.repeat for record in records if owed == 5 or record.repeat > 1]


def test_the_first_run_is_the_first_in_time_of_those_that_ended_ok() -> None:
    late, *others = (replace(record, started_at=1e9 + record.repeat) for record in runs(*COLD))
    late = replace(late, attempt=2, started_at=2e9)
    assert without_cold_first(FIVE.adaptive, [late, *others]) == [late, *others], (
        "a slow run that was the last is not cold"
    )
    cold = replace(others[0], measurements=ended(BASE, 2, tokens_per_s=900.0).measurements)
    for later in (replace(late, measurements=ended(BASE, 1, tokens_per_s=1002.0).measurements), failed(BASE, 1)):
        assert without_cold_first(FIVE.adaptive, [later, cold, *others[1:]]) == [later, *others[1:]]


def test_without_the_rule_a_cold_first_run_counts() -> None:
    assert without_cold_first(ADAPTIVE.adaptive, runs(*COLD)) == runs(*COLD)
