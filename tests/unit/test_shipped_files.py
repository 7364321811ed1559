"""The YAML files that ship: they load, expand, hold together, and cover what they promise."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from configs import CONFIGS
from jsonschema import Draft202012Validator

from orchestrator.machine.provenance import this_machine
from orchestrator.plan.config import load_suite, read_document
from orchestrator.plan.config.keys import file_keys, scenario_keys
from orchestrator.plan.config.keys.model import Model
from orchestrator.plan.config.starter_file import write_starter
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import parse_selection

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    *("baseline", "sdpa", "flash-attention", "gradient-checkpointing", "torch-compile", "liger", "padding-free"),
    *("fused-optimizer", "ddp", "fsdp", "bnb-nf4"),
}
NAMES = ("quickstart", "full-finetuning", "sharded-finetuning", "lora", "qlora", "gptq-lora", "mixture-of-experts")


def test_the_promised_scenarios_and_framework_configurations_are_there() -> None:
    suite = load_suite(ROOT / "scenarios.yaml")
    assert tuple(scenario.name for scenario in suite.scenarios) == NAMES
    assert [scenario.name for scenario in suite.scenarios if scenario.slow] == ["mixture-of-experts"]
    assert suite.frameworks.keys() >= PROMISED
    listed = {file.name for file in (ROOT / "frameworks").glob("*.yaml")} - {"CONTENTS.yaml"}
    assert listed == {f"{name}.yaml" for name in suite.frameworks}


@pytest.mark.parametrize("name", NAMES)
def test_no_shipped_cell_is_wrong_anywhere(name: str) -> None:
    plan = expand(load_suite(ROOT / "scenarios.yaml"), parse_selection(scenarios=(name,)), this_machine())
    assert [one.skip.text for one in plan.experiments if one.skip] == []
    assert plan.collapsed == () and plan.notes == ()


def test_another_effective_batch_size_replaces_the_scenarios_own() -> None:
    selection = parse_selection(scenarios=("lora",), axes=("effective_batch_size=4,16",))
    plan = expand(load_suite(ROOT / "scenarios.yaml"), selection, this_machine())
    assert {one.global_batch for one in plan.experiments} == {4, 16}


def test_quickstart_needs_nothing_and_is_short() -> None:
    plan = expand(load_suite(ROOT / "scenarios.yaml"), parse_selection(scenarios=("quickstart",)), this_machine())
    assert 4 <= len(plan.experiments) <= 8
    assert {one.model for one in plan.experiments} == {"config:tiny-llama"}
    assert {one.data.source for one in plan.experiments if one.data} == {"builtin:stdlib-docs"}


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").rglob("*.yaml")), ids=lambda file: str(file.relative_to(ROOT))
)
def test_examples_expand_and_nothing_in_them_is_wrong(file: Path) -> None:
    plan = expand(load_suite(file), parse_selection(), this_machine())
    assert plan.experiments
    skipped = {one.skip.kind for one in plan.experiments if one.skip}
    assert skipped == ({"framework_needs_gpus"} if file.stem == "plan-96-cells" else set())


SCENARIO_FILES = [
    ROOT / "scenarios.yaml",
    *sorted((ROOT / "examples").rglob("*.yaml")),
    *sorted(
        set((ROOT / "tests/golden/scenarios").glob("*.yaml")) - {ROOT / "tests/golden/scenarios/accelerate-config.yaml"}
    ),
]


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    content = json.loads((ROOT / "docs" / "scenarios.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(content)
    return Draft202012Validator(content)


@pytest.mark.parametrize("file", SCENARIO_FILES, ids=lambda file: file.name)
def test_an_editor_finds_no_mistake_in_a_scenario_file(schema: Draft202012Validator, file: Path) -> None:
    assert [error.message for error in schema.iter_errors(read_document(file).value)] == []


def test_an_editor_finds_no_mistake_in_the_starter_and_finds_one_in_a_wrong_file(
    schema: Draft202012Validator, tmp_path: Path
) -> None:
    write_starter(tmp_path / "starter.yaml")
    starter = read_document(tmp_path / "starter.yaml").value
    assert schema.is_valid(starter)
    (first,) = starter["scenarios"]
    for wrong in ({"num_gpu": 1}, {"env": {"A": [1]}}, {"env": {"A B": "1"}}, {"matrix": {"max_seq_len": []}}):
        assert not schema.is_valid({**starter, "scenarios": [{**first, **wrong}]}), wrong


KEYS = {**vars(file_keys), **vars(scenario_keys)}
MODELS = [found for found in KEYS.values() if isinstance(found, type) and issubclass(found, Model)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_key_of_a_file_is_described(model: type[Model]) -> None:
    """In a table of keys, as `key`, or in an example, as key: value."""
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert [key for key in model.model_fields if not re.search(rf"`{key}`|^[^\n#]*\b{key}:", page, re.MULTILINE)] == []


def test_every_model_that_is_built_from_a_configuration_is_named() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert [name for name in CONFIGS if f"`{name}`" not in page] == []
