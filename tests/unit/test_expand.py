"""Expansion: precedence, identity, axes, include and exclude, the effective batch. What the reference does as well is in
test_compat_expansion; what is wrong in a file, in test_bad_files."""

from __future__ import annotations

import json
import operator
import tempfile
import textwrap
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases, document
from factories.suites import planned, suite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import ConfigError, SelectionError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.cells import BatchMistake, Cell, cells, settle_batch
from orchestrator.plan.expand import Plan, expand
from orchestrator.plan.selection import Selection
from orchestrator.records import Experiment, Measure, Repeats, Text

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def arguments(plan: Plan, *names: str) -> list[tuple[Text | None, ...]]:
    return [tuple(one.arguments.get(name) for name in names) for one in plan.experiments]


def only(plan: Plan) -> Experiment:
    (one,) = plan.experiments
    return one


# ---------------------------------------------------------------------------------------------------- precedence

LAYERS = ("defaults", "framework", "axis", "scenario", "set")


@pytest.mark.parametrize(
    "present", [LAYERS[:n] for n in range(1, 6)] + [("defaults", "scenario"), ("axis", "set"), ("defaults", "axis")]
)
def test_the_strongest_layer_that_names_an_argument_wins(present: tuple[str, ...], tmp_path: Path) -> None:
    """defaults < framework < axis < scenario argument < --set; the same for every subset of layers."""
    value = {layer: str(10 + index) for index, layer in enumerate(LAYERS)}
    scenario: dict[str, Any] = {"name": "s", "arguments": {"model_name_or_path": "m"}}
    frameworks = ["accumulate"] if "framework" in present else [None]
    name = "gradient_accumulation_steps"
    value["framework"] = "2"
    if "scenario" in present:
        scenario["arguments"][name] = value["scenario"]
    plan = planned(
        tmp_path,
        {"scenarios": [{**scenario, "framework_config": frameworks}]},
        defaults=f"{name}: {value['defaults']}\n" if "defaults" in present else "max_steps: 5\n",
        axes=[f"{name}={value['axis']}"] if "axis" in present else [],
        settings=[f"arguments.{name}={value['set']}"] if "set" in present else [],
    )
    one = only(plan)
    assert one.arguments[name] == value[present[-1]]
    undone = "framework" in present and present[-1] != "framework"
    assert (one.skip.kind if one.skip else None) == ("undoes_framework_config" if undone else None)


def test_a_trainers_own_start_stands_below_the_defaults(tmp_path: Path) -> None:
    text = "scenarios: [{name: s, trainer: fms_hf_tuning, arguments: {model_name_or_path: m}}]"
    assert only(planned(tmp_path, text)).arguments["max_seq_len"] == "4096"
    assert only(planned(tmp_path, text, defaults="max_seq_len: 7\n")).arguments["max_seq_len"] == "7"


@pytest.mark.parametrize("where", ["scenario", "axis", "set"])
def test_null_takes_an_argument_away(where: str, tmp_path: Path) -> None:
    scenario: dict[str, Any] = {"name": "s", "arguments": {"model_name_or_path": "m"}}
    if where == "scenario":
        scenario["arguments"]["max_steps"] = None
    if where == "axis":
        scenario["matrix"] = {"max_steps": [None]}
    plan = planned(tmp_path, {"scenarios": [scenario]}, settings=["arguments.max_steps=null"] if where == "set" else [])
    assert "max_steps" not in only(plan).arguments


def test_an_old_name_and_its_new_one_are_the_same_argument(tmp_path: Path) -> None:
    """Layers are translated before they meet: the defaults' old name does not survive beside the scenario's new one."""
    text = "scenarios: [{name: s, arguments: {model_name_or_path: m, eval_strategy: steps}}]"
    plan = planned(tmp_path, text, defaults="evaluation_strategy: 'no'\n")
    assert only(plan).arguments["eval_strategy"] == "steps"
    assert "evaluation_strategy" not in only(plan).arguments
    assert [note for note in plan.notes if "eval_strategy" in note] == [
        "evaluation_strategy is called eval_strategy today."
    ]


def test_an_axis_with_an_old_name_is_said_once(tmp_path: Path) -> None:
    text = "scenarios: [{name: s, matrix: {torch_dtype: [float32, bfloat16]}, arguments: {model_name_or_path: m}}]"
    plan = planned(tmp_path, text)
    assert arguments(plan, "dtype", "torch_dtype") == [("float32", None), ("bfloat16", None)]
    assert [note for note in plan.notes if "dtype" in note] == ["torch_dtype is called dtype today."]


def test_a_scenario_argument_pins_an_axis_of_the_command_line(tmp_path: Path) -> None:
    text = "scenarios: [{name: s, arguments: {model_name_or_path: m, packing: false}}]"
    plan = planned(tmp_path, text, axes=["packing=True,False", "seed=1,2"])
    assert arguments(plan, "packing", "seed") == [("False", "1"), ("False", "2")]
    assert [(one.id, one.framework, one.num_gpus) for one in plan.collapsed] == [
        (one.id, None, 1) for one in plan.experiments
    ]


def test_set_takes_an_axis_away(tmp_path: Path) -> None:
    text = "scenarios: [{name: s, matrix: {seed: [1, 2, 3]}, arguments: {model_name_or_path: [a, b]}}]"
    plan = planned(tmp_path, text, settings=["arguments.seed=9", "arguments.model_name_or_path=[c]"])
    assert arguments(plan, "model_name_or_path", "seed") == [("c", "9")]
    assert not plan.collapsed


def test_an_axis_of_the_command_line_replaces_the_scenarios(tmp_path: Path) -> None:
    text = "scenarios: [{name: s, num_gpus: [1, 2], matrix: {seed: [1, 2]}, arguments: {model_name_or_path: m}}]"
    plan = planned(tmp_path, text, axes=["seed=7"], num_gpus=(4,))
    assert [(one.num_gpus, one.arguments["seed"]) for one in plan.experiments] == [(4, "7")]


# ------------------------------------------------------------------------------------------ frameworks, environment


def test_an_argument_that_undoes_its_framework_is_skipped_with_the_reason(tmp_path: Path) -> None:
    text = """
        scenarios:
        - name: s
          framework_config: [null, eager]
          matrix: {attn_implementation: [eager, sdpa]}
          arguments: {model_name_or_path: m}
    """
    plan = planned(tmp_path, text)
    assert [one.skip.text if one.skip else None for one in plan.experiments] == [
        *(None, None, None),
        "attn_implementation is 'sdpa', but framework configuration 'eager' sets it to 'eager'",
    ]


def without_lora(name: str, value: str) -> str:
    return f"{name} is {value}, which has no effect without LoRA; write peft_method: lora, or remove {name}"


R8, R16 = without_lora("r", "8"), without_lora("r", "16")


@pytest.mark.parametrize(
    ("scenario", "skipped"),
    [
        ("matrix: {r: [8, 16]}, arguments: {model_name_or_path: m}", [R8, R16]),
        ("matrix: {r: [8, 16]}, arguments: {model_name_or_path: m, peft_method: none}", [R8, R16]),
        ("matrix: {r: [8, 16]}, arguments: {model_name_or_path: m, peft_method: lora}", [None, None]),
        ("matrix: {peft_method: [none, lora], r: [8, 16]}, arguments: {model_name_or_path: m}", [R8, R16, None, None]),
        ("matrix: {peft_method: [none, lora]}, arguments: {model_name_or_path: m, r: 8}", [None, None]),
        ("include: [{seed: 1, peft_method: lora}], arguments: {model_name_or_path: m, r: 8}", [None]),
        ("framework_config: [null, adapter], arguments: {model_name_or_path: m, r: 8}", [None, None]),
        ("framework_config: [null, adapter], matrix: {r: [8]}, arguments: {model_name_or_path: m}", [R8, None]),
        ("arguments: {model_name_or_path: m, r: 8}", [R8]),
        ("arguments: {model_name_or_path: m, r: null}", [None]),
        ("arguments: {model_name_or_path: m}", [None]),
        ("trainer: trl, arguments: {model_name_or_path: m, r: 8}", [without_lora("lora_r", "8")]),
        ("trainer: trl, arguments: {model_name_or_path: m, r: 8, use_peft: yes}", [None]),
        ("arguments: {model_name_or_path: m, r: 8, peft_method: none}", [None]),
        ("trainer: fms_hf_tuning, arguments: {model_name_or_path: m, r: 8, peft_method: pt}", [None]),
        ("trainer: fms_hf_tuning, arguments: {model_name_or_path: m, r: 8}", [R8]),
        ("trainer: script, script: t.py, arguments: {r: 8}", [None]),
    ],
)
def test_an_argument_of_lora_without_lora_is_skipped_with_the_reason(
    scenario: str, skipped: list[str | None], tmp_path: Path
) -> None:
    (tmp_path / "t.py").touch()
    added = {"adapter": "arguments: {peft_method: lora}\n"}
    plan = planned(tmp_path, f"scenarios: [{{name: s, {scenario}}}]", frameworks=added)
    assert [one.skip.text if one.skip else None for one in plan.experiments] == skipped


def test_an_argument_of_lora_in_the_defaults_skips_nothing_and_on_the_command_line_as_in_the_file(
    tmp_path: Path,
) -> None:
    text = "scenarios: [{name: s, arguments: {model_name_or_path: m}}]"
    assert only(planned(tmp_path, text, defaults="{r: 8, lora_alpha: 16}\n")).skip is None
    for choices in ({"settings": ["arguments.lora_dropout=0.1"]}, {"axes": ["lora_dropout=0.1"]}):
        skip = only(planned(tmp_path, text, **choices)).skip
        assert skip and (skip.kind, skip.text) == ("without_lora", without_lora("lora_dropout", "0.1"))


def test_a_framework_changes_the_launch_settings_deeply_and_the_environment_below_the_scenarios(tmp_path: Path) -> None:
    text = """
        scenarios:
        - name: s
          framework_config: [eager, fsdp]
          num_gpus: 2
          env: {A: from scenario, C: null}
          arguments: {model_name_or_path: m}
    """
    eager, fsdp = planned(tmp_path, text).experiments
    assert eager.env == {"A": "from scenario", "B": "kept", "C": None}
    assert fsdp.env == {"A": "from scenario", "C": None}
    assert eager.accelerate == {"distributed_type": "MULTI_GPU", "fsdp_config": {"fsdp_offload_params": False}}
    assert fsdp.accelerate == {
        "distributed_type": "FSDP",
        "fsdp_config": {"fsdp_offload_params": False, "fsdp_version": 2},
    }


# -------------------------------------------------------------------------------------- how long, how often, on what


def test_what_is_asked_of_the_measurement_arrives(tmp_path: Path) -> None:
    text = """
        scenarios:
        - name: s
          measure: {within: 1%, discard_steps: 5, at_least_steps: 20, at_most_steps: 200}
          repeats: {min: 3, max: 10, within: 1%}
          busy_gpus: fail
          arguments: {model_name_or_path: m}
        - {name: plain, repeats: 4, arguments: {model_name_or_path: m}}
    """
    one, plain = planned(tmp_path, text).experiments
    assert one.measure == Measure(discard_steps=5, at_least_steps=20, at_most_steps=200, within=0.01)
    assert one.adaptive == Repeats(min=3, max=10, within=0.01)
    assert (one.repeats, one.busy_gpus) == (3, "fail")
    assert (plain.measure, plain.adaptive, plain.repeats, plain.busy_gpus) == (None, None, 4, "wait")
    assert set(one.arguments) == set(plain.arguments), "none of it is the trainer's"


# --------------------------------------------------------------------------------------------- identity and leaks

NAMES = st.sampled_from(["rope_theta", "hidden_act", "vocab_size", "num_hidden_layers"])
VALUES = st.sampled_from([1, 2, "2e-5", None, True])
SCENARIO = st.fixed_dictionaries(
    {"arguments": st.dictionaries(NAMES, VALUES, max_size=3), "models": st.sampled_from([["a"], ["a", "b"]])},
    optional={
        "axis": st.tuples(NAMES, st.lists(VALUES, min_size=1, max_size=3)),
        "gpus": st.lists(st.integers(1, 3), min_size=1),
    },
)


def file_of(scenarios: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    def one(name: str, drawn: dict[str, Any]) -> dict[str, Any]:
        axis, values = drawn.get("axis", (None, []))
        own = {key: value for key, value in drawn["arguments"].items() if key != axis}
        made: dict[str, Any] = {"name": name, "arguments": {"model_name_or_path": drawn["models"], **own}}
        return {**made, **({"matrix": {axis: values}} if axis else {}), "num_gpus": drawn.get("gpus", [1])}

    return {"scenarios": [one(name, drawn) for name, drawn in scenarios]}


def by_scenario(plan: Plan) -> dict[str, list[tuple[str, dict[str, Text]]]]:
    found: dict[str, list[tuple[str, dict[str, Text]]]] = {}
    for one in plan.experiments:
        found.setdefault(one.scenario, []).append((one.id, dict(one.arguments)))
    return found


@QUICK
@given(drawn=st.lists(SCENARIO, min_size=1, max_size=4))
def test_a_scenario_expands_alike_whatever_stands_around_it(drawn: list[dict[str, Any]]) -> None:
    """So no default leaks or vanishes from one to the next, and adding or reordering scenarios changes no other id."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        named = [(f"scenario-{index}", one) for index, one in enumerate(drawn)]
        defaults = "max_steps: 5\nseed: 42\n"
        together = by_scenario(planned(folder, file_of(named), defaults=defaults))
        assert list(together) == [name for name, _ in named]
        backwards = by_scenario(planned(folder, file_of(named[::-1]), defaults=defaults))
        assert together == backwards
        for pair in named:
            assert by_scenario(planned(folder, file_of([pair]), defaults=defaults)) == {pair[0]: together[pair[0]]}


@QUICK
@given(drawn=SCENARIO)
def test_ids_are_one_to_one_with_what_is_run(drawn: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        plan = planned(Path(name), file_of([("s", drawn)]))
    what = [(one.model, one.num_gpus, tuple(sorted(one.arguments.items()))) for one in plan.experiments]
    assert len({one.id for one in plan.experiments}) == len(plan.experiments) == len(set(what))
    assert {one.id for one in plan.collapsed} <= {one.id for one in plan.experiments}
    product = len(drawn["models"]) * len(drawn.get("gpus", [1])) * len(drawn.get("axis", (0, [0]))[1])
    assert len(plan.experiments) + len(plan.collapsed) == product


def test_the_order_of_axes_and_arguments_in_the_file_changes_no_id(tmp_path: Path) -> None:
    axes, constants = [("seed", [1, 2]), ("weight_decay", [0, 0.1]), ("dtype", ["float32"])], {"r": 8, "lora_alpha": 16}
    found = set()
    for order in permutations(axes):
        scenario = {"name": "s", "matrix": dict(order), "arguments": {"model_name_or_path": "m", **constants}}
        plan = planned(tmp_path, {"scenarios": [scenario]})
        found.add(frozenset(one.id for one in plan.experiments))
        constants = dict(reversed(constants.items()))
    assert len(found) == 1


BASE: dict[str, Any] = {"name": "s", "arguments": {"model_name_or_path": "m"}}
SAME = document("expand/same_measurement")
OTHER: list[dict[str, Any]] = document("expand/other_measurement")


def test_what_changes_the_measurement_changes_the_id_and_nothing_else_does(tmp_path: Path) -> None:
    base = only(planned(tmp_path, {"scenarios": [BASE]})).id
    for change in SAME:
        assert only(planned(tmp_path, {"scenarios": [{**BASE, **change}]})).id == base, change
    others = [only(planned(tmp_path, {"scenarios": [{**BASE, **change}]})).id for change in OTHER]
    assert len({base, *others}) == len(OTHER) + 1


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ({"torch_dtype": "float32"}, {"dtype": "float32"}),
        ("eager", {"framework_config": "eager"}),
        ("none", {"framework_config": None}),
        ({"framework_config": "eager", "num_gpus": 2}, {"framework_config": "eager", "num_gpus": "2"}),
        ({"model_name_or_path": "m"}, {"model_name_or_path": "m"}),
        ({"seed": None}, {"seed": None}),
    ],
)
def test_a_baseline_is_kept_in_the_trainers_words(written: Any, kept: dict[str, Any], tmp_path: Path) -> None:
    axes = {"torch_dtype": ["float32", "bfloat16"], "seed": [1, None]}
    scenario = {**BASE, "framework_config": [None, "eager"], "num_gpus": [1, 2], "matrix": axes, "baseline": written}
    plan = planned(tmp_path, {"scenarios": [scenario]})
    assert {tuple(one.baseline.items()) for one in plan.experiments} == {tuple(kept.items())}


def test_a_baseline_that_the_command_line_takes_away_is_no_mistake(tmp_path: Path) -> None:
    scenario = {**BASE, "framework_config": [None, "eager"], "matrix": {"seed": [1, 2]}, "baseline": {"seed": 1}}
    planned(tmp_path, {"scenarios": [scenario]}, axes=["seed=2,3"])
    planned(tmp_path, {"scenarios": [scenario]}, settings=["arguments.seed=5", "framework_config=eager"])
    (tmp_path / "b").mkdir()
    plan = planned(tmp_path / "b", {"scenarios": [scenario]}, axes=["seed=2,3"], settings=["baseline=eager"])
    assert only_baseline(plan) == {"framework_config": "eager"}


def only_baseline(plan: Plan) -> dict[str, Text | None]:
    (one,) = {tuple(experiment.baseline.items()) for experiment in plan.experiments}
    return dict(one)


def test_two_scenarios_with_the_same_content_are_both_run(tmp_path: Path) -> None:
    plan = planned(tmp_path, {"scenarios": [BASE, {**BASE, "name": "t"}]})
    first, second = (one.id for one in plan.experiments)
    assert first.removeprefix("s-") == second.removeprefix("t-")


# ------------------------------------------------------------------------------------------------ include, exclude

AXES = {"model_name_or_path": ("m",), "framework_config": (None, "eager"), "num_gpus": (1, 2), "seed": ("1", "2")}


def points(**entries: Any) -> list[tuple[Any, ...]]:
    return [
        (
            cell.framework,
            cell.num_gpus,
            cell.arguments.get("seed"),
            {name: value for name, value in cell.arguments.items() if name not in AXES},
        )
        for cell in cells(AXES, **entries)
    ]


def test_exclude_takes_away_the_cells_that_match_every_key() -> None:
    assert [one[:3] for one in points(exclude=[{"framework_config": "eager", "num_gpus": 1}, {"seed": 2}])] == [
        (None, 1, "1"),
        (None, 2, "1"),
        ("eager", 2, "1"),
    ]


def test_exclude_can_name_without_a_framework() -> None:
    assert {one[0] for one in points(exclude=[{"framework_config": None}])} == {"eager"}


NUMBERS = st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
COMPARED = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt}


@QUICK
@given(own=st.dictionaries(st.sampled_from("abcdef"), NUMBERS, min_size=1, max_size=4), data=st.data())
def test_zip_is_the_product_filtered_to_equal_positions(own: dict[str, list[int]], data: st.DataObject) -> None:
    """Two groups at most, each of axes with the same number of values, among axes that are crossed."""
    axes = {**AXES, **{name: tuple(map(str, values)) for name, values in own.items()}}
    several = [name for name in axes if name not in ("model_name_or_path", "framework_config")]
    first = data.draw(st.lists(st.sampled_from(several), unique=True))
    rest = [name for name in several if name not in first]
    second = data.draw(st.lists(st.sampled_from(rest), unique=True)) if rest else []
    groups = [[name for name in group if len(axes[name]) == len(axes[group[0]])] for group in (first, second) if group]

    def together(cell: Cell) -> bool:
        values = {**cell.arguments, "num_gpus": cell.num_gpus}
        places = {name: axes[name].index(values[name]) for name in several}
        return all(len({places[name] for name in group}) == 1 for group in groups)

    def facts(cell: Cell) -> tuple[Any, ...]:
        return cell.framework, cell.num_gpus, sorted(cell.arguments.items())

    found = [facts(cell) for cell in cells(axes, groups)]
    assert found == [facts(cell) for cell in cells(axes) if together(cell)]


@QUICK
@given(values=st.lists(st.integers(-9, 9) | st.floats(-9, 9), min_size=1, max_size=6, unique=True),
       sign=st.sampled_from(sorted(COMPARED)), limit=st.integers(-9, 9), gpus=st.sampled_from([None, 1, 2]))  # fmt: skip
def test_exclude_with_a_comparison_is_a_filter(values: list[float], sign: str, limit: int, gpus: int | None) -> None:
    axes = {**AXES, "x": tuple(map(str, values))}
    entry = {"x": f"{sign} {limit}", **({"num_gpus": gpus} if gpus else {})}

    def is_left_out(cell: Cell) -> bool:
        return COMPARED[sign](float(str(cell.arguments["x"])), limit) and gpus in (None, cell.num_gpus)

    assert list(cells(axes, exclude=[entry])) == [cell for cell in cells(axes) if not is_left_out(cell)]


def test_zipped_axes_of_a_file(tmp_path: Path) -> None:
    zipped = {"learning_rate": ["1e-4", "2e-4"], "warmup_steps": [10, 20]}
    plan = planned(tmp_path, {"scenarios": [{**BASE, "zip": zipped, "matrix": {"seed": [1, 2]}}]})
    assert arguments(plan, "learning_rate", "warmup_steps", "seed") == [
        *(("1e-4", "10", "1"), ("2e-4", "20", "1"), ("1e-4", "10", "2"), ("2e-4", "20", "2"))
    ]
    same = {**BASE, "matrix": {"learning_rate": ["2e-4"], "warmup_steps": [20], "seed": [1]}}
    (crossed,) = planned(tmp_path, {"scenarios": [same]}).experiments
    assert crossed.id in {one.id for one in plan.experiments}, "how axes are written changes no id"


def test_an_axis_that_the_command_line_replaces_leaves_its_group(tmp_path: Path) -> None:
    groups = [{"num_gpus": [1, 2, 4], "r": [8, 16, 32], "seed": [1, 2, 3]}]
    scenario = {"scenarios": [{**BASE, "zip": groups}]}
    assert [
        (one.num_gpus, one.arguments["r"], one.arguments["seed"]) for one in planned(tmp_path, scenario).experiments
    ] == [*((1, "8", "1"), (2, "16", "2"), (4, "32", "3"))]
    replaced = planned(tmp_path, scenario, num_gpus=(1,), axes=["seed=5,6"], settings=["arguments.warmup_steps=3"])
    assert arguments(replaced, "r", "seed") == [(r, seed) for r in ("8", "16", "32") for seed in ("5", "6")]


@pytest.mark.parametrize(("scenario", "said"), cases("expand/a_mistake_in_zip_or_in_a_comparison"))
def test_a_mistake_in_zip_or_in_a_comparison(scenario: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, f"scenarios:\n- name: s\n  arguments: {{model_name_or_path: m, r: 8}}\n{indented(scenario)}")
    assert said in str(caught.value)


def test_a_seed_of_data_below_zero_is_refused_by_the_plan(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data_processing.seed: -1 is invalid; write a whole number from 0"):
        planned(tmp_path, "data_processing: {seed: -1}\nscenarios:\n- {name: s}")


def indented(text: str) -> str:
    return textwrap.indent(text, "  ")


def test_include_adds_arguments_to_the_cells_that_match_its_axes() -> None:
    found = points(
        include=[{"num_gpus": 2, "dtype": "bf16"}, {"seed": "1", "r": 8}, {"num_gpus": 2, "seed": "1", "r": 16}]
    )
    assert len(found) == 8
    for _, num_gpus, seed, extra in found:
        expected = {"dtype": "bf16"} if num_gpus == 2 else {}
        if seed == "1":  # of two entries the later one's value holds
            expected["r"] = "16" if num_gpus == 2 else "8"
        assert extra == expected


def test_include_without_an_axis_concerns_every_cell() -> None:
    assert [one[3] for one in points(include=[{"r": 8}])] == [{"r": "8"}] * 8


def test_include_that_matches_no_cell_is_a_cell_of_its_own() -> None:
    found = points(
        include=[{"framework_config": "fsdp", "num_gpus": 8, "seed": 7}, {"framework_config": "fsdp", "num_gpus": 4}]
    )
    assert [one[:3] for one in found[8:]] == [("fsdp", 8, "7"), ("fsdp", 4, None)]


def test_include_brings_back_what_exclude_took() -> None:
    entry = {"framework_config": "eager", "num_gpus": 2, "seed": "2"}
    assert points(exclude=[{"num_gpus": 2}], include=[entry])[4:] == [("eager", 2, "2", {})]


def test_include_does_not_add_to_the_cells_that_include_made() -> None:
    found = points(
        include=[{"framework_config": "fsdp", "num_gpus": 8}, {"framework_config": "fsdp", "num_gpus": 8, "r": 1}]
    )
    assert [(cell[0], cell[1]) for cell in found[8:]] == [("fsdp", 8), ("fsdp", 8)]


def test_include_through_a_file(tmp_path: Path) -> None:
    text = """
        scenarios:
        - name: s
          framework_config: [null]
          matrix: {seed: [1, 2]}
          include:
          - {seed: 2, max_steps: 50}
          - {framework_config: eager, seed: 3}
          arguments: {model_name_or_path: m}
    """
    plan = planned(tmp_path, text)
    assert arguments(plan, "seed", "max_steps", "attn_implementation") == [
        *(("1", "5", None), ("2", "50", None)),
        ("3", "5", "eager"),
    ]
    assert plan.experiments[2].framework is not None


# -------------------------------------------------------------------------------------------------- effective batch


@given(
    per_device=st.integers(1, 64),
    accumulation=st.integers(1, 16),
    num_gpus=st.integers(1, 16),
    given_batch=st.booleans(),
)
def test_the_effective_batch_is_what_is_trained_with(
    per_device: int, accumulation: int, num_gpus: int, given_batch: bool
) -> None:
    total = per_device * accumulation * num_gpus
    known = (
        {"per_device_train_batch_size": str(per_device)}
        if given_batch
        else {"gradient_accumulation_steps": str(accumulation)}
    )
    settled: dict[str, Text | None] = {"effective_batch_size": str(total), **known}
    assert settle_batch(settled, num_gpus) is None
    assert settled == {"per_device_train_batch_size": str(per_device), "gradient_accumulation_steps": str(accumulation)}


@given(total=st.integers(1, 100), part=st.integers(1, 20), num_gpus=st.integers(1, 9))
def test_what_does_not_divide_is_a_reason_and_never_floored(total: int, part: int, num_gpus: int) -> None:
    settled: dict[str, Text | None] = {"effective_batch_size": str(total), "per_device_train_batch_size": str(part)}
    reason = settle_batch(settled, num_gpus)
    assert (reason is None) == (total % (part * num_gpus) == 0)
    if reason:
        assert settled["effective_batch_size"] == str(total), "two totals that don't divide are two cells"


@pytest.mark.parametrize("wrong", ["0", "-4", "4.5", "", "9" * 20, ("4", "8")])
def test_a_batch_that_is_no_number_is_a_mistake(wrong: Text) -> None:
    with pytest.raises(BatchMistake, match="a whole number from 1"):
        settle_batch({"effective_batch_size": wrong, "gradient_accumulation_steps": "1"}, 1)


def test_without_an_effective_batch_both_may_be_given_and_the_global_batch_is_known(tmp_path: Path) -> None:
    both = "per_device_train_batch_size: 3, gradient_accumulation_steps: 2"
    text = f"scenarios: [{{name: s, num_gpus: [1, 4], arguments: {{model_name_or_path: m, {both}}}}}]"
    assert [one.global_batch for one in planned(tmp_path, text).experiments] == [6, 24]
    neither = planned(tmp_path, {"scenarios": [BASE]})
    assert only(neither).global_batch == 8, "the Trainer's own default"


CONTEXT = """accelerate:
  distributed_type: FSDP
  fsdp_config: {fsdp_version: 2}
  parallelism_config: {parallelism_config_cp_size: 2}
"""


def test_gpus_that_share_a_batch_count_once_in_the_global_batch(tmp_path: Path) -> None:
    arguments = "{model_name_or_path: m, gradient_accumulation_steps: 2}"
    text = f"scenarios: [{{name: s, framework_config: [fsdp, divided], num_gpus: 8, arguments: {arguments}}}]"
    plan = planned(tmp_path, text, frameworks={"divided": CONTEXT}, axes=["effective_batch_size=16,8"])
    sizes = [(one.arguments.get("per_device_train_batch_size"), one.global_batch) for one in plan.experiments]
    assert sizes == [("1", 16), (None, None), ("2", 16), ("1", 8)]
    odd = planned(tmp_path, text, frameworks={"divided": CONTEXT}, axes=["effective_batch_size=12"]).experiments[1]
    assert odd.skip and odd.skip.text.startswith("effective_batch_size 12 is not divisible by 4 groups of 2 GPUs × ")


def test_the_mistake_says_where_each_of_both_comes_from(tmp_path: Path) -> None:
    batch = "arguments: {model_name_or_path: m, per_device_train_batch_size: 2}"
    text = f"scenarios: [{{name: s, framework_config: accumulate, {batch}}}]"
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, text, axes=["effective_batch_size=8"])
    assert "per_device_train_batch_size in arguments:" in str(caught.value)
    assert "gradient_accumulation_steps in framework configuration 'accumulate'" in str(caught.value)


# ----------------------------------------------------------------------------------------------------- the rest


def test_a_custom_trainer_needs_no_model(tmp_path: Path) -> None:
    text = "scenarios: [{name: s, trainer: custom, custom: {command: ['true']}}]"
    one = only(planned(tmp_path, text))
    assert one.model == "none"
    assert "model_name_or_path" not in one.arguments
    assert one.custom is not None
    assert one.custom.folder == str(tmp_path.resolve())


def test_a_key_that_belongs_under_another_key_is_named_with_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, "scenarios: [{name: s, trainer: custom, command: [a], within: 1%}]")
    said = str(caught.value)
    assert "unknown key 'command'; write it under 'custom:'" in said
    assert "unknown key 'within'; write it under 'repeats:' or 'measure:'" in said


@pytest.mark.parametrize(
    ("results", "source", "said"),
    [
        ("file:out.json", "{pattern: x}", "has no use for 'pattern:'; write 'key:', or 'results: log'"),
        ("stdout", "{column: x}", "has no use for 'column:'; write 'key:'"),
        ("file:out.csv", "{key: x}", "has no use for 'key:'; write 'column:'"),
        ("log", "{key: x}", "'results: log' needs a 'pattern:'"),
        ("file:out.csv", "{}", None),
        ("file:out.json", "{key: x, pattern: y}", None),
    ],
)
def test_a_metric_is_looked_for_where_results_are(tmp_path: Path, results: str, source: str, said: str | None) -> None:
    custom = f"custom: {{command: [a], results: '{results}', metrics: {{train_loss: {source}}}}}"
    text = f"scenarios: [{{name: s, trainer: custom, {custom}}}]"
    if said is None:
        only(planned(tmp_path, text))
        return
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, text)
    assert said in str(caught.value)


def test_the_script_of_a_command_must_exist(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")

    def found(words: str, launcher: str) -> str | None:
        text = f"scenarios: [{{name: s, trainer: custom, custom: {{command: [{words}], launcher: {launcher}}}}}]"
        try:
            planned(tmp_path, text)
        except ConfigError as error:
            return str(error)
        return None

    for words, launcher in (
        ("'{scenario_dir}/trian.py'", "accelerate"),
        ("'{python}', '{scenario_dir}/trian.py'", "none"),
        ("python3, -u, -OO, '{scenario_dir}/trian.py'", "none"),
    ):
        said = found(words, launcher) or ""
        assert "there is no script '{scenario_dir}/trian.py' in" in said and "did you mean 'train.py'?" in said, said
        assert found(words.replace("trian", "train"), launcher) is None
    assert found("'{scenario_dir}/train.py', --out, '{scenario_dir}/out.json'", "accelerate") is None


def notes_on(tmp_path: Path, words: str, more: str = "", *, device: str = "cpu", axes: str = "num_gpus: [1, 2]") -> str:
    custom = f"custom: {{command: [train, {words}], results: log, metrics: {{tokens_per_s: {{pattern: x}}}}, {more}}}"
    text = f"scenarios: [{{name: s, trainer: custom, device: {device}, {axes}, {custom}}}]"
    return " ".join(note for note in planned(tmp_path, text).notes if note.startswith("scenario 's'"))


def test_a_number_that_each_process_prints_is_noted(tmp_path: Path) -> None:
    assert "each process prints tokens_per_s, unless only rank 0 does" in notes_on(tmp_path, "a")
    assert not notes_on(tmp_path, "a", axes="num_gpus: 1")
    assert not notes_on(tmp_path, "'{num_gpus}'", "launcher: none")


def test_an_axis_that_does_not_reach_the_command_is_noted(tmp_path: Path) -> None:
    none = "launcher: none"
    assert "several values of num_gpus; write {num_gpus} into it" in notes_on(tmp_path, "a", none)
    assert not notes_on(tmp_path, "a", none, device="cuda"), "the command sees another number of GPUs"
    with_argument = "num_gpus: [1, 2], matrix: {size: [64, 128]}"
    assert "write {size} into" in notes_on(tmp_path, "'{num_gpus}'", none, axes=with_argument)
    assert "write {num_gpus} into" in notes_on(tmp_path, "'{size}'", none, axes=with_argument)
    assert "write {size} into" in notes_on(tmp_path, "a", none, axes="matrix: {size: [x, [1, 2]]}")
    assert not notes_on(tmp_path, "'{size}', '{num_gpus}'", none, axes=with_argument)
    assert not notes_on(tmp_path, "'{size}'", none, axes="zip: [{num_gpus: [1, 2], size: [64, 128]}]")


@pytest.mark.parametrize(("setting", "said"), cases("expand/a_mistake_on_the_command_line_is_not_blamed_on_the_file"))
def test_a_mistake_on_the_command_line_is_not_blamed_on_the_file(setting: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SelectionError) as caught:
        planned(tmp_path, {"scenarios": [BASE]}, settings=[setting])
    assert str(caught.value).startswith(said)


def test_a_plan_made_where_nothing_can_run_is_the_same_plan(tmp_path: Path) -> None:
    one = suite(tmp_path, {"scenarios": [{**BASE, "num_gpus": [1, 8], "framework_config": [None, "fsdp"]}]})
    here, there = expand(one, Selection(), Machine()), expand(one, Selection(), Machine(gpus=()))
    assert [(e.id, e.skip) for e in here.experiments] == [(e.id, e.skip) for e in there.experiments]
    assert all(e.cannot_run_here is not None for e in here.experiments)
    assert [e.skip is not None for e in here.experiments] == [False, False, True, False], (
        "fsdp on one GPU means nothing"
    )


def test_a_model_beside_the_scenario_file_is_found_there(tmp_path: Path) -> None:
    """Its run works in a folder of its own."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    text = "scenarios:\n- {name: s, framework_config: [eager], arguments: {model_name_or_path: [./mine, mine, org/mine, ./no]}}\n"
    models = [one.model for one in planned(tmp_path, text).experiments]
    assert models == [str(tmp_path / "mine"), "org/mine", "./no"], "one folder is one model"


def test_an_axis_that_changes_nothing_is_said(tmp_path: Path) -> None:
    text = "scenarios:\n- {name: s, framework_config: [eager], arguments: {model_name_or_path: m, seed: 3}}\n"
    plan = planned(tmp_path, text, axes=["seed=1,2", "max_steps=11,12"])
    assert plan.notes == ("--axis seed has no effect in scenario 's': 'arguments:' sets seed; remove seed there",)
    assert len(plan.experiments) == 2


@pytest.mark.parametrize(
    ("measure", "steps", "said"), cases("expand/a_training_too_short_for_any_speed_is_said_before_it_runs")
)
def test_a_training_too_short_for_any_speed_is_said_before_it_runs(
    measure: str, steps: int, said: str | None, tmp_path: Path
) -> None:
    arguments = f"{{model_name_or_path: m, max_steps: {steps}}}"
    text = f"scenarios:\n- {{name: s, framework_config: [null, eager], arguments: {arguments}, measure: {measure}}}\n"
    plan = planned(tmp_path, text)
    assert plan.notes == ((f"scenario 's': {said}",) if said else ()), "once, however many cells there are"
    assert not any(one.skip for one in plan.experiments), "it still has memory and a loss"


def test_a_secret_in_a_scenario_is_pointed_out_by_its_name_alone(tmp_path: Path) -> None:
    env = "{HF_TOKEN: hush-hush, OMP_NUM_THREADS: 1, WANDB_API_KEY: null}"
    notes = planned(tmp_path, f"scenarios:\n- {{name: s, arguments: {{model_name_or_path: m}}, env: {env}}}\n").notes
    (note,) = [one for one in notes if "sets" in one]
    assert (
        note.startswith("scenario 's' sets the secret HF_TOKEN, and no run accepts secrets from a file")
        and "hush" not in note
    )


# -------------------------------------------------------------------------------------------------- too many cells


def test_a_plan_with_too_many_experiments_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario has the same limit, see golden/errors/scenarios/matrix-too-large; here no scenario exceeds it."""
    monkeypatch.setattr("orchestrator.plan.expand.plan.MAX_CELLS", 3)
    one = {"arguments": {"model_name_or_path": "m"}, "matrix": {"seed": [1, 2]}}
    three = suite(tmp_path, {"scenarios": [{**one, "name": name} for name in "abc"]})
    with pytest.raises(SelectionError, match="with scenario 'b' the plan has more than 3 experiments; choose fewer"):
        expand(three, Selection(), Machine())
    assert len(expand(three, Selection(scenarios=("c",)), Machine()).experiments) == 2


@pytest.mark.parametrize("key", ["include", "exclude"])
def test_more_comparisons_than_fit_into_half_a_minute_are_refused(key: str, tmp_path: Path) -> None:
    entries = [{"seed": number, "max_steps": 1} for number in range(6000)]
    one = {"name": "s", "arguments": {"model_name_or_path": "m"}, "matrix": {"seed": [*range(10_000)]}, key: entries}
    with pytest.raises(
        ConfigError, match="10,000 experiments with 6,000 entries of include: and exclude: take too long"
    ):
        planned(tmp_path, {"scenarios": [one]})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("models/foo", "there is no such folder next to the scenario file or in the working folder, so it is taken"),
        ("mine/foo", "there is no such folder next to the scenario file or in the working folder, so it is taken"),
        ("mine", "mine contains no config.json, so it is taken for a name on the Hugging Face hub"),
        ("mine/model", None),
        ("config:tiny-llama", None),
        ("org/name", None),
        ("gpt2", None),
        ("./models/foo", None),
    ],
)
@pytest.mark.parametrize("given", ["file", "command"])
def test_a_name_of_the_hub_that_may_be_a_folder_has_a_note(
    model: str, expected: str | None, given: str, tmp_path: Path
) -> None:
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "config.json").write_text("{}")
    written, chosen = (
        (model, []) if given == "file" else ("config:tiny-llama", [f"arguments.model_name_or_path={model}"])
    )
    text = f"scenarios:\n- {{name: s, arguments: {{model_name_or_path: {json.dumps(written)}}}}}\n"
    notes = [note for note in planned(tmp_path, text, settings=chosen).notes if note.startswith("model ")]
    assert len(notes) == (expected is not None) and (expected or "") in "".join(notes)


CURE = "; to compare speeds, name tokens per second tokens_per_s"


@pytest.mark.parametrize(
    ("metrics", "more", "expected"),
    [
        (
            "{tokens_per_sec: {key: a}, train_loss: {key: b}}",
            "",
            ["know the metric tokens_per_sec; did you mean tokens_per_s?"],
        ),
        (
            "{tokens_per_second: {key: a}}",
            "",
            ["know the metric tokens_per_second; did you mean tokens_per_s?"],
        ),
        (
            "{throughput: {key: a, unit: ktokens/s}, train_loss: {key: b}}",
            "",
            [f"claim nothing about throughput, which Tunebench does not know{CURE}"],
        ),
        (
            "{throughput: {key: a}, accuracy: {key: b}}",
            "",
            [f"claim nothing about throughput, accuracy, which Tunebench does not know{CURE}"],
        ),
        (
            "{tps: {key: a}, train_loss: {key: b}}",
            "",
            [f"claim nothing about tps, which Tunebench does not know{CURE}"],
        ),
        ("{accuracy: {key: a}}", "", ["claim nothing about accuracy, which Tunebench does not know"]),
        ("{throughput: {key: a}}", ", steps: stdout", []),
        ("{throughput: {key: a, unit: tokens/s}, tokens_per_s: {key: b}}", "", []),
        ("{my_score: {key: a}, train_loss: {key: b}}", "", []),
        ("{tokens_per_s: {key: a}}", "", []),
        ("{}", "", []),
    ],
)
def test_a_metric_of_a_command_that_tunebench_does_not_know_has_a_note(
    metrics: str, more: str, expected: list[str], tmp_path: Path
) -> None:
    text = f"scenarios: [{{name: s, trainer: custom, custom: {{command: ['true'], metrics: {metrics}}}{more}}}]"
    notes = [note for note in planned(tmp_path, text).notes if "know" in note]
    assert len(notes) == len(expected)
    assert all(part in note for part, note in zip(expected, notes, strict=True))
