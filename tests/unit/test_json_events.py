"""A running benchmark as lines of JSON: every event one line, a run begins before it ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import BASE, ended, failed

from orchestrator.campaign.events.json_events import EventLines
from orchestrator.campaign.loop import run_benchmark
from orchestrator.executors import FakeExecutor
from orchestrator.records import Job, RunRecord
from orchestrator.results.store import Store

ONE = replace(BASE, repeats=2)


def told_by(
    store: Store, handler: Callable[[Job], RunRecord | None], told: list[str] | None = None
) -> list[dict[str, Any]]:
    texts: list[str] = [] if told is None else told
    with EventLines(texts.append) as lines:
        lines.say("preparing [data]")
        run_benchmark([ONE], store=store, executor=FakeExecutor(handler), on_event=lines.on_event)
    assert all(text.endswith("\n") and text.count("\n") == 1 for text in texts)
    return [json.loads(text) for text in texts]


def test_each_event_is_a_line(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    began = time.time()
    found = told_by(
        store,
        lambda job: ended(ONE, 1, tokens_per_s=5.0, train_loss=None, odd=1) if job.repeat == 1 else failed(ONE, 2),
    )
    # Told to a thousandth of a second, up or down: a fast machine is here before that.
    assert all(began - 1 <= one.pop("time") <= time.time() + 0.001 for one in found)
    run = [{"experiment": ONE.id, "repeat": repeat, "attempt": 1} for repeat in (1, 2)]
    said, handed_over, *rest = found
    assert said == {"event": "said", "text": "preparing [data]"}
    assert handed_over["event"] == "handed_over"
    assert sorted(one["repeat"] for one in handed_over["runs"]) == [1, 2] and handed_over["runs"][0] in run
    assert [one["event"] for one in rest] == ["started", "ended"] * 2
    starts = {one["repeat"]: one for one in rest if one["event"] == "started"}
    ends = {one["repeat"]: one for one in rest if one["event"] == "ended"}
    assert starts[1] == {"event": "started", **run[0], "run_dir": str(store.run_dir(ONE.id, 1, 1))}
    assert ends[1] == {
        "event": "ended", **run[0], "status": "ok", "kind": None, "cause": None, "wall_s": 12.5,
        "measurements": {"tokens_per_s": 5.0, "train_loss": None},
    }  # fmt: skip
    assert (ends[2]["status"], ends[2]["kind"], ends[2]["cause"]) == ("failed", "oom_cuda", "oom_cuda, in a sentence")


def test_a_run_that_goes_on_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is there while the run is, not only at its end."""
    monkeypatch.setattr("orchestrator.campaign.status.campaign.SHORTEST_PAUSE_S", 0.05)
    told: list[str] = []

    def handler(job: Job) -> RunRecord:
        deadline = time.monotonic() + 20
        while not any('"started"' in text and f'"repeat": {job.repeat}' in text for text in told):
            assert time.monotonic() < deadline, told
            time.sleep(0.02)
        return ended(ONE, job.repeat)

    found = told_by(Store.create(tmp_path / "r", {}), handler, told)
    assert [one["event"] for one in found].count("started") == 2


def test_what_was_lost_before_is_told_and_begins_nothing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    told_by(store, lambda job: None if job.attempt == 1 else ended(ONE, job.repeat, attempt=job.attempt))
    records = [run.record for run in store.runs(ONE.id)]
    assert [one and one.status.value for one in records] == ["lost", "ok", "lost", "ok"]
    again = told_by(store, lambda job: ended(ONE, job.repeat))
    assert [one["event"] for one in again] == ["said"]
