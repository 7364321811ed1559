"""Campaigns by the command that are disturbed: interrupted, watched by a reader who leaves, without their data."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from factories.cases import text

from orchestrator.records import Status
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "orchestrator", "run", "scenarios.yaml")

TRAINER = """\
import json, os, sys, time
if sys.argv[1] == "second" and not os.path.exists(sys.argv[2] + "/go"):
    open(sys.argv[2] + "/waiting", "w").close()
    time.sleep(600)
print(json.dumps({"train_runtime": 2.0, "train_loss": 1.5}))
"""

SCENARIOS = text("scenarios/disturbed-campaign.yaml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two scenarios; `second` hangs until there is a file `go`."""
    (tmp_path / "trainer.py").write_text(TRAINER)
    (tmp_path / "scenarios.yaml").write_text(SCENARIOS)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TUNEBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


def statuses(folder: Path) -> dict[str, list[Status]]:
    """Scenario → how its runs ended, in order."""
    stored = Store.resume(folder / "results").contents().experiments
    return {one.experiment.scenario: [record.status for record in one.records] for one in stored}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_campaign_ends_with_130_and_the_same_command_resumes_it(folder: Path, number: int) -> None:
    running = subprocess.Popen(RUN, cwd=folder, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not (folder / "waiting").exists() and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(running.pid, number)  # as a terminal does: to every process of the group
        said = running.communicate(timeout=60)[1]
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 130, said
    assert "To resume, repeat the command" in said and "Traceback" not in said
    assert statuses(folder)["second"] == [Status.CANCELLED]
    before = statuses(folder).get("first", [])
    (folder / "go").touch()
    resumed = subprocess.run(RUN, cwd=folder, capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert statuses(folder) == {"first": [Status.OK], "second": [Status.CANCELLED, Status.OK]}
    assert f"{2 - len(before)}/{2 - len(before)} ok" in resumed.stderr, "what was done is not run again"


@pytest.mark.parametrize("all_output", [False, True])
def test_a_reader_who_leaves_ends_neither_the_campaign_nor_its_report(folder: Path, all_output: bool) -> None:
    (folder / "go").touch()
    reading, writing = os.pipe()
    os.close(reading)
    stderr = writing if all_output else subprocess.PIPE
    done = subprocess.run(RUN, cwd=folder, stdout=writing, stderr=stderr, text=True, check=False)
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert statuses(folder) == {"first": [Status.OK], "second": [Status.OK]}
    with (folder / "results" / "benchmarks.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 2
    assert all_output or "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("plan",), ("plan", "--json"), ("plan", "--commands"), ("schema",)])
def test_a_reader_who_leaves_is_no_failure(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "orchestrator", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_data_processing_what_was_never_prepared_is_named_and_nothing_is_run(folder: Path) -> None:
    scenarios = {
        "data_processing": {"dataset_name": "builtin:stdlib-docs"},
        "scenarios": [{"name": "real", "device": "cpu", "arguments": {"model_name_or_path": "config:tiny-llama"}}],
    }
    (folder / "scenarios.yaml").write_text(json.dumps(scenarios))
    refused = subprocess.run([*RUN, "--no-data-processing"], cwd=folder, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "scenario 'real': builtin:stdlib-docs was never prepared for config:tiny-llama" in refused.stderr
    assert "run once without --no-data-processing" in refused.stderr
    assert statuses(folder) == {"real": []}
    assert not (folder / "cache").exists()
