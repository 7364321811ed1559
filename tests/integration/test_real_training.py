"""One real training by the command, read as a user reads it: the settings that were asked for, loss and memory.

An adapter with gradient checkpointing on rows without padding; the plain ones, and the one whose settings did not take
effect, are in test_campaign.py.
"""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.records import RunRecord, Status
from orchestrator.store import Store

pytest.importorskip("torch")
pytest.importorskip("peft")

ROOT = Path(__file__).resolve().parents[2]

SCENARIOS = """\
data_processing: {dataset_name: builtin:stdlib-docs, dataset_split: 'train[:12]'}
scenarios:
- name: adapter
  device: cpu
  framework_config: [gradient-checkpointing]
  arguments:
    model_name_or_path: config:tiny-llama
    per_device_train_batch_size: 4
    padding_free: true
    peft_method: lora
    r: 4
    target_modules: all-linear
    attn_implementation: eager
    max_seq_len: 256
    max_steps: 3
    logging_steps: 1
    dtype: float32
"""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the training left behind."""

    code: int
    run_dir: Path
    data: Path
    record: RunRecord
    row: dict[str, str]

    @property
    def worker(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_dir / "worker-rank0.json").read_text())
        return document


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("adapter")
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TUNEBENCH_CACHE": str(folder / "cache"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--memory", "huggingface"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    stored = Store.resume(folder / "results").contents().experiments
    (run,) = [run for one in stored for run in one.runs]
    assert run.record is not None, done.stderr
    with (folder / "results" / "benchmarks.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    data = folder / "cache" / "data"
    return Trained(code=done.returncode, run_dir=run.job.run_dir, data=data, record=run.record, row=row)


def test_it_ends_well(trained: Trained) -> None:
    assert trained.record.status is Status.OK, trained.record.cause
    assert trained.code == 0 and trained.row["status"] == "ok"


def test_the_settings_are_those_that_were_asked_for(trained: Trained) -> None:
    expected = {
        "peft_method": "lora",
        "gradient_checkpointing": True,
        "padding_free": True,
        "attn_implementation": "eager",
        "dtype": "float32",
        "world_size": 1,
        "global_batch": 4,
        "max_steps": 3,
    }
    assert {name: trained.record.settings[name] for name in expected} == expected
    assert 0 < trained.record.settings["trainable_parameters"] < trained.record.settings["total_parameters"] / 10


def test_losses_are_finite_and_their_mean_is_the_reported_one(trained: Trained) -> None:
    losses = [loss for _, loss in trained.worker["losses"]]
    assert len(losses) == 3 and all(math.isfinite(loss) for loss in losses)
    assert float(trained.row["train_loss"]) == pytest.approx(sum(losses) / 3, rel=1e-3)


def test_without_padding_every_processed_token_is_one_of_the_data(trained: Trained) -> None:
    """Three steps of four are each of the twelve rows once, cut to length and not filled up."""
    (prepared,) = trained.data.glob("*/tokens.npz")
    lengths = np.diff(np.load(prepared)["offsets"]).clip(max=256)
    assert lengths.min() < 256, "rows of one length would prove nothing"
    tokens = trained.worker["tokens"]
    expected = {"processed": lengths.sum(), "real": lengths.sum(), "samples": 12, "squares": (lengths**2).sum()}
    assert {name: tokens[name] for name in expected} == expected
    assert (tokens["steps"], tokens["micro"]) == (3, 3)
    speed = tokens["processed"] / trained.worker["metrics"]["train_runtime"]
    assert float(trained.row["train_tokens_per_second"]) == pytest.approx(speed)


def test_memory_of_a_gpu_that_is_not_there_is_missing_and_not_zero(trained: Trained) -> None:
    """The Trainer measured, as asked; without a GPU there is no GPU memory to tell."""
    assert trained.record.settings["skip_memory_metrics"] is False
    assert any(name.endswith("_cpu") or "_cpu_" in name for name in trained.worker["metrics"])
    gpu = [one.value for one in trained.record.measurements if one.name == "mem_torch_mem_alloc_in_bytes"]
    assert gpu in ([], [None])
