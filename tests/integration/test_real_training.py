"""One campaign of real trainings by the command, read as a user reads it: settings, losses, tokens, speed, memory.

Full fine-tuning by one process and by two, an adapter on rows without padding, and one whose settings did not take effect.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaigns import Campaign, tunebench
from factories.cases import document, text
from trainings import Run

from orchestrator.records import RunRecord, Status
from orchestrator.report.bundle import bundle
from orchestrator.trainers.instrumented import FILE_NAME

pytest.importorskip("torch")
pytest.importorskip("peft")

SCENARIOS = text("scenarios/real-training.yaml")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Two at once where they are one process each."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    return tunebench(folder, "run", "scenarios.yaml", "--memory", "huggingface", "--parallel", "2")


def test_real_training_on_one_and_two_processes(real: Campaign) -> None:
    for part, world in (("gpus1", 1), ("gpus2", 2)):
        settings = real.record(f"plain-tiny-llama.baseline.{part}").settings
        assert (settings["world_size"], settings["global_batch"], settings["max_steps"]) == (world, 8, 3)
    rows = {row["num_gpus"]: row for row in real.rows() if row["framework_config"] == "baseline"}
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert float(rows["1"]["train_loss"]) == pytest.approx(float(rows["2"]["train_loss"]), rel=1e-3)
    numbers = {one.name: one.value for one in real.record("plain-tiny-llama.baseline.gpus1").measurements}
    logged = [
        float(point.removeprefix(f"{n}:")) for n, point in enumerate(str(numbers["logged_losses"]).split(" "), start=1)
    ]
    assert sum(logged) / 3 == pytest.approx(numbers["train_loss"], rel=1e-4)


def test_the_token_speed_is_processed_tokens_a_second_and_a_process(real: Campaign) -> None:
    workers = [json.loads(path.read_text()) for path in sorted(real.run_dir("gpus2").glob("worker-rank*.json"))]
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
    settings = real.record("not-in-effect").settings
    assert settings["peft_method"] == "lora" and settings["gradient_checkpointing"] and settings["padding_free"]
    assert (settings["lora_rank"], real.record("adapter").settings["lora_rank"]) == (8, 4)


def test_data_is_prepared_once_for_all_that_share_it(real: Campaign) -> None:
    assert len(list((real.folder / "cache" / "data").glob("*/tokens.npz"))) == 1
    assert real.err.count("preparing") == 1


def test_the_command_script_repeats_the_run(real: Campaign, tmp_path: Path) -> None:
    """Executed as it stands: the same losses, and not a byte of the recorded run changed."""
    run_dir = real.run_dir("plain-tiny-llama.baseline.gpus1")
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in run_dir.rglob("*") if path.is_file()}
    assert f'"$here"/{FILE_NAME} -- ' in (run_dir / "command.sh").read_text(), "the run's own, and not what we ship now"
    again = tmp_path / "again"
    subprocess.run(["bash", str(run_dir / "command.sh"), str(again)], check=True, capture_output=True)
    assert not (again / FILE_NAME).exists()
    losses = [json.loads((folder / "worker-rank0.json").read_text())["losses"] for folder in (run_dir, again)]
    assert len(losses[0]) == 3 and losses[0] == losses[1]
    assert digests == {
        path: hashlib.sha256(path.read_bytes()).hexdigest() for path in run_dir.rglob("*") if path.is_file()
    }


# --- two ranks -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(real: Campaign) -> Run:
    """Full fine-tuning in bf16 with gradient checkpointing and accumulation, by the launcher."""
    record = real.record("gpus2")
    assert record.exit_code is not None, record.cause
    return Run(folder=real.run_dir("gpus2"), code=record.exit_code, last_line=record.cause or "")


def test_both_ranks_end_well_and_say_who_they_are(two_ranks: Run) -> None:
    assert two_ranks.code == 0, two_ranks.last_line
    for rank in (0, 1):
        worker = two_ranks.worker(rank)
        assert (worker["status"], worker["error"]) == ("ok", None)
        assert (worker["rank"], worker["local_rank"], worker["world_size"]) == (rank, rank, 2)


def test_settings_are_those_of_the_built_and_wrapped_model(two_ranks: Run) -> None:
    expected = document("real_training/settings_of_two_ranks")
    assert {name: two_ranks.settings[name] for name in expected} == expected


def test_the_ranks_tokens_add_up_to_the_trainers_count(two_ranks: Run) -> None:
    tokens = [two_ranks.worker(rank)["tokens"] for rank in (0, 1)]
    state = json.loads((two_ranks.folder / "output/trainer_state.json").read_text())
    assert sum(count["processed"] for count in tokens) == state["num_input_tokens_seen"]
    assert [(count["samples"], count["steps"]) for count in tokens] == [(12, 3), (12, 3)]


def test_steps_and_losses_are_written_by_every_rank(two_ranks: Run) -> None:
    for rank in (0, 1):
        lines = two_ranks.steps(rank)
        times = [line["t"] for line in lines if "loss" not in line]
        assert [line["step"] for line in lines if "loss" not in line] == [1, 2, 3]
        assert times == sorted(times)
        logged = [[line["step"], line["loss"]] for line in lines if "loss" in line]
        assert [step for step, _ in logged] == [1, 2, 3]
        assert logged == two_ranks.worker(rank)["losses"]
        assert all(math.isclose(loss, math.log(4096), rel_tol=0.05) for _, loss in logged)


def test_metrics_are_full_numbers_and_the_trainers_own(two_ranks: Run) -> None:
    metrics = two_ranks.worker()["metrics"]
    results = json.loads((two_ranks.folder / "output/all_results.json").read_text())
    for name in ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss"):
        assert isinstance(metrics[name], float)
        assert metrics[name] == results[name]
    assert not [path.name for path in (two_ranks.folder / "output").iterdir() if path.is_dir()], "no checkpoints"


# --- an adapter ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What the training left behind."""

    run_dir: Path
    data: Path
    record: RunRecord
    row: dict[str, str]

    @property
    def worker(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.run_dir / "worker-rank0.json").read_text())
        return document


@pytest.fixture(scope="module")
def trained(real: Campaign) -> Trained:
    (row,) = [row for row in real.rows() if row["scenario"] == "adapter"]
    data = real.folder / "cache" / "data"
    return Trained(run_dir=real.run_dir("adapter"), data=data, record=real.record("adapter"), row=row)


def test_the_settings_are_those_that_were_asked_for(trained: Trained) -> None:
    expected = {
        "peft_method": "lora",
        "gradient_checkpointing": True,
        "padding_free": True,
        "attn_implementation": "eager",
        "dtype": "float32",
        "world_size": 1,
        "global_batch": 8,
        "max_steps": 3,
    }
    assert {name: trained.record.settings[name] for name in expected} == expected
    assert 0 < trained.record.settings["trainable_parameters"] < trained.record.settings["total_parameters"] / 10


def test_without_padding_every_processed_token_is_one_of_the_data(trained: Trained) -> None:
    """Three steps of eight are each of the 24 rows once, cut to length and not filled up."""
    (prepared,) = trained.data.glob("*/tokens.npz")
    lengths = np.diff(np.load(prepared)["offsets"]).clip(max=256)
    assert lengths.min() < 256, "rows of one length would prove nothing"
    tokens = trained.worker["tokens"]
    expected = {"processed": lengths.sum(), "real": lengths.sum(), "samples": 24, "squares": (lengths**2).sum()}
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


def test_nothing_in_a_real_run_is_taken_for_a_secret(real: Campaign, tmp_path: Path) -> None:
    """Digests, commits, paths and numbers of its logs and records stay, also in a bundle, which hides more than other files."""
    done = bundle(real.folder / "results", output=tmp_path / "b.tar.gz", whole_logs=True)
    assert done.manifest["secrets"] == 0
    files = [path for path in (real.folder / "results").rglob("*.*") if path.is_file() and path.suffix != ".html"]
    assert [path for path in files if b"***" in path.read_bytes() and path.name != FILE_NAME] == []
