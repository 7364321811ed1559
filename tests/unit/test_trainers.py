"""The trainers: their registry, their names of arguments, the numbers they read from what a run left."""

from __future__ import annotations

import json
import timeit
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from test_argument_values import planned

from orchestrator import trainers
from orchestrator.records import Text
from orchestrator.trainers import Trainer, instrumented


def test_every_trainer_of_ours_is_a_trainer_of_its_name() -> None:
    assert tuple(trainers.TRAINERS) == (
        "huggingface",
        "fms_hf_tuning",
        "trl",
        "trl_dpo",
        "script",
        "custom",
        "llamafactory",
        "axolotl",
        "litgpt",
        "thunder",
        "operators",
        "pytest_benchmark",
    )
    for name, trainer in trainers.TRAINERS.items():
        assert isinstance(trainer, Trainer)
        assert trainer.name == name
        assert trainers.get(name) is trainer


def translated(trainer: str, **arguments: Text | None) -> dict[str, Text | None]:
    return trainers.get(trainer).translate(arguments)[0]


@pytest.mark.parametrize(("arguments", "expected"), cases("trainers/old_names_become_those_of_the_built_in_trainer"))
def test_old_names_become_those_of_the_built_in_trainer(
    arguments: dict[str, Text | None], expected: dict[str, Text | None]
) -> None:
    assert translated("huggingface", **arguments) == expected


def test_a_translated_name_is_said_in_a_sentence() -> None:
    _, said = trainers.get("huggingface").translate({"evaluation_strategy": "no", "seed": "1", "torch_dtype": "auto"})
    assert said == ("evaluation_strategy is called eval_strategy today.", "torch_dtype is called dtype today.")


def test_the_reference_s_arguments_pass_as_they_are() -> None:
    arguments: dict[str, Text | None] = {
        "use_flash_attn": "True",
        "evaluation_strategy": "no",
        "include_tokens_per_second": "True",
        "torch_dtype": "bfloat16",
        "max_seq_len": "4096",
        "peft_method": "lora",
    }
    assert trainers.get("fms_hf_tuning").translate(arguments) == (arguments, ())
    assert translated("fms_hf_tuning", dtype="float16", attn_implementation="sdpa", peft_method="none") == {
        "torch_dtype": "float16",
        "use_flash_attn": "False",
        "peft_method": None,
    }


def test_trl_gets_its_own_names() -> None:
    given: dict[str, Text | None] = {
        "torch_dtype": "bfloat16",
        "max_seq_len": "512",
        "peft_method": "lora",
        "r": "8",
        "target_modules": ("q_proj",),
        "quantization": "nf4",
        "double_quantization": "True",
    }
    assert translated("trl", **given) == {
        "dtype": "bfloat16",
        "max_length": "512",
        "use_peft": "True",
        "lora_r": "8",
        "lora_target_modules": ("q_proj",),
        "load_in_4bit": "True",
        "bnb_4bit_quant_type": "nf4",
        "use_bnb_nested_quant": "True",
    }


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (
            "beta: 0.1",
            "trainer trl_dpo needs preferences; write dataset_name: and a hub name or the path of your own folder",
        ),
        ("dataset_name: org/pairs", None),
        ("datasets: [org/pairs]", None),
        ("dataset_name: org/pairs, packing: false", None),
        (
            "dataset_name: org/pairs, packing: true",
            "trainer trl_dpo cannot pack rows, because each pair is compared; remove packing",
        ),
    ],
)
def test_dpo_needs_pairs_and_packs_none(argument: str, reason: str | None, tmp_path: Path) -> None:
    (one,) = planned(tmp_path, argument.replace(", ", "\n    "), trainer="trl_dpo").experiments
    assert (one.skip.text if one.skip else None) == reason
    assert one.data is None, "Tunebench prepares no preferences"


@pytest.mark.parametrize("trainer", ["trl", "trl_dpo"])
def test_a_local_data_set_is_found_next_to_the_scenario_file(trainer: str, tmp_path: Path) -> None:
    """A run starts in its own folder, where a relative path would lead nowhere."""
    (tmp_path / "pairs").mkdir()
    for written, found in (("pairs", str(tmp_path / "pairs")), ("org/pairs", "org/pairs")):
        (one,) = planned(tmp_path, f"dataset_name: {written}", trainer=trainer).experiments
        assert one.arguments["dataset_name"] == found


def test_translation_is_quick_enough_for_a_hundred_thousand_cells() -> None:
    trainer = trainers.get("huggingface")
    arguments: dict[str, Text | None] = {f"argument_{index}": "1" for index in range(30)} | {"torch_dtype": "auto"}
    assert min(timeit.repeat(lambda: trainer.translate(arguments), number=1000, repeat=3)) < 0.1  # 100 µs a cell


def test_a_choice_may_need_a_package_more() -> None:
    trainer = trainers.get("huggingface")
    assert "peft" not in trainer.requires_for({"peft_method": "none"})
    assert trainer.requires_for({"peft_method": "lora", "quantization": "nf4"})[-2:] == ("peft", "bitsandbytes")
    assert trainer.requires_for({"optim": "paged_lion_8bit"})[-1] == "bitsandbytes"
    assert trainer.requires_for({"optim": "adamw_torch_8bit"})[-1] == "torchao"
    assert trainer.requires_for({"optim": "adamw_torch_fused"}) == trainer.requires
    assert trainers.get("trl").requires_for({"use_peft": "True"})[-1] == "peft"


def worker(run_dir: Path, rank: int = 0, **changes: Any) -> None:
    content = {
        "rank": rank,
        "world_size": 2,
        "metrics": {"train_runtime": 10.0, "train_loss": 2.5, "train_mem_gpu_peaked_delta": 7, "odd": "text"},
        "tokens": {"processed": 1000, "samples": 10, "steps": 5},
        "settings": {"trainable_parameters": 12},
        **changes,
    }
    (run_dir / f"worker-rank{rank}.json").write_text(json.dumps(content))


def numbers(run_dir: Path) -> dict[str, Any]:
    return {found.name: found.value for found in trainers.get("huggingface").metrics(run_dir)}


def test_token_speed_is_a_device_s_mean_over_all_ranks(tmp_path: Path) -> None:
    worker(tmp_path, 0)
    worker(tmp_path, 1, tokens={"processed": 3000})
    assert numbers(tmp_path)["train_tokens_per_second"] == pytest.approx(4000 / 10 / 2)
    assert numbers(tmp_path)["train_loss"] == 2.5
    assert "train_mem_gpu_peaked_delta" not in numbers(tmp_path)
    counts = {name: numbers(tmp_path)[name] for name in ("tokens_processed", "steps", "trainable_parameters")}
    assert counts == {"tokens_processed": 4000, "steps": 5, "trainable_parameters": 12}


def test_ranks_that_share_a_batch_processed_it_once(tmp_path: Path) -> None:
    for rank in (0, 1):
        worker(tmp_path, rank, settings={"world_size": 2, "data_parallel_ranks": 1})
    found = numbers(tmp_path)
    assert (found["tokens_processed"], found["samples_processed"]) == (1000, 10)
    assert found["train_tokens_per_second"] == pytest.approx(1000 / 10 / 2), "a device's share of the group's"


def test_the_trainer_s_own_token_speed_stands(tmp_path: Path) -> None:
    worker(tmp_path, world_size=1, metrics={"train_runtime": 10.0, "train_tokens_per_second": 77.0})
    assert numbers(tmp_path)["train_tokens_per_second"] == 77.0


def test_logged_losses_are_one_cell(tmp_path: Path) -> None:
    worker(tmp_path, losses=[[10, 9.25], [20, 3.5]])
    assert numbers(tmp_path)["logged_losses"] == "10:9.25 20:3.5"


@pytest.mark.parametrize("losses", [None, [], [[10, 9.25], [20, None]], [[10]], "words", 5, [[10, 10**400]]])
def test_losses_with_a_gap_are_none(tmp_path: Path, losses: Any) -> None:
    worker(tmp_path, losses=losses)
    assert "logged_losses" not in numbers(tmp_path)


@pytest.mark.parametrize("ranks", [[], [1], [0]])
def test_a_missing_rank_makes_no_low_number(tmp_path: Path, ranks: list[int]) -> None:
    for rank in ranks:
        worker(tmp_path, rank)
    assert "train_tokens_per_second" not in numbers(tmp_path)


def test_of_blocks_that_were_left_alone_there_are_no_counts(tmp_path: Path) -> None:
    worker(tmp_path, world_size=1, toggle_steps=20)
    assert not numbers(tmp_path).keys() & {"train_tokens_per_second", "tokens_processed", "samples_processed", "steps"}


def test_what_is_not_whole_or_not_finite_is_missing(tmp_path: Path) -> None:
    worker(tmp_path, 0, metrics={"train_runtime": 10.0, "train_loss": float("nan"), "epoch": True})
    (tmp_path / "worker-rank1.json").write_text('{"rank": 1, "tok')
    final = {"train_runtime": 10.0, "train_loss": None, "epoch": None}
    assert numbers(tmp_path) == {**final, "steps": 5, "trainable_parameters": 12}


def test_flags() -> None:
    words = instrumented.flags({"a": "1", "l": ("x", "y"), "none": (), "text": "-x y", "number": "-1e-3"})
    assert words == ["--a", "1", "--l", "x", "y", "--none", "--text=-x y", "--number", "-1e-3"]
