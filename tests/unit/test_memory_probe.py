"""What probes are made of, and what `--probe` does with their results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from factories.results import BASE, experiment, record_of

from orchestrator.campaign.loop import OnEvent, run_benchmark
from orchestrator.campaign.probes import memory_probe
from orchestrator.executors import FakeExecutor
from orchestrator.records import Device, Job, RunRecord, Status
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.store import Store


def test_a_probe_is_the_same_training_ended_after_two_steps() -> None:
    long = experiment(arguments={"max_steps": "500"}, device=Device.CUDA, repeats=5, monitors=("nvml",))
    short = memory_probe.short(long)
    assert (short.id, short.arguments, short.repeats, short.monitors) == (long.id, long.arguments, 1, ())
    assert short.measure is not None and short.measure.at_most_steps == 2


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
