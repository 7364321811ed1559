"""The built-in trainer under its instrument, for real: an adapter on a local model, a compiled model, failures.

Four training processes are started once and shared by all tests of this file. Two ranks are in test_real_training.py.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from factories.results import BASE
from trainings import INSTRUMENT, SFT, SFT_FOLDER, Run, at_once, start, training

from orchestrator.campaign.status.activity import look
from orchestrator.campaign.status.view import doing
from orchestrator.measure import steps, throughput

FAILING = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import models
import sft
import time
from transformers import TrainerCallback

build = models.build_model
models.build_model = lambda *words, **named: time.sleep(1) or build(*words, **named)

class Fails(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == 1:
            raise MemoryError("as if out of memory")

trainer = sft.build_trainer(sys.argv[1:])
trainer.add_callback(Fails())
trainer.train()
"""


def an_adapter(folder: Path, prepared: Path) -> Run:
    """LoRA on every linear layer of a model in a local folder, on packed rows, by the bare interpreter."""
    from arguments import Own
    from models import build_model, load_config

    own = Own(model_name_or_path="config:tiny-llama", training_data_path="-")
    build_model(own, load_config(own, {}), words={}, seed=3).save_pretrained(folder / "model")
    lora = ["--peft_method", "lora", "--r", "4", "--target_modules", "all-linear", "--dtype", "bfloat16"]
    words = training(prepared, *lora, "--packing", "True", "--max_seq_len", "64", model=str(folder / "model"))
    script = [INSTRUMENT, "--", SFT]
    return start(folder / "run", [*script, *words, "--max_steps", "2", "--skip_memory_metrics", "False"])


def a_failing_one(folder: Path, prepared: Path) -> Run:
    """A foreign script with a Trainer of its own that fails in its second step. Its model takes a second to build."""
    (folder / "fails.py").write_text(FAILING)
    words = [INSTRUMENT, "--", str(folder / "fails.py"), SFT_FOLDER]
    return start(folder / "run", [*words, *training(prepared, "--max_steps", "4", "--attn_implementation", "eager")])


def a_compiled_one(folder: Path, prepared: Path) -> Run:
    """Each step has a batch as wide as its longest row, and torch compiles for each width, as under `accelerate launch`.

    The backend `eager` compiles quickly, since it makes no kernels.
    """
    words = training(prepared, "--torch_compile", "True", "--torch_compile_backend", "eager", "--max_steps", "14")
    return start(folder / "run", [INSTRUMENT, "--", SFT, *words], ACCELERATE_DYNAMO_USE_DYNAMIC="False")


def one_that_is_refused(folder: Path, prepared: Path) -> Run:
    return start(folder / "run", [INSTRUMENT, "--", SFT, *training(prepared, "--learning_rte", "1")])


@pytest.fixture(scope="module")
def alone(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    kinds = (an_adapter, a_failing_one, one_that_is_refused, a_compiled_one)
    return at_once(*(partial(kind, tmp_path_factory.mktemp(kind.__name__), prepared) for kind in kinds))


@pytest.fixture
def adapter(alone: list[Run]) -> Run:
    return alone[0]


@pytest.fixture
def failing(alone: list[Run]) -> Run:
    return alone[1]


@pytest.fixture
def refused(alone: list[Run]) -> Run:
    return alone[2]


@pytest.fixture
def compiled(alone: list[Run]) -> Run:
    return alone[3]


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


def test_an_error_within_training_has_its_step_and_the_settings(failing: Run) -> None:
    assert failing.code == 1
    assert failing.last_line == "MemoryError: as if out of memory"
    worker = failing.worker()
    assert (worker["status"], worker["error"]["type"], worker["error"]["step"]) == ("error", "MemoryError", 2)
    assert worker["error"]["message"] == "as if out of memory"
    assert worker["settings"]["attn_implementation"] == "eager"
    assert worker["tokens"]["steps"] == 1
    assert worker["metrics"] == {}


def test_the_start_up_ends_before_the_model_is_built(failing: Run) -> None:
    stamps = failing.worker()["stamps"]
    assert stamps["model_built"] - stamps["imports_done"] >= 1


def test_a_wrong_argument_ends_with_a_sentence_before_the_model_is_loaded(refused: Run) -> None:
    assert refused.code == 2
    assert refused.last_line.startswith("error: unknown argument --learning_rte")
    assert refused.last_line.endswith("did you mean --learning_rate?")
    error = refused.worker()["error"]
    assert (error["type"], error["step"], error["exit_code"]) == ("ArgumentError", None, 2)
    assert "error: " + error["message"] == refused.last_line
    assert refused.settings == {}


def test_steps_that_recompile_for_a_new_width_say_so(compiled: Run) -> None:
    assert compiled.code == 0, compiled.last_line
    first, *later = (line for line in compiled.steps() if "s" in line)
    assert first["compiled"] > 0 and "recompiled" not in first
    seen, again = {first["tokens"] / first["samples"]}, []
    for line in later:
        width = line["tokens"] / line["samples"]
        if "recompiled" in line:
            again.append(line["step"])
            assert line.get("new_width", False) is (width not in seen)
        else:
            assert "new_width" not in line
        seen.add(width)
    assert 2 in again and len(again) < len(later), "torch gives up after 8 widths"
    (reported,) = steps.read(compiled.folder).values()
    assert [step.number for step in reported if step.recompiled] == again


def test_status_and_record_name_the_steps_that_recompiled(compiled: Run) -> None:
    said = " ".join(doing(look(compiled.folder, replace(BASE, arguments={"max_steps": "14"}))).split())
    assert "recompiled at steps 2, " in said and said.endswith(": batch widths vary")
    reading = throughput.read(compiled.folder, [compiled.worker()], world_size=1)
    numbers = {one.name: one.value for one in reading.measurements}
    assert numbers["recompiled_steps"] == sum("recompiled" in line for line in compiled.steps())


def test_the_stages_of_compilation_are_timed_and_the_guards_named(compiled: Run) -> None:
    stages = compiled.worker()["compiling"]
    assert 0 < stages["dynamo_s"] < 60 and stages["other_s"] > 0
    assert (stages["inductor_s"], stages["cache_hits"], stages["cache_misses"]) == (0, 0, 0), "the backend is eager"
    reading = throughput.read(compiled.folder, [compiled.worker()], world_size=1)
    assert {one.name: one.value for one in reading.measurements}["dynamo_compile_s"] == stages["dynamo_s"]
    (said,) = [warning.sentence for warning in reading.warnings if "guards" in warning.sentence]
    assert said.startswith("torch compiled again because of guards: ") and "size mismatch" in said


def test_a_run_without_a_compiler_says_nothing_of_one(adapter: Run) -> None:
    assert adapter.worker()["compiling"] is None
    assert not {"compiled", "recompiled", "new_width"} & {key for line in adapter.steps() for key in line}
