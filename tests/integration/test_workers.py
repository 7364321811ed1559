"""The built-in trainer under its instrument, for real: two ranks over gloo, an adapter on a local model, failures.

Three training processes are started once and shared by all tests of this file.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from trainings import INSTRUMENT, SFT, WORKERS, Run, launched, start, training

FAILING = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import sft
from transformers import TrainerCallback

class Fails(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            raise MemoryError("as if out of memory")

trainer = sft.build_trainer(sys.argv[1:])
trainer.add_callback(Fails())
trainer.train()
"""


@pytest.fixture(scope="session")
def two_ranks(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Full fine-tuning in bf16 with gradient checkpointing and accumulation, by the launcher."""
    folder = tmp_path_factory.mktemp("two")
    options = ["--bf16", "True", "--gradient_checkpointing", "True", "--gradient_accumulation_steps", "2"]
    counted = ["--max_steps", "3", "--max_seq_len", "96", "--include_num_input_tokens_seen", "all"]
    words = [*launched(folder, 2), INSTRUMENT, "--", SFT, *training(prepared, *options, *counted)]
    return start(folder / "run", words)


@pytest.fixture(scope="session")
def adapter(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """LoRA on every linear layer of a model in a local folder, on packed rows, by the bare interpreter."""
    from arguments import Own
    from models import build_model, load_config

    folder = tmp_path_factory.mktemp("adapter")
    own = Own(model_name_or_path="config:tiny-llama", training_data_path="-")
    build_model(own, load_config(own, {}), seed=3).save_pretrained(folder / "model")
    lora = ["--peft_method", "lora", "--r", "4", "--target_modules", "all-linear", "--dtype", "bfloat16"]
    words = training(prepared, *lora, "--packing", "True", "--max_seq_len", "64", model=str(folder / "model"))
    script = [INSTRUMENT, "--", SFT]
    return start(folder / "run", [*script, *words, "--max_steps", "2", "--skip_memory_metrics", "False"])


@pytest.fixture(scope="session")
def failing(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A foreign script with a Trainer of its own that fails in its second step."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "fails.py").write_text(FAILING)
    words = [INSTRUMENT, "--", str(folder / "fails.py"), str(WORKERS)]
    return start(folder / "run", [*words, *training(prepared, "--max_steps", "4", "--attn_implementation", "eager")])


def test_both_ranks_end_well_and_say_who_they_are(two_ranks: Run) -> None:
    assert two_ranks.code == 0, two_ranks.last_line
    for rank in (0, 1):
        worker = two_ranks.worker(rank)
        assert (worker["status"], worker["error"]) == ("ok", None)
        assert (worker["rank"], worker["local_rank"], worker["world_size"]) == (rank, rank, 2)


def test_settings_are_those_of_the_built_and_wrapped_model(two_ranks: Run) -> None:
    expected = {
        "model_class": "LlamaForCausalLM",
        "wrapper_classes": ["DistributedDataParallel"],
        "attn_implementation": "sdpa",
        "dtype": "float32",
        "mixed_precision": "bf16",
        "trainable_parameters": 616768,
        "total_parameters": 616768,
        "gradient_checkpointing": True,
        "torch_compile": False,
        "world_size": 2,
        "distributed_type": "MULTI_CPU",
        "device": "cpu",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "global_batch": 8,
        "max_steps": 3,
        "max_seq_len": 96,
    }
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


def test_an_adapter_on_a_local_model_is_seen_as_one(adapter: Run) -> None:
    assert adapter.code == 0, adapter.last_line
    settings = adapter.settings
    assert (settings["peft_method"], settings["dtype"], settings["packing"]) == ("lora", "bfloat16", True)
    assert (settings["packed_attention"], settings["max_seq_len"]) == ("block-diagonal", 64)
    # r × (inputs + outputs) of q, k, v, o, gate, up and down in two layers
    layer = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 176)
    assert settings["trainable_parameters"] == 2 * 4 * layer
    assert settings["total_parameters"] == 616768 + settings["trainable_parameters"]
    assert len(settings["model_fingerprint"]) == 16
    assert settings["wrapper_classes"] == []


def test_packed_rows_are_full_and_their_samples_are_counted(adapter: Run) -> None:
    tokens = adapter.worker()["tokens"]
    assert tokens["processed"] == 2 * 2 * 64
    assert tokens["samples"] >= 4


def test_memory_metrics_are_there_when_asked_for(adapter: Run, two_ranks: Run) -> None:
    assert adapter.settings["skip_memory_metrics"] is False
    assert adapter.worker()["metrics"]["before_init_mem_cpu"] > 0
    assert not any("_mem_" in name for name in two_ranks.worker()["metrics"])


def test_an_error_within_training_has_its_step_and_the_settings(failing: Run) -> None:
    assert failing.code == 1
    assert failing.last_line == "MemoryError: as if out of memory"
    worker = failing.worker()
    assert (worker["status"], worker["error"]["type"], worker["error"]["step"]) == ("error", "MemoryError", 2)
    assert worker["error"]["message"] == "as if out of memory"
    assert worker["settings"]["attn_implementation"] == "eager"
    assert worker["tokens"]["steps"] == 1
    assert worker["metrics"] == {}


def test_a_wrong_argument_ends_with_a_sentence_before_the_model_is_loaded(prepared: Path, tmp_path: Path) -> None:
    script = [INSTRUMENT, "--", SFT]
    run = start(tmp_path / "run", [*script, *training(prepared, "--learning_rte", "1")])
    assert run.code == 2
    assert run.last_line.startswith("error: unknown argument --learning_rte")
    assert run.last_line.endswith("did you mean --learning_rate?")
    error = run.worker()["error"]
    assert (error["type"], error["step"], error["exit_code"]) == ("ArgumentError", None, 2)
    assert "error: " + error["message"] == run.last_line
    assert run.settings == {}
