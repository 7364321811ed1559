"""What running side by side costs, as `--parallel auto` measures it: tried again where a run was not steady, and told where not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from factories.results import experiment, record_of

from orchestrator.campaign.loop import run_benchmark
from orchestrator.campaign.probes import parallel_cost
from orchestrator.executors import FakeExecutor
from orchestrator.records import Caveat, CaveatKind, Job, Measurement, RunRecord, Status, dump, load
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.store import Store

CELL = experiment("m", repeats=3)
FIRST = experiment("m", repeats=1)
Made = Callable[[Job], RunRecord]


SWINGS = Caveat(kind=CaveatKind.NOT_LEVEL, detail="it swings")


def record(job: Job, speed: float | None, *, status: Status = Status.OK, **more: object) -> RunRecord:
    missing = None if speed else SWINGS
    found = (Measurement(name="tokens_per_s", value=speed, source="steps", missing=missing),)
    return record_of(job, status, **{"measurements": found, "warnings": () if speed else (SWINGS,), **more})


@pytest.fixture
def cost(tmp_path: Path) -> Callable[..., parallel_cost.Cost | str | None]:
    def measured(made: Made, *, copies: int = 2) -> parallel_cost.Cost | str | None:
        store = Store.create(tmp_path / "results", {})
        store.add([CELL])
        return parallel_cost.cost(
            [CELL], store=store, copies=copies, on_event=lambda _: None, executor_of=lambda _: FakeExecutor(made)
        )

    return measured


def test_the_mean_of_the_copies_stands_against_the_one_alone(cost: Callable[..., object]) -> None:
    speeds = {"packed1of1": 100.0, "packed1of2": 94.0, "packed2of2": 96.0}
    found = cost(lambda job: record(job, speeds[job.experiment_id.rpartition(".")[2]]))
    assert found == parallel_cost.Cost(experiment_id=CELL.id, copies=2, single=100.0, packed=95.0)
    assert (
        str(found)
        == "2 runs at once: -5.0 % tokens/s for each run (95 concurrently, 100 by itself; measured with s-m-0123456789ab)"
    )


def test_a_run_that_was_not_steady_is_made_again_with_those_beside_it(cost: Callable[..., object]) -> None:
    seen: list[tuple[str, int]] = []

    def made(job: Job) -> RunRecord:
        name = job.experiment_id.rpartition(".")[2]
        seen.append((name, job.repeat))
        swings = (name, job.repeat) in {("packed1of1", 1), ("packed2of2", 1)}
        return record(job, None if swings else 100.0 - job.repeat)

    found = cost(made)
    assert isinstance(found, parallel_cost.Cost) and (found.single, found.packed) == (98.0, 98.0)
    assert sorted(seen) == [(name, repeat) for name in ("packed1of1", "packed1of2", "packed2of2") for repeat in (1, 2)]


def test_what_is_never_steady_is_told_after_three_tries(cost: Callable[..., object]) -> None:
    seen: list[int] = []
    found = cost(lambda job: (seen.append(job.repeat), record(job, None))[1])
    assert found == f"{CELL.id}.packed1of1: {SWINGS.sentence}"
    assert seen == [1, 2, 3]


def test_a_record_of_version_2_says_why_it_has_no_speed(cost: Callable[..., object]) -> None:
    def made(job: Job) -> RunRecord:
        without = (Measurement(name="tokens_per_s", value=None, source="it swings"),)
        now = json.loads(dump(record(job, None, measurements=without)))
        return load(RunRecord, json.dumps(now | {"schema_version": 2, "warnings": [SWINGS.sentence]}))

    assert cost(made) == f"{CELL.id}.packed1of1: {SWINGS.sentence}"


def test_a_failure_is_told_and_not_tried_again(cost: Callable[..., object]) -> None:
    seen: list[int] = []

    def made(job: Job) -> RunRecord:
        seen.append(job.repeat)
        return record(job, None, status=Status.FAILED, kind="data", cause="no rows")

    assert cost(made) == f"{CELL.id}.packed1of1: failed (data: no rows)"
    assert seen == [1]


def test_one_at_a_time_costs_nothing(cost: Callable[..., object]) -> None:
    assert cost(lambda job: record(job, 100.0), copies=1) is None


def test_a_failed_run_that_is_due_again_is_measured_with(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results", {})
    run_benchmark([FIRST], store=store, executor=FakeExecutor(lambda job: record(job, None, status=Status.FAILED)))

    def found(retry: Retry) -> object:
        executor = FakeExecutor(lambda job: record(job, 100.0))
        options = {"copies": 2, "on_event": lambda _: None, "executor_of": lambda _: executor}
        return parallel_cost.cost([FIRST], store=store, retry=retry, **options)

    assert found(NO_RETRY) is None, "nothing is due"
    assert isinstance(found(Retry(failed=True)), parallel_cost.Cost)
