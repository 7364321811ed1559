"""Whole campaigns by the command, as users run them: one of fake trainers that end in every way, one of real training.

Each campaign is run once and shared by the assertions on what it left behind.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.records import RunRecord, Status
from orchestrator.store import Store

ROOT = Path(__file__).resolve().parents[2]

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

FAKE_SCENARIOS = """\
scenarios:
- name: fake
  trainer: custom
  device: cpu
  repeats: 2
  timeout_s: 4
  framework_config: [null, fsdp]
  exclude: [{framework_config: fsdp, kind: crash}, {framework_config: fsdp, kind: killed}, {framework_config: fsdp, kind: hangs}]
  matrix: {kind: [good, crash, killed, hangs]}
  custom:
    command: ['{python}', '{scenario_dir}/trainer.py', '{kind}']
    launcher: none
    metrics:
      train_runtime: {key: train_runtime}
      train_tokens_per_second: {key: train_tokens_per_second}
      train_loss: {key: train_loss}
"""

REAL_SCENARIOS = """\
data_processing: {dataset_name: builtin:stdlib-docs, dataset_split: 'train[:64]'}
scenarios:
- name: plain
  device: cpu
  num_gpus: [1, 2]
  framework_config: [baseline]
  arguments: &arguments
    model_name_or_path: config:tiny-llama
    effective_batch_size: 4
    max_seq_len: 96
    max_steps: 3
    warmup_steps: 1
    logging_steps: 1
    dtype: float32
- name: not-in-effect
  device: cpu
  framework_config: [torch-compile]
  env: {TORCHDYNAMO_DISABLE: '1', ACCELERATE_DYNAMO_BACKEND: 'no'}
  arguments: {<<: *arguments, peft_method: lora, gradient_checkpointing: true, padding_free: true}
"""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A folder with a scenario file, the results of running it, and what the command said."""

    folder: Path
    code: int
    out: str
    err: str

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def records(self) -> dict[str, list[RunRecord]]:
        """Experiment id → records, by repeat and attempt."""
        return {one.experiment.id: list(one.records) for one in Store.resume(self.results).contents().experiments}

    def rows(self) -> list[dict[str, str]]:
        with (self.results / "benchmarks.csv").open(newline="") as file:
            return list(csv.DictReader(file))


def tunebench(folder: Path, *words: str, **env: str) -> Campaign:
    command = [sys.executable, "-m", "orchestrator", *words]
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TUNEBENCH_CACHE": str(folder / "cache"),
        "COLUMNS": "200",
        **env,
    }
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return Campaign(folder=folder, code=done.returncode, out=done.stdout, err=done.stderr)


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("fake")
    (folder / "trainer.py").write_text(FAKE_TRAINER)
    (folder / "scenarios.yaml").write_text(FAKE_SCENARIOS)
    return tunebench(folder, "run", "scenarios.yaml", "--yes")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("real")
    (folder / "scenarios.yaml").write_text(REAL_SCENARIOS)
    return tunebench(folder, "run", "scenarios.yaml")


def test_failures_are_rows_and_stop_nothing(fake: Campaign) -> None:
    assert fake.code == 1
    found = {
        row["kind"]: (row["status"], row["failure_kind"]) for row in fake.rows() if row["framework_config"] == "none"
    }
    assert found["good"] == ("ok", "")
    assert found["crash"][0] == found["killed"][0] == "failed"
    assert found["killed"][1] == "killed"
    assert found["hangs"][0] == "timeout"
    crash = next(row for row in fake.rows() if row["kind"] == "crash")
    assert "shape '[1, 2]' is invalid" in crash["failure_cause"]


def test_what_is_skipped_is_a_row_with_its_reason(fake: Campaign) -> None:
    (row,) = [row for row in fake.rows() if row["framework_config"] == "fsdp"]
    assert row["status"] == "skipped" and row["failure_kind"] == "framework_needs_device"


def test_numbers_are_read_and_missing_ones_are_empty(fake: Campaign) -> None:
    speeds = {row["kind"]: row["train_tokens_per_second"] for row in fake.rows() if row["framework_config"] == "none"}
    assert speeds == {"good": "1000.0", "crash": "", "killed": "", "hangs": ""}


def test_every_run_is_in_the_raw_summary(fake: Campaign) -> None:
    with (fake.results / "raw_summary.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] != "skipped"]
    assert sorted((row["kind"], row["repeat"]) for row in rows) == [
        (kind, repeat) for kind in ("crash", "good", "hangs", "killed") for repeat in ("1", "2")
    ]


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
    assert fake.records() == before
    words = ("--retry-failed", "--set", "repeats=1", "--set", "timeout_s=2")
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


def test_an_older_folder_is_moved_aside_and_a_foreign_one_is_refused(fake: Campaign, tmp_path: Path) -> None:
    for name in ("trainer.py", "scenarios.yaml"):
        (tmp_path / name).write_bytes((fake.folder / name).read_bytes())
    words = ("run", "scenarios.yaml", "--yes", "--set", "repeats=1", "--axis", "kind=good", "--move-aside")
    first = tunebench(tmp_path, *words)
    second = tunebench(tmp_path, *words)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    (older,) = tmp_path.glob("results.*")
    assert str(older) in second.err.replace("\n", "")
    assert (older / "benchmarks.csv").exists() and (tmp_path / "results" / "benchmarks.csv").exists()
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("all of it")
    refused = tunebench(tmp_path, *words, "--results", "mine")
    assert refused.code == 2 and "no results folder of tunebench" in refused.err
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]


def _settings(campaign: Campaign, part: str) -> Mapping[str, Any]:
    (record,) = next(records for name, records in campaign.records().items() if part in name)
    return record.settings


def test_real_training_on_one_and_two_processes(real: Campaign) -> None:
    for part, world in (("gpus1", 1), ("gpus2", 2)):
        settings = _settings(real, f"plain-tiny-llama.baseline.{part}")
        assert (settings["world_size"], settings["global_batch"], settings["max_steps"]) == (world, 4, 3)
    rows = {row["num_gpus"]: row for row in real.rows() if row["framework_config"] == "baseline"}
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert float(rows["1"]["train_loss"]) == pytest.approx(float(rows["2"]["train_loss"]), rel=1e-3)


def test_the_token_speed_is_processed_tokens_a_second_and_a_process(real: Campaign) -> None:
    (run_dir,) = real.results.glob("experiments/plain-*gpus2*/runs/r1-t1")
    workers = [json.loads(path.read_text()) for path in sorted(run_dir.glob("worker-rank*.json"))]
    tokens = sum(worker["tokens"]["processed"] for worker in workers)
    expected = tokens / workers[0]["metrics"]["train_runtime"] / 2
    (row,) = [row for row in real.rows() if row["num_gpus"] == "2"]
    assert float(row["train_tokens_per_second"]) == pytest.approx(expected)


def test_a_setting_that_did_not_take_effect_makes_the_run_invalid(real: Campaign) -> None:
    """torch.compile asked for and switched off behind its back: fast enough to fool, and never `ok`."""
    (row,) = [row for row in real.rows() if row["framework_config"] == "torch-compile"]
    assert real.code == 1
    assert row["status"] == Status.INVALID and row["failure_kind"] == "not_in_effect"
    assert "torch_compile" in row["failure_cause"]
    settings = _settings(real, "not-in-effect")
    assert settings["peft_method"] == "lora" and settings["gradient_checkpointing"] and settings["padding_free"]


def test_data_is_prepared_once_for_all_that_share_it(real: Campaign) -> None:
    assert len(list((real.folder / "cache" / "data").glob("*/tokens.npz"))) == 1
    assert real.err.count("preparing") == 1


def test_the_command_script_repeats_the_run(real: Campaign, tmp_path: Path) -> None:
    """Executed as it stands: the same losses, and not a byte of the recorded run changed."""
    (run_dir,) = real.results.glob("experiments/plain-*gpus1*/runs/r1-t1")
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in run_dir.rglob("*") if path.is_file()}
    again = tmp_path / "again"
    subprocess.run(["bash", str(run_dir / "command.sh"), str(again)], check=True, capture_output=True)
    losses = [json.loads((folder / "worker-rank0.json").read_text())["losses"] for folder in (run_dir, again)]
    assert len(losses[0]) == 3 and losses[0] == losses[1]
    assert digests == {
        path: hashlib.sha256(path.read_bytes()).hexdigest() for path in run_dir.rglob("*") if path.is_file()
    }
