"""The search for the largest batch, and what probes are made of."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from factories.results import BASE, experiment, job, record_of
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign.loop import OnEvent, run_benchmark
from orchestrator.campaign.probes import memory_probe
from orchestrator.executors import FakeExecutor
from orchestrator.records import Device, Experiment, Job, RunRecord, Status
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.store import Store


def cell(batch: str = "8", **more: object) -> Experiment:
    return experiment(arguments={"per_device_train_batch_size": batch, "max_steps": "500"}, device=Device.CUDA, **more)


def record(status: Status, kind: str | None = None) -> RunRecord:
    return record_of(job(), status, kind=kind, cause=kind)


@given(st.integers(0, 5000), st.integers(1, 64))
def test_the_largest_batch_that_fits_is_found_in_few_probes(capacity: int, begin: int) -> None:
    tried: list[int] = []

    def probed(_: Experiment, batch: int) -> RunRecord:
        tried.append(batch)
        return record(Status.OK) if batch <= capacity else record(Status.FAILED, "oom_cuda")

    found = memory_probe.largest_batch(cell(str(begin)), probed)
    assert found.batch == (min(capacity, memory_probe.LARGEST_BATCH) or None)
    assert len(tried) == len(set(tried)) <= 2 * math.log2(memory_probe.LARGEST_BATCH) + 2
    assert found.too_large == (found.batch or 0) + 1 or found.batch == memory_probe.LARGEST_BATCH


def test_another_failure_ends_the_search_and_is_told() -> None:
    broken = record(Status.FAILED, "import_error")
    found = memory_probe.largest_batch(cell(), lambda one, batch: broken)
    assert (found.batch, found.failure) == (None, f"{broken.kind}: {broken.cause}")


def test_a_probe_whose_record_cannot_be_read_did_not_run_out_of_memory() -> None:
    found = memory_probe.largest_batch(cell(), lambda one, batch: None)
    (line,) = memory_probe.batch_lines([found])
    assert line.endswith("unknown, a probe failed (its record cannot be read)")


def test_what_fitted_before_another_failure_stands() -> None:
    """As where the data have no more rows than a batch asks for."""
    refused = record(Status.INVALID, "not_in_effect")
    found = memory_probe.largest_batch(cell(), lambda one, batch: record(Status.OK) if batch <= 32 else refused)
    assert (found.batch, found.too_large, found.failure) == (32, None, f"{refused.kind}: {refused.cause}")
    (line,) = memory_probe.batch_lines([found])
    assert line.endswith(
        "per_device_train_batch_size 32 fits, and a larger one could not be tried (not_in_effect: not_in_effect)"
    )


def test_the_line_of_a_cell_has_the_values_that_distinguish_it() -> None:
    cells = [replace(cell(), id=f"s-{optim}", arguments={"optim": optim}) for optim in ("sgd", "adamw_torch")]
    found = [memory_probe.Found(experiment=one, batch=None, record=None, too_large=None, failure=None) for one in cells]
    assert [*memory_probe.batch_lines(found)] == [
        "s-sgd (optim=sgd): not even 1 fits",
        "s-adamw_torch (optim=adamw_torch): not even 1 fits",
    ]


def test_a_probe_is_the_same_training_ended_after_two_steps() -> None:
    long = cell(repeats=5, monitors=("nvml",))
    short = memory_probe.short(long)
    assert (short.id, short.arguments, short.repeats, short.monitors) == (long.id, long.arguments, 1, ())
    assert short.measure is not None and short.measure.at_most_steps == 2
    larger = memory_probe.with_batch(long, 64)
    assert larger.arguments == {"per_device_train_batch_size": "64", "max_steps": "500"} and larger.id != long.id


class Probing:
    """Calls of `run --probe` for one cell with two repeats. `kind` is how its next runs end, or None if they end well."""

    def __init__(self, root: Path) -> None:
        self.store = Store.create(root, {})
        self.kind: str | None = None
        self.ran: list[tuple[str, str]] = []

    def _carried_out(self, job: Job) -> RunRecord:
        self.ran.append((job.folder.results.name, job.name))
        status = Status.FAILED if self.kind else Status.OK
        return record_of(job, status, kind=self.kind, cause=self.kind)

    def call(self, *, retry: Retry = NO_RETRY, repeats: int = 2) -> list[tuple[str, str]]:
        self.ran, executor = [], FakeExecutor(self._carried_out)
        told: dict[str, OnEvent] = {"on_probe": lambda event: None, "on_event": lambda event: None}
        cells = [replace(BASE, repeats=repeats)]
        marked = memory_probe.mark_what_does_not_fit(cells, store=self.store, executor=executor, retry=retry, **told)
        retry = replace(retry, tried=frozenset((job.experiment_id, job.repeat) for job in marked))
        run_benchmark(cells, store=self.store, executor=executor, retry=retry)
        return self.ran

    def ends(self) -> list[tuple[str, str | None]]:
        runs = self.store.runs(BASE.id)
        return [(run.job.name, run.record.kind) for run in runs if run.record]


def test_a_retry_measures_again_what_did_not_fit(tmp_path: Path) -> None:
    probing = Probing(tmp_path / "results")
    probing.kind = "oom_cuda"
    assert probing.call() == [("probes", "r1-t1")]
    assert probing.ends() == [("r1-t1", "oom_cuda"), ("r2-t1", "oom_cuda")]
    assert probing.call() == []
    assert probing.call(retry=Retry(failed=True, kinds=("import_error",))) == []
    probing.kind = None
    ran = probing.call(retry=Retry(failed=True), repeats=3)
    assert ran[0] == ("probes", "r1-t2")
    assert sorted(ran[1:]) == [("results", "r1-t2"), ("results", "r2-t2"), ("results", "r3-t1")]


def test_a_retry_that_does_not_fit_either_is_marked_once(tmp_path: Path) -> None:
    probing = Probing(tmp_path / "results")
    probing.kind = "oom_cuda"
    probing.call()
    assert probing.call(retry=Retry(failed=True)) == [("probes", "r1-t2")]
    assert probing.ends() == [(f"r{repeat}-t{attempt}", "oom_cuda") for repeat in (1, 2) for attempt in (1, 2)]
