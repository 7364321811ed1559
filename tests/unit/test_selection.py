"""What the command line chooses: its texts read, scenarios chosen, single values changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from factories.suites import suite

from orchestrator.errors import SelectionError
from orchestrator.plan.selection import chosen_scenarios, parse_selection, whole_numbers

FILE: dict[str, Any] = {
    "scenarios": [
        {"name": "fast", "arguments": {"model_name_or_path": "m"}, "env": {"A": "1", "B": "2"}},
        {"name": "slow one", "slow": True, "arguments": {"model_name_or_path": "m"}},
        {"name": "last", "arguments": {"model_name_or_path": "m"}, "repeats": 2},
    ]
}


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ((), ["fast", "last"]),
        (("slow one",), ["slow one"]),
        (("last", "slow one", "last"), ["slow one", "last"]),  # the file's order, each once
    ],
)
def test_scenarios_are_chosen_in_the_files_order(names: tuple[str, ...], chosen: list[str], tmp_path: Path) -> None:
    found = chosen_scenarios(suite(tmp_path, FILE), parse_selection(scenarios=names))
    assert [one.name for one in found] == chosen


@pytest.mark.parametrize("name", ["slow", "Fast", "slow*", ""])
def test_names_are_exact(name: str, tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="there is no scenario"):
        chosen_scenarios(suite(tmp_path, FILE), parse_selection(scenarios=[name]))


def test_values_of_set_are_read_as_in_the_file() -> None:
    texts = ["arguments.learning_rate=2e-5", "arguments.bf16=yes", "arguments.target_modules=[q, v]", "arguments.x=a=b"]
    found = parse_selection(settings=[*texts, "arguments.max_steps=null", "arguments.note=", "arguments.a.b=1"])
    assert found.overrides == {
        **{"learning_rate": "2e-5", "bf16": True, "target_modules": ["q", "v"], "x": "a=b"},
        **{"max_steps": None, "note": "", "a.b": 1},
    }


def test_set_changes_a_scenarios_own_keys_and_adds_to_its_environment(tmp_path: Path) -> None:
    choice = parse_selection(settings=["repeats=5", "timeout_s=1e3", "env.B=null", "env.C=3"], trainer=None)
    fast, last = chosen_scenarios(suite(tmp_path, FILE), choice)
    assert (fast.repeats, last.repeats, fast.timeout_s) == (5, 5, 1000.0)
    assert fast.env == {"A": "1", "B": None, "C": "3"}
    assert last.env == {"B": None, "C": "3"}


def test_axes_take_lists_in_brackets_and_null() -> None:
    found = parse_selection(axes=["target_modules=[q,v],all-linear,null", "packing=True,no", 'x=""'])
    assert found.axes == {"target_modules": (("q", "v"), "all-linear", None), "packing": ("True", "False"), "x": ("",)}


@pytest.mark.parametrize(("keys", "said"), cases("selection/what_is_not_understood_is_said"))
def test_what_is_not_understood_is_said(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(SelectionError) as caught:
        parse_selection(**keys)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(("setting", "said"), cases("selection/a_value_of_the_wrong_type_is_said"))
def test_a_value_of_the_wrong_type_is_said(setting: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SelectionError) as caught:
        chosen_scenarios(suite(tmp_path, FILE), parse_selection(settings=[setting]))
    assert str(caught.value) == said


@pytest.mark.parametrize(("text", "numbers"), [("1", (1,)), ("1,2,4", (1, 2, 4)), ("1 2", (1, 2)), (" 8 , 4 ", (8, 4))])
def test_whole_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert whole_numbers(text, option="--num-gpus") == numbers


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "two", "", ",", "1;2", "²"])
def test_what_is_no_whole_number_is_said(text: str) -> None:
    with pytest.raises(SelectionError, match="such as --num-gpus 1,2"):
        whole_numbers(text, option="--num-gpus")
