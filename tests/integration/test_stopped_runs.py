"""Runs whose `run-one` is stopped (SIGSTOP) and cannot look at the clock: each run ends in time, and a late run is never ok."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from factories.results import of_command
from trees import lives, wait_until

from orchestrator.executors import LocalExecutor, local
from orchestrator.records import JobState, RunRecord, Status
from orchestrator.results.store import Store

STOPS = "import os, signal, time\nos.kill(os.getppid(), signal.SIGSTOP)\n"
RESULT = 'print(\'{"train_runtime": 0.1, "train_loss": 2.5}\')\n'


def carried_out(folder: Path, code: str, executor: LocalExecutor, **fields: Any) -> tuple[JobState, RunRecord | None]:
    store = Store.create(folder / "results", {})
    one = of_command("{python}", "-c", "{code}", arguments={"code": code}, **fields)
    store.add([one])
    job = store.job(one.id, repeat=1, attempt=1)
    ((_, state),) = executor.run([job])
    return state, store.run(job).record


def test_a_training_that_stops_its_run_one_has_its_time_limit_still(tmp_path: Path) -> None:
    began = time.monotonic()
    _, record = carried_out(tmp_path, f"{STOPS}time.sleep(100)\n", LocalExecutor(), timeout_s=1.0)
    assert record and (record.status, record.kind) == (Status.TIMEOUT, "timeout")
    assert record.wall_s < 5 and time.monotonic() - began < 30


def test_a_run_that_ended_well_within_its_limit_is_ok_though_its_run_one_was_stopped(tmp_path: Path) -> None:
    _, record = carried_out(tmp_path, STOPS + RESULT, LocalExecutor(), timeout_s=60.0)
    assert record and record.status is Status.OK, record
    assert record.wall_s < 10


def test_a_run_that_took_longer_than_its_limit_is_not_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended by itself while its `run-one` was stopped, so the time of its end is unknown."""
    monkeypatch.setattr(local, "_LOOK_FOR_STOPPED_S", 3.0)
    _, record = carried_out(tmp_path, STOPS + RESULT, LocalExecutor(), timeout_s=1.0)
    assert record and (record.status, record.kind) == (Status.TIMEOUT, "timeout")
    assert record.cause and record.cause.startswith("it took ") and record.cause.endswith(" s, longer than timeout_s")


def test_a_late_failure_keeps_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_LOOK_FOR_STOPPED_S", 3.0)
    _, record = carried_out(tmp_path, f"{STOPS}raise KeyError('no such column')\n", LocalExecutor(), timeout_s=1.0)
    assert record and record.status is Status.FAILED and "no such column" in str(record.cause)


def test_a_run_one_that_is_stopped_again_and_again_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_LOOK_FOR_STOPPED_S", 0.05)
    noted = tmp_path / "pid"
    code = (
        f"import os, signal\nopen({str(noted)!r}, 'w').write(str(os.getpid()))\n"
        "while True: os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    state, record = carried_out(tmp_path, RESULT, LocalExecutor((sys.executable, "-c", code)))
    assert (state, record) == (JobState.LOST, None)
    wait_until(lambda: not lives(int(noted.read_text())))


def test_waiting_for_a_run_that_is_not_stopped_sends_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_LOOK_FOR_STOPPED_S", 0.05)
    monkeypatch.setattr(local, "_MOST_STOPS", 0)
    _, record = carried_out(tmp_path, f"import time\ntime.sleep(1)\n{RESULT}", LocalExecutor(), timeout_s=60.0)
    assert record and record.status is Status.OK
