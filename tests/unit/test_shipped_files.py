"""The YAML files that ship: they load, expand, hold together, and cover what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.machine.provenance import this_machine
from orchestrator.plan.config import load_suite
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


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda file: file.name)
def test_examples_expand_and_nothing_in_them_is_wrong(file: Path) -> None:
    plan = expand(load_suite(file), parse_selection(), this_machine())
    assert plan.experiments
    skipped = {one.skip.kind for one in plan.experiments if one.skip}
    assert skipped == ({"framework_needs_gpus"} if file.stem == "plan-96-cells" else set())


def test_every_key_of_a_scenario_is_described() -> None:
    from orchestrator.plan.config.file_keys import DataProcessing, Scenario

    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    keys = [*Scenario.model_fields, *DataProcessing.model_fields]
    assert [key for key in keys if f"`{key}`" not in page] == []
