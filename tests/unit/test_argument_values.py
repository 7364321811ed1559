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


def test_a_name_near_to_one_of_the_trainers_is_pointed_out_and_passes(tmp_path: Path) -> None:
    plan = planned(tmp_path, "max_stepz: 5")
    assert (
        "max_stepz is not an argument of the trainer, so the model's configuration gets it; did you mean max_steps?"
        in "\n".join(plan.notes)
    )
    assert not any("is no argument" in note for note in planned(tmp_path, "num_hidden_layers: 5").notes)


def test_a_plan_and_the_built_in_trainer_mean_the_same_by_yes_and_no() -> None:
    import arguments as worker

    assert (argument_values.YES, argument_values.NO) == (worker.TRUE, worker.FALSE)
