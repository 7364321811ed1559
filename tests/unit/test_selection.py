"""What the command line chooses: its texts read, scenarios chosen, single values changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from factories.suites import EIGHT_GPUS, suite

from orchestrator.errors import ConfigError, SelectionError
from orchestrator.plan.config import argument_text, load_suite
from orchestrator.plan.expand import expand
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


def test_a_note_names_the_slow_scenarios_that_are_left_out(tmp_path: Path) -> None:
    def notes(*more: dict[str, Any], names: tuple[str, ...] = ()) -> list[str]:
        file = {"scenarios": [*FILE["scenarios"], *more]}
        planned = expand(suite(tmp_path, file), parse_selection(scenarios=names), EIGHT_GPUS)
        return [note for note in planned.notes if "left out" in note]

    assert notes() == ["scenario 'slow one' is slow and left out; --scenario 'slow one' runs it"]
    assert notes(names=("fast",)) == notes(names=("slow one",)) == []
    assert notes({"name": "b", "slow": True, "arguments": {"model_name_or_path": "m"}}) == [
        "scenarios 'slow one', 'b' are slow and left out; --scenario NAME runs one of them"
    ]


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


def test_axes_take_commas_in_quotes() -> None:
    found = parse_selection(axes=['x="a,b",c', "y='a,''b',it's,[\"]\",d]"]).axes
    assert found == {"x": ("a,b", "c"), "y": ("a,'b", "it's", argument_text(["]", "d"]))}


@pytest.mark.parametrize("text", ["x={a,b", "x=[a", 'x="a,b', "x=a,'b"])
def test_an_axis_with_an_open_bracket_or_quote_is_refused(text: str) -> None:
    with pytest.raises(SelectionError, match="has a bracket or a quote that is not closed"):
        parse_selection(axes=[text])


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


CELLS: dict[str, Any] = {
    "scenarios": [
        {"name": "a", "framework_config": [None, "eager", ["eager", "accumulate"]],
         "arguments": {"model_name_or_path": ["config:tiny-llama", "config:llama-1b"]}},
        {"name": "b", "framework_config": ["accumulate"], "arguments": {"model_name_or_path": "config:tiny-llama"}},
    ]
}  # fmt: skip


def chosen(folder: Path, **choices: Any) -> dict[str, tuple[str | None, str]]:
    found = expand(suite(folder, CELLS), parse_selection(**choices), EIGHT_GPUS).experiments
    return {one.id: (one.framework.name if one.framework else None, one.model.removeprefix("config:")) for one in found}


def test_cells_are_chosen_by_framework_model_and_id(tmp_path: Path) -> None:
    every = chosen(tmp_path)
    joined = chosen(tmp_path, frameworks=["accumulate+eager"], models=["config:llama-1b"])
    assert [*joined.values()] == [("eager+accumulate", "llama-1b")]
    assert [*chosen(tmp_path, frameworks=["none", "accumulate"]).values()] == [
        *((None, "tiny-llama"), (None, "llama-1b")),
        ("accumulate", "tiny-llama"),
    ]
    (id,) = joined
    assert {*chosen(tmp_path, cells=[id])} == {*chosen(tmp_path, cells=[id[-6:]])} == {id}
    assert joined.items() <= every.items(), "ids stay"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("a-none", "--cell a-none: the ids of 3 experiments contain it; name one of: {all}"),
        ("kind=x", "--cell kind=x: no experiment's id contains it. Allowed: {all}"),
        ("a-none.none.gpus1-000000000000", "no experiment's id contains it. Allowed: {all}"),
        ("a-none.none.gpu2", "no experiment's id contains it; did you mean '{last}'? Allowed: {all}"),
    ],
)
def test_ids_that_differ_only_in_their_digest_are_listed_with_their_values(
    word: str, said: str, tmp_path: Path
) -> None:
    """An error of `--cell` says for which values each id stands, as `show` does."""
    custom = {"command": ["echo", "{kind}", "{api_key}"], "metrics": {"x": {"key": "x"}}}
    matrix = {"kind": ["x", "y"], "api_key": ["private"]}
    cells = {"name": "a", "trainer": "custom", "device": "cpu", "matrix": matrix, "custom": custom}
    more = {"num_gpus": 2, "kind": "x", "api_key": "other"}
    document = {"scenarios": [{**cells, "include": [more]}]}
    plan = expand(suite(tmp_path, document), parse_selection(), EIGHT_GPUS)
    first, second, last = (one.id for one in plan.experiments)
    with pytest.raises(SelectionError) as caught:
        expand(suite(tmp_path, document), parse_selection(cells=[word]), EIGHT_GPUS)
    assert said.format(all=f"{first} (kind=x), {second} (kind=y), {last}", last=last) in str(caught.value)


def test_what_was_not_chosen_is_known(tmp_path: Path) -> None:
    choice = parse_selection(scenarios=["a"], frameworks=["none"])
    plan = expand(suite(tmp_path, CELLS), choice, EIGHT_GPUS)
    assert len(plan.experiments) == 2 and len(plan.not_chosen) == 4
    assert not plan.not_chosen & {one.id for one in plan.experiments}


@pytest.mark.parametrize(("choices", "said"), cases("selection/a_choice_that_matches_nothing_is_an_error"))
def test_a_choice_that_matches_nothing_is_an_error(choices: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SelectionError) as caught:
        chosen(tmp_path, **choices)
    assert said in str(caught.value)


BROKEN = """
scenarios:
- name: good
  arguments: {model_name_or_path: m}
- {name: odd, argumens: {}}
- name: unknown
  framework_config: [eagr]
  arguments: {model_name_or_path: m}
- name: last
  matrix: {max_steps: [many]}
  arguments: {model_name_or_path: m}
"""


def test_mistakes_in_scenarios_that_are_not_chosen_are_notes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"scenarios.yaml:5:15"):
        suite(tmp_path, BROKEN)
    found = load_suite(tmp_path / "scenarios.yaml", chosen=["good"])
    assert [one.name for one in found.scenarios] == ["good", "last"]
    (odd,), (unknown,) = found.left_out["odd"], found.left_out["unknown"]
    assert odd.startswith(f"{tmp_path}/scenarios.yaml:5:15: scenario 'odd': unknown key 'argumens'")
    assert unknown.startswith(
        f"{tmp_path}/scenarios.yaml:7:22: scenario 'unknown': unknown framework configuration 'eagr'"
    )
    assert unknown.endswith("(this scenario is not chosen)")
    with pytest.raises(ConfigError, match=r"scenarios.yaml:5:15: scenario 'odd'"):
        load_suite(tmp_path / "scenarios.yaml", chosen=["odd"])


def test_a_mistake_after_a_scenario_that_was_left_out_has_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        suite(tmp_path, BROKEN)
    found = load_suite(tmp_path / "scenarios.yaml", chosen=["last"])
    with pytest.raises(ConfigError, match=r"scenarios.yaml:10:12: scenario 'last': max_steps: 'many' is invalid"):
        expand(found, parse_selection(scenarios=["last"]), EIGHT_GPUS)


def test_a_mistake_that_concerns_the_whole_file_is_never_a_note(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        suite(tmp_path, f"{BROKEN}executr: local\n")
    with pytest.raises(ConfigError, match=r"scenarios.yaml:12:1: unknown key 'executr'"):
        load_suite(tmp_path / "scenarios.yaml", chosen=["good"])
