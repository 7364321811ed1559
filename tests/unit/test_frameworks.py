"""Framework configurations and defaults: which trainers they are written for."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories.suites import EIGHT_GPUS, expanded, planned, suite

from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import Plan, expand
from orchestrator.plan.selection import Selection

COMMAND = "custom: {command: [train.py, '{arguments}']}"
CUSTOM = f"scenarios: [{{name: s, trainer: custom, {COMMAND}}}]"
DEFAULTS = "max_steps: 5\noptim: adamw_torch\nmodel_name_or_path: m\n"


def with_frameworks(folder: Path, trainer: str, names: str, **files: str) -> Plan:
    """The plan of a scenario with this trainer and these configurations, the files of some of them replaced."""
    command = f"{COMMAND}, " if trainer == "custom" else ""
    rest = f"trainer: {trainer}, {command}num_gpus: 2, arguments: {{model_name_or_path: m}}"
    suite(folder, f"scenarios: [{{name: s, framework_config: {names}, {rest}}}]")
    for name, content in files.items():
        (folder / "frameworks" / f"{name}.yaml").write_text(content)
    return expand(load_suite(folder / "scenarios.yaml"), Selection(), EIGHT_GPUS)


# ------------------------------------------------------------------------------------------------------- defaults


def test_defaults_that_were_only_found_do_not_reach_a_command_of_the_users_own(tmp_path: Path) -> None:
    (one,) = planned(tmp_path, CUSTOM, defaults=DEFAULTS).experiments
    assert (one.model, dict(one.arguments)) == ("none", {})


def test_defaults_that_were_given_reach_every_trainer(tmp_path: Path) -> None:
    suite(tmp_path, CUSTOM, defaults=DEFAULTS)
    given = load_suite(tmp_path / "scenarios.yaml", defaults=tmp_path / "defaults.yaml")
    (one,) = expanded(given)
    assert (one.model, one.arguments["optim"], one.arguments["max_steps"]) == ("m", "adamw_torch", "5")


def test_the_plan_of_a_command_does_not_say_that_it_uses_tunebenchs_defaults(tmp_path: Path) -> None:
    (tmp_path / "scenarios.yaml").write_text(CUSTOM)
    (note,) = expand(load_suite(tmp_path / "scenarios.yaml"), Selection(), EIGHT_GPUS).notes
    assert note.startswith("accelerate.yaml, frameworks: not in the folder of")


# ------------------------------------------------------------------------------------------------------- trainers


def test_a_configuration_written_for_others_is_skipped_with_what_to_write_instead(tmp_path: Path) -> None:
    bf16 = "trainers: [huggingface, trl]\narguments: {bf16: true, dtype: float32, modules: [q, v], seed: null}\n"
    (one,) = with_frameworks(tmp_path, "custom", "eager", eager=bf16).experiments
    assert one.skip is not None and one.skip.kind == "framework_of_other_trainer"
    assert one.skip.text == (
        "framework configuration 'eager' is written for trainer huggingface or trl; for trainer custom write its arguments "
        "under 'matrix:' (bf16: [True], dtype: [float32], modules: [[q, v]], seed: [null])"
    )
    assert dict(one.arguments) == {"model_name_or_path": "m"}
    assert one.framework is not None and one.framework.arguments == {}, "what did not arrive is not shown"


def test_its_own_trainers_get_a_configuration(tmp_path: Path) -> None:
    eager = "trainers: huggingface\narguments: {attn_implementation: eager}\n"
    (one,) = with_frameworks(tmp_path, "huggingface", "eager", eager=eager).experiments
    assert one.skip is None and one.arguments["attn_implementation"] == "eager"


def test_a_configuration_without_the_key_or_without_arguments_is_for_every_trainer(tmp_path: Path) -> None:
    fsdp = "trainers: [huggingface]\naccelerate: {distributed_type: FSDP}\n"
    eager, sharded = with_frameworks(tmp_path, "custom", "[eager, fsdp]", fsdp=fsdp).experiments
    assert eager.skip is None and eager.arguments["attn_implementation"] == "eager"
    assert sharded.skip is None and sharded.accelerate["distributed_type"] == "FSDP"


@pytest.mark.parametrize("trainers", ["", "trainers: [huggingface]\n", "trainers: null\n"])
def test_the_trainers_are_no_part_of_an_experiment(trainers: str, tmp_path: Path) -> None:
    def ids(plan: Plan) -> list[str]:
        return [one.id for one in plan.experiments]

    plain = with_frameworks(tmp_path, "huggingface", "eager", eager="arguments: {attn_implementation: eager}\n")
    named = f"{trainers}arguments: {{attn_implementation: eager}}\n"
    assert ids(with_frameworks(tmp_path, "huggingface", "eager", eager=named)) == ids(plain)


def test_shipped_configurations_with_arguments_name_the_trainers_that_take_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "scenarios.yaml").write_text(CUSTOM)
    sources = load_suite(tmp_path / "scenarios.yaml").frameworks.values()
    named = {source.trainers for source in sources if source.framework.arguments}
    assert named == {("huggingface", "trl", "fms_hf_tuning")}
    assert {source.trainers for source in sources if not source.framework.arguments} == {None}


@pytest.mark.parametrize(
    ("trainer", "digest"), [("huggingface", "ffc6edf1b9ae"), ("trl", "bb465612f813"), ("fms_hf_tuning", "66cc4730f139")]
)
def test_experiments_of_other_trainers_resume(trainer: str, digest: str, tmp_path: Path) -> None:
    """These ids were written before defaults belonged to a trainer."""
    (one,) = with_frameworks(tmp_path, trainer, "eager").experiments
    assert one.id == f"s-m.eager.gpus2-{digest}"
