"""The trainers `llamafactory` and `axolotl`: the file that each gets, and what a plan refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from factories.results import experiment
from test_argument_values import planned

from orchestrator.plan.config.argument_text import argument_texts
from orchestrator.records import Text
from orchestrator.run.settings_check import mismatches
from orchestrator.trainers import get
from orchestrator.trainers.external.config_file import file_text

WRITTEN = {
    "yes": True,
    "whole": 5,
    "rate": 2e-05,
    "negative": -0.5,
    "strategy": "no",
    "version": "0.9.3",
    "leading": "007",
    "path": "/data/a b: c.json",
    "modules": ["q_proj", "v_proj"],
    "datasets": [{"path": "it's.json", "shards": None, "type": {"format": "{a}\n"}}],
    "special_tokens": {"pad_token": "<|end|>"},
}


def test_the_file_has_the_values_that_the_scenario_has() -> None:
    texts = {name: text for name, text in argument_texts(WRITTEN).items() if text is not None}
    assert yaml.safe_load(file_text(texts)) == WRITTEN


@pytest.mark.parametrize("text", ["{not python}", "[a, b", "{0: ", "2e-5x", "{1, 2}"])
def test_other_texts_stay_texts(text: str) -> None:
    assert yaml.safe_load(file_text({"a": text, "b": "2e-5"})) == {"a": text, "b": 2e-5}


def translated(trainer: str, **arguments: Text | None) -> dict[str, Text | None]:
    return get(trainer).translate(arguments)[0]


def test_llamafactory_gets_its_own_names() -> None:
    given: dict[str, Text | None] = {"max_seq_len": "512", "peft_method": "none", "r": "4", "quantization": "nf4"}
    assert translated("llamafactory", **given, attn_implementation="eager", gradient_checkpointing="True") == {
        "cutoff_len": "512",
        "finetuning_type": "full",
        "lora_rank": "4",
        "quantization_bit": "4",
        "quantization_type": "nf4",
        "flash_attn": "disabled",
        "disable_gradient_checkpointing": "False",
    }


def test_axolotl_s_batch_has_its_own_name_in_the_file_only() -> None:
    arguments = translated("axolotl", micro_batch_size="2", max_seq_len="128", packing="True", peft_method="lora")
    assert arguments["per_device_train_batch_size"] == "2", "so batch sizes are settled as for any trainer"
    one = experiment(trainer="axolotl", arguments={**arguments, "model_name_or_path": "m"})
    file = yaml.safe_load(get("axolotl").files(one, Path("/r"))["axolotl.yaml"])
    assert file == {
        "micro_batch_size": 2,
        "sequence_len": 128,
        "sample_packing": True,
        "adapter": "lora",
        "base_model": "m",
        "output_dir": "../output",
    }


@pytest.mark.parametrize(
    ("trainer", "arguments", "text"),
    [
        ("llamafactory", {"dataset": "a"}, "trainer llamafactory needs the argument template"),
        ("llamafactory", {"template": "a"}, "trainer llamafactory needs the argument dataset"),
        ("llamafactory", {"dataset": "a", "template": "b"}, None),
        ("axolotl", {"sequence_len": "8"}, "trainer axolotl needs data; write datasets:"),
        ("axolotl", {"datasets": ("{'path': 'a.json'}",)}, None),
    ],
)
def test_a_cell_without_data_is_skipped(trainer: str, arguments: dict[str, Text], text: str | None) -> None:
    reason = get(trainer).problem(experiment(trainer=trainer, arguments=arguments))
    assert reason is None if text is None else (reason is not None and reason.text.startswith(text))


def test_a_folder_next_to_the_scenario_file_is_found_by_every_run(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (one,) = planned(tmp_path, "dataset_dir: rows\n    dataset: a\n    template: b", trainer="llamafactory").experiments
    assert one.arguments["dataset_dir"] == str(tmp_path / "rows")
    assert one.global_batch == 8, "the Trainer's default"


@pytest.mark.parametrize(
    ("arguments", "settings", "differs"),
    [
        ({"disable_gradient_checkpointing": "True"}, {"gradient_checkpointing": True}, "gradient_checkpointing"),
        ({"finetuning_type": "full"}, {"peft_method": None}, None),
        ({"finetuning_type": "lora"}, {"peft_method": None}, "peft_method"),
        ({"adapter": "qlora", "lora_rank": "8"}, {"peft_method": "lora", "lora_rank": 8}, None),
        ({"lora_rank": "8"}, {"lora_rank": 4}, "lora_rank"),
        ({"bf16": "auto"}, {"mixed_precision": "bf16"}, None),
    ],
)
def test_their_settings_are_compared(arguments: dict[str, Text], settings: dict[str, Any], differs: str | None) -> None:
    found = mismatches(experiment(trainer="llamafactory", arguments=arguments), settings)
    assert [sentence.split()[0] for sentence in found] == ([differs] if differs else [])
