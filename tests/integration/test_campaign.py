"""A whole campaign by the command, as users run it, of fake trainers that end in every way; one of real ones is in
test_real_training.py. It is run once and shared by the assertions on what it left behind.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from campaigns import Campaign, tunebench
from factories.cases import text

FAKE_TRAINER = """\
import json, os, signal, sys, time
kind = sys.argv[1]
if kind == "crash":
    raise RuntimeError("shape '[1, 2]' is invalid")
if kind == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if kind == "hangs":
    time.sleep(600)
print("noise")
print(json.dumps({"train_runtime": 2.0, "train_tokens_per_second": 1000.0, "train_loss": 1.5}))
"""

FAKE_SCENARIOS = text("scenarios/campaign.yaml")


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("fake")
    (folder / "trainer.py").write_text(FAKE_TRAINER)
    (folder / "scenarios.yaml").write_text(FAKE_SCENARIOS)
    return tunebench(folder, "run", "scenarios.yaml", "--yes", "--parallel", "2")


def test_failures_are_rows_and_stop_nothing(fake: Campaign) -> None:
    assert fake.code == 1
    found = {
        row["kind"]: (row["status"], row["failure_kind"]) for row in fake.rows() if row["framework_config"] == "none"
    }
    assert found["good"] == ("ok", "")
    assert found["crash"][0] == found["killed"][0] == "failed"
    assert found["killed"][1] == "killed"
    assert found["hangs"][0] == "timeout"
    ((hangs, _),) = [records for name, records in fake.records().items() if "ends-never" in name]
    assert (hangs.exit_code, hangs.signal) == (None, 2)
    assert re.fullmatch(r"it was ended after 1\.?\d* s by timeout_s", str(hangs.cause)), hangs.cause
    crash = next(row for row in fake.rows() if row["kind"] == "crash")
    assert "shape '[1, 2]' is invalid" in crash["failure_cause"]


def test_the_terminal_shows_the_table_and_where_the_files_are(fake: Campaign) -> None:
    assert "1,000" in fake.out and "timeout" in fake.out
    assert f"wrote {fake.results / 'benchmarks.csv'}" in fake.err


def test_the_environment_is_written_down(fake: Campaign) -> None:
    assert "pydantic==" in (fake.results / "requirements.txt").read_text()
    assert json.loads((fake.results / "suite.json").read_text())["asked"]["argv"][0] == "run"


def test_running_again_does_nothing_and_retrying_runs_what_failed(fake: Campaign) -> None:
    before = fake.records()
    again = tunebench(fake.folder, "run", "scenarios.yaml", "--yes")
    assert again.code == 1 and "Resuming" in again.err
    assert "failed before and were not repeated; add --retry-failed to repeat them" in again.err
    assert "failed before" not in fake.err
    assert fake.records() == before
    words = ("--retry-failed", "--set", "repeats=1", "--set", "timeout_s=1", "--parallel", "2")
    tunebench(fake.folder, "run", "scenarios.yaml", "--yes", *words)
    added = {name: len(records) - len(before[name]) for name, records in fake.records().items()}
    assert sorted(added.values()) == [0, 0, 1, 1, 1]  # the good one and the skipped one are left alone
    for name, records in before.items():
        assert all(record in fake.records()[name] for record in records)


@pytest.mark.parametrize("form", ["csv", "json", "markdown"])
def test_the_report_is_made_again_in_each_form(fake: Campaign, form: str) -> None:
    again = tunebench(fake.folder, "report", "results", "--format", form, "--keep", "trainer", "--drop", "train_loss")
    assert again.code == 0
    assert "custom" in again.out and "train_loss" not in again.out
    if form == "json":
        json.loads(again.out)


def test_one_experiment_is_shown_by_a_part_of_its_id(fake: Campaign) -> None:
    crashed = next(name for name, records in fake.records().items() if records and records[0].kind == "unknown")
    shown = tunebench(fake.folder, "show", crashed[-12:])
    assert shown.code == 0
    assert crashed in shown.out and "trainer.py" in shown.out and "RuntimeError" in shown.out


def test_an_older_folder_is_moved_aside(fake: Campaign, tmp_path: Path) -> None:
    for name in ("trainer.py", "scenarios.yaml"):
        (tmp_path / name).write_bytes((fake.folder / name).read_bytes())
    words = ("run", "scenarios.yaml", "--yes", "--scenario", "fake", "--set", "repeats=1", "--axis", "kind=good")
    first, second = (tunebench(tmp_path, *words, "--move-aside") for _ in range(2))
    assert (first.code, second.code) == (0, 0), first.err + second.err
    (older,) = tmp_path.glob("results.*")
    assert str(older) in second.err.replace("\n", "")
    assert (older / "benchmarks.csv").exists() and (tmp_path / "results" / "benchmarks.csv").exists()
