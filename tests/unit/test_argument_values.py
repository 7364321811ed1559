"""What arguments take: what a plan says of values, and its table against the built-in trainer's own."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest
from factories.cases import cases

from orchestrator.errors import ConfigError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import Plan, expand
from orchestrator.plan.selection import parse_selection
from orchestrator.trainers import argument_values


def planned(folder: Path, arguments: str, *, trainer: str = "huggingface", more: str = "", **given: typing.Any) -> Plan:
    file = folder / "scenarios.yaml"
    file.write_text(
        f"scenarios:\n- name: s\n  trainer: {trainer}\n{more}  arguments:\n    model_name_or_path: m\n    {arguments}\n"
    )
    return expand(load_suite(file), parse_selection(**given), Machine())


def said(folder: Path, arguments: str, **how: typing.Any) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(folder, arguments, **how)
    return str(caught.value).removeprefix(f"{folder}/")


@pytest.mark.parametrize(
    ("argument", "told"), cases("argument_values/a_value_that_cannot_be_is_a_mistake_with_its_place")
)
def test_a_value_that_cannot_be_is_a_mistake_with_its_place(argument: str, told: str, tmp_path: Path) -> None:
    assert said(tmp_path, argument) == f"scenarios.yaml:6:5: scenario 's': {told}"


def test_all_of_a_cell_are_told_at_once(tmp_path: Path) -> None:
    told = said(tmp_path, "seed: x\n    packing: maybe").splitlines()
    assert {line.partition(" scenario")[0].rpartition("/")[2] for line in told} == {
        "scenarios.yaml:6:5:",
        "scenarios.yaml:7:5:",
    }


def test_where_a_value_comes_from_is_said(tmp_path: Path) -> None:
    matrix = "  matrix:\n    torch_dtype: [bfloat16, bf8]\n"
    assert said(tmp_path, "seed: 1", more=matrix).startswith(
        "scenarios.yaml:5:5: scenario 's': dtype: 'bf8' is invalid"
    )
    assert said(tmp_path, "seed: 1", settings=["arguments.seed=x"]).endswith("write a whole number (from --set)")
    assert said(tmp_path, "bf16: true", axes=["seed=1,x"]).endswith("write a whole number (from --axis)")
    matrix = "  matrix:\n    seed: [1, 2]\n"
    assert said(tmp_path, "bf16: true", more=matrix, axes=["seed=1,x"]).endswith("write a whole number (from --axis)")
    include = "  include:\n  - {num_gpus: 1, seed: 3}\n  - {num_gpus: 4, framework_config: null, seed: x}\n"
    assert said(tmp_path, "bf16: true", more=include).startswith(
        "scenarios.yaml:6:43: scenario 's': seed: 'x' is invalid"
    )
    assert said(tmp_path, "bf16: true", more=f"{matrix}{include}").startswith(
        "scenarios.yaml:8:43: scenario 's': seed: 'x'"
    )
    (tmp_path / "defaults.yaml").write_text("weight_decay: heavy\n")
    assert said(tmp_path, "seed: 1").endswith(f"write a number (from {tmp_path}/defaults.yaml)")


@pytest.mark.parametrize(("argument", "trainer"), cases("argument_values/what_may_be_right_passes"))
def test_what_may_be_right_passes(argument: str, trainer: str, tmp_path: Path) -> None:
    assert planned(tmp_path, argument, trainer=trainer).experiments


def notes(folder: Path, arguments: str, trainer: str) -> str:
    more = "  custom: {command: [train]}\n" if trainer == "custom" else ""
    return "\n".join(planned(folder, arguments, trainer=trainer, more=more).notes)


@pytest.mark.parametrize(("argument", "told"), cases("argument_values/the_built_in_trainer_refuses_unknown_names"))
def test_the_built_in_trainer_refuses_unknown_names(argument: str, told: str, tmp_path: Path) -> None:
    assert said(tmp_path, argument) == f"scenarios.yaml:6:5: scenario 's': {told}"


@pytest.mark.parametrize(
    "name", ["num_hidden_layers", "rope_theta", "n_layer", "model_config.max_stps", "per_gpu_train_batch_size"]
)
def test_the_fields_of_models_and_what_is_marked_as_such_pass(name: str, tmp_path: Path) -> None:
    assert planned(tmp_path, f"{name}: 5").experiments


@pytest.mark.parametrize("trainer", ["trl", "fms_hf_tuning"])
def test_other_trainers_refuse_a_slip_and_note_what_is_not_known(trainer: str, tmp_path: Path) -> None:
    for slip in ("max_stps", "max_stpes", "max_stepz", "max_stepss"):
        told = said(tmp_path, f"{slip}: 5", trainer=trainer)
        assert told.endswith(f"5: scenario 's': trainer {trainer} has no argument '{slip}'; write max_steps")
    note = f"is not an argument that Tunebench knows of trainer {trainer}, which gets it unchecked"
    assert f"largest_steps {note}" in notes(tmp_path, "largest_steps: 5", trainer)
    assert f"lr {note}" in notes(tmp_path, "lr: 5", trainer), "a short name is no slip of another one"
    assert note not in notes(tmp_path, "max_steps: 5", trainer)


def test_a_command_takes_any_name(tmp_path: Path) -> None:
    assert "max_stps" not in notes(tmp_path, "max_stps: 5", "custom")


def test_a_slip_on_the_command_line_or_in_another_file_says_where(tmp_path: Path) -> None:
    assert said(tmp_path, "seed: 1", settings=["arguments.max_stps=5"]).endswith("unchecked (from --set)")
    assert said(tmp_path, "seed: 1", axes=["max_stps=5,6"]).endswith("unchecked (from --axis)")
    (tmp_path / "defaults.yaml").write_text("max_stps: 5\n")
    assert said(tmp_path, "seed: 1").endswith(f"unchecked (from {tmp_path}/defaults.yaml)")


def test_a_plan_and_the_built_in_trainer_mean_the_same_by_yes_and_no() -> None:
    import arguments as worker

    assert (argument_values.YES, argument_values.NO) == (worker.TRUE, worker.FALSE)
