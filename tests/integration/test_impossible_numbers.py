"""Programs whose numbers cannot be true, or cannot be read: each run ends in time, and a row never shows such a number as right."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment

from orchestrator.records import CustomCommand, MetricSource, RunRecord, Status
from orchestrator.results import claims
from orchestrator.results.store import Store
from orchestrator.run.run_one import run_one
from orchestrator.trainers import custom


def carried_out(folder: Path, code: str, *, results: str = "stdout", metrics: Any, **fields: Any) -> RunRecord:
    command = CustomCommand(command=("{python}", "-c", "{code}"), launcher="none", results=results, metrics=metrics)
    one = experiment("a", trainer="custom", custom=command, arguments={"code": code}, **fields)
    store = Store.create(folder / "results", {})
    store.add([one])
    job = store.job(one.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    return run_one(job.run_dir)


def test_a_pattern_that_backtracks_costs_its_own_number_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "LONGEST_SEARCH_S", 1.0)
    metrics = {"train_loss": MetricSource(pattern=r"(a+)+$"), "train_runtime": MetricSource(pattern=r"took (\S+)$")}
    began = time.monotonic()
    record = carried_out(tmp_path, f"print({'a' * 40 + 'b'!r}); print('took 1.5')", results="log", metrics=metrics)
    assert time.monotonic() - began < 20
    known = {number.name: number for number in record.measurements}
    assert (record.status, known["train_runtime"].value, known["train_loss"].value) == (Status.OK, 1.5, None)
    assert known["train_loss"].why_missing == (
        "the search for '(a+)+$' was ended after 1 s; write a pattern without nested repetitions"
    )
