"""Framework configurations and defaults: which trainers they are written for, and how configurations combine."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from factories.suites import EIGHT_GPUS, expanded, planned, suite
from factories.tables import Made, made_table, speeds
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError, SelectionError
from orchestrator.plan.config import Document, load_suite
from orchestrator.plan.config.frameworks import FrameworkSource, canonical_name, combined, contradictions
from orchestrator.plan.expand import Plan, expand
from orchestrator.plan.forecast.memory_fit import json_value
from orchestrator.plan.selection import Selection, parse_selection
from orchestrator.records import Device, Framework
from orchestrator.results.table.baseline import with_baseline

BASE = "scenarios: [{name: s, arguments: {model_name_or_path: m}}]"
TOGETHER = parse_selection(num_gpus=(4,), settings=["framework_config=[[fsdp, eager]]"])
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
        "framework configuration 'eager' is written for other trainers (huggingface, trl); for trainer custom write its "
        "arguments under 'matrix:' (bf16: [true], dtype: [float32], modules: [[q, v]], seed: [null])"
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
    # The configurations that were tried with LLaMA-Factory name it, too.
    named = {
        tuple(name for name in source.trainers or () if name != "llamafactory")
        for source in sources
        if source.framework.arguments
    }
    of_texts = ("huggingface", "trl", "fms_hf_tuning")  # a preference is not packed
    # Some need an option that only the built-in trainer has, or only the trainers of transformers 5.
    of_some = {("huggingface",), ("huggingface", "trl", "trl_dpo")}
    assert named == {of_texts, ("huggingface", "trl", "trl_dpo", "fms_hf_tuning"), *of_some}
    assert {source.trainers for source in sources if not source.framework.arguments} == {None}


@pytest.mark.parametrize(
    ("trainer", "digest"), [("huggingface", "ffc6edf1b9ae"), ("trl", "bb465612f813"), ("fms_hf_tuning", "66cc4730f139")]
)
def test_experiments_of_other_trainers_resume(trainer: str, digest: str, tmp_path: Path) -> None:
    """These ids were written before defaults belonged to a trainer."""
    (one,) = with_frameworks(tmp_path, trainer, "eager").experiments
    assert one.id == f"s-m.eager.gpus2-{digest}"


# --------------------------------------------------------------------------------------------------- combinations

NAMES = "abcd"
# Every file of a group gives a setting the same value, so members of one group do not contradict each other.
SETTINGS = st.fixed_dictionaries(
    {
        "arguments": st.dictionaries(st.sampled_from(["lr", "seed", "bf16"]), st.sampled_from("12")),
        "env": st.dictionaries(st.sampled_from("AB"), st.sampled_from("12")),
        "accelerate": st.fixed_dictionaries(
            {},
            optional={
                "mixed_precision": st.sampled_from("12"),
                "fsdp_config": st.dictionaries(
                    st.sampled_from(["fsdp_version", "fsdp_offload_params"]), st.integers(1, 2)
                ),
            },
        ),
        "requires": st.lists(st.sampled_from(["x", "y", "z"]), unique=True).map(tuple),
        "device": st.sampled_from([None, None, Device.CUDA]),
        "min_gpus": st.integers(1, 4),
    }
)
GROUPS = st.lists(SETTINGS, min_size=len(NAMES), max_size=len(NAMES))


def sources_of(group: list[dict[str, Any]]) -> list[FrameworkSource]:
    return [
        FrameworkSource(
            framework=Framework(name=name, digest=f"digest of {name}", **settings),
            document=Document(file=Path(f"{name}.yaml"), value={}),
        )
        for name, settings in zip(NAMES, group, strict=False)
    ]


def flat(framework: Framework) -> set[tuple[str, ...]]:
    """Every setting of a configuration that another one can contradict, as its path and its value."""
    sections = [("fsdp_config", framework.accelerate.get("fsdp_config", {})), ("arguments", framework.arguments)]
    plain = {name: value for name, value in framework.accelerate.items() if name != "fsdp_config"}
    sections += [("env", framework.env), ("accelerate", plain)]
    return {(section, name, str(value)) for section, values in sections for name, value in values.items()}


def content(framework: Framework) -> tuple[Any, ...]:
    """Everything but the name and the digest."""
    return flat(framework), set(framework.requires), framework.device, framework.min_gpus, framework.plugin_file


@given(GROUPS)
def test_members_contradict_each_other_exactly_where_a_setting_has_two_values(group: list[dict[str, Any]]) -> None:
    sources = sources_of(group)
    every = set().union(*(flat(source.framework) for source in sources))
    assert any(contradictions(sources)) == (len({setting[:2] for setting in every}) < len(every))


def without_contradictions(group: list[dict[str, Any]]) -> list[Framework]:
    """The configurations of a group, those left out that contradict one before them."""
    kept: list[FrameworkSource] = []
    for source in sources_of(group):
        if not any(contradictions([*kept, source])):
            kept.append(source)
    return [source.framework for source in kept]


@given(GROUPS)
def test_a_combination_has_exactly_the_settings_of_its_members(group: list[dict[str, Any]]) -> None:
    members = without_contradictions(group)
    one = combined(members)
    assert flat(one) == set().union(*map(flat, members))
    assert set(one.requires) == {text for member in members for text in member.requires}
    assert len(one.requires) == len(set(one.requires))
    assert one.min_gpus == max(member.min_gpus for member in members)
    assert one.device == next((member.device for member in members if member.device), None)


@given(GROUPS, st.randoms(use_true_random=False))
def test_order_means_nothing(group: list[dict[str, Any]], random: Random) -> None:
    members = without_contradictions(group)
    shuffled = random.sample(members, len(members))
    assert content(combined(shuffled)) == content(combined(members))
    assert combined(shuffled).digest == combined(members).digest
    names = [member.name for member in shuffled]
    assert canonical_name([*names, names[0]], NAMES) == canonical_name("+".join(names), NAMES) == combined(members).name


@given(GROUPS, st.integers(1, len(NAMES) - 1))
def test_combining_is_associative(group: list[dict[str, Any]], cut: int) -> None:
    members = without_contradictions(group)
    if cut < len(members):
        in_steps = combined([combined(members[:cut]), combined(members[cut:])])
        assert content(in_steps) == content(combined(members))


COMBINED = """
scenarios:
- name: s
  framework_config: [[fsdp, eager], eager, fsdp+eager, [fsdp]]
  num_gpus: [4]
  include:
  - {framework_config: [fsdp, eager], seed: 9}
  exclude:
  - {framework_config: fsdp}
  arguments: {model_name_or_path: m}
"""


def test_a_combination_is_a_cell_with_the_settings_of_its_members(tmp_path: Path) -> None:
    plan = planned(tmp_path, COMBINED)
    both, eager = plan.experiments
    assert both.framework is not None and both.framework.name == "eager+fsdp", "in the order of CONTENTS.yaml"
    assert both.id.startswith("s-m.eager-fsdp.gpus4-")
    assert [one.id for one in plan.collapsed] == [both.id], "written in another way, it is the same cell"
    assert (both.arguments["attn_implementation"], both.accelerate["distributed_type"]) == ("eager", "FSDP")
    assert both.env == {"A": "from framework", "B": "kept"}
    assert both.arguments["seed"] == "9" and "seed" not in eager.arguments
    assert (both.framework.device, both.framework.min_gpus) == (Device.CUDA, 2)


def test_the_command_line_names_a_combination_too(tmp_path: Path) -> None:
    (both,) = planned(tmp_path, BASE, num_gpus=(4,), settings=["framework_config=[[fsdp, eager]]"]).experiments
    for text in ("fsdp+eager", "[eager+fsdp]", "[[eager, fsdp, eager]]"):
        (same,) = planned(tmp_path, BASE, num_gpus=(4,), settings=[f"framework_config={text}"]).experiments
        assert same.id == both.id
    (alone,) = planned(tmp_path, BASE, num_gpus=(4,), settings=["framework_config=[[eager]]"]).experiments
    (plain,) = planned(tmp_path, BASE, num_gpus=(4,), settings=["framework_config=eager"]).experiments
    assert alone.id == plain.id, "one member is no combination"


def test_a_changed_member_is_another_combination(tmp_path: Path) -> None:
    (before,) = planned(tmp_path, BASE, num_gpus=(4,), settings=["framework_config=[[fsdp, eager]]"]).experiments
    file = tmp_path / "frameworks" / "fsdp.yaml"
    file.write_text(file.read_text() + "requires: x\n")
    plan = expand(load_suite(tmp_path / "scenarios.yaml"), TOGETHER, EIGHT_GPUS)
    assert [one.id == before.id for one in plan.experiments] == [False]


def test_an_order_of_contents_changes_no_digest(tmp_path: Path) -> None:
    (before,) = planned(tmp_path, BASE, num_gpus=(4,), settings=["framework_config=[[fsdp, eager]]"]).experiments
    contents = tmp_path / "frameworks" / "CONTENTS.yaml"
    first, *entries = contents.read_text().strip().splitlines()
    contents.write_text("\n".join([first, *reversed(entries)]))
    (after,) = expand(load_suite(tmp_path / "scenarios.yaml"), TOGETHER, EIGHT_GPUS).experiments
    assert after.framework is not None and after.framework.name == "fsdp+eager"
    assert after.id[-12:] == before.id[-12:]


def test_a_link_to_nothing_is_not_called_missing(tmp_path: Path) -> None:
    """The sentence proposed the same name."""
    planned(tmp_path, BASE, num_gpus=(4,), settings=["framework_config=fsdp"])
    file = tmp_path / "frameworks" / "fsdp.yaml"
    file.unlink()
    file.symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"fsdp\.yaml is not a file that can be read; put a YAML file in its place$"):
        expand(load_suite(tmp_path / "scenarios.yaml"), TOGETHER, EIGHT_GPUS)


CONTRADICTORY = {
    "eager": "description: x\narguments:\n  torch_dtype: float32\naccelerate:\n  fsdp_config: {version: 1}\nenv: {A: 'yes'}\n",
    "fsdp": "accelerate: {fsdp_config: {fsdp_version: 2}}\nenv: {A: null}\narguments: {dtype: bfloat16}\n",
}


def test_contradictions_name_both_places_and_that_in_the_scenario(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        with_frameworks(tmp_path, "huggingface", "[null, [fsdp, eager]]", **CONTRADICTORY)
    eager, fsdp = (f"{tmp_path}/frameworks/{name}.yaml" for name in ("eager", "fsdp"))
    begin, end = f"{tmp_path}/scenarios.yaml:1:48: scenario 's': ", "leave one of them out"
    assert str(caught.value).splitlines() == [
        f"{begin}{setting}, so 'eager' and 'fsdp' cannot be combined; {end}"
        for setting in (
            f"dtype is float32 in {eager}:2 and bfloat16 in {fsdp}:3",
            f"fsdp_config.fsdp_version is 1 in {eager}:5 and 2 in {fsdp}:1",
            f"env.A is yes in {eager}:6 and null in {fsdp}:2",
        )
    ]


def test_contradictions_of_the_command_line_are_not_blamed_on_the_file(tmp_path: Path) -> None:
    suite(tmp_path, BASE)
    for name, text in CONTRADICTORY.items():
        (tmp_path / "frameworks" / f"{name}.yaml").write_text(text)
    with pytest.raises(
        SelectionError, match=r"^--set framework_config: dtype is float32 in .*eager.yaml:2 and bfloat16"
    ):
        expand(load_suite(tmp_path / "scenarios.yaml"), TOGETHER, EIGHT_GPUS)
    with pytest.raises(SelectionError, match=r"unknown framework configuration 'eagr'; did you mean 'eager'\?"):
        expand(
            load_suite(tmp_path / "scenarios.yaml"),
            parse_selection(settings=["framework_config=fsdp+eagr"]),
            EIGHT_GPUS,
        )


def test_a_folder_of_configurations_without_its_list_is_named(tmp_path: Path) -> None:
    suite(tmp_path, BASE)
    (tmp_path / "frameworks" / "CONTENTS.yaml").unlink()
    (tmp_path / "scenarios.yaml").write_text(BASE.replace("name: s", "name: s, framework_config: [mine]"))
    with pytest.raises(
        ConfigError, match=r"frameworks/ next to it has no CONTENTS\.yaml, which lists its files; write one"
    ):
        load_suite(tmp_path / "scenarios.yaml")


@pytest.mark.parametrize(("name", "is_similar"), [("gradient-checkpoint", True), ("mine", False)])
def test_a_misspelled_name_is_not_blamed_on_a_missing_folder(tmp_path: Path, name: str, is_similar: bool) -> None:
    """The error began with a missing folder, although Tunebench's own has the configuration."""
    file = tmp_path / "scenarios.yaml"
    file.write_text(f"scenarios: [{{name: s, framework_config: [null, {name}], arguments: {{}}}}]\n")
    with pytest.raises(ConfigError) as raised:
        load_suite(file)
    *folder, unknown = raised.value.problems
    assert ("did you mean 'gradient-checkpointing'?" in str(unknown)) is is_similar
    assert [f"{file}: its framework configurations are Tunebench's own, because no" in str(one) for one in folder] == (
        [] if is_similar else [True]
    )


def test_two_devices_and_two_plugin_files_contradict_each_other(tmp_path: Path) -> None:
    devices = {"eager": "device: cpu\n", "fsdp": "device: cuda\n"}
    with pytest.raises(ConfigError, match=r"device is cpu in .*eager.yaml:1 and cuda in .*fsdp.yaml:1, so"):
        with_frameworks(tmp_path, "huggingface", "[[fsdp, eager]]", **devices)
    plugins = {"eager": "plugins: {x: 1}\n", "fsdp": "plugins: {y: 1}\n"}
    with pytest.raises(ConfigError, match=r"plugins is .*eager.yaml in .*eager.yaml:1 and .*fsdp.yaml in"):
        with_frameworks(tmp_path, "fms_hf_tuning", "[[fsdp, eager]]", **plugins)


def test_a_plugin_file_combines_with_arguments(tmp_path: Path) -> None:
    (one,) = with_frameworks(tmp_path, "fms_hf_tuning", "[[foak, eager]]").experiments
    assert one.framework is not None and one.framework.name == "eager+foak"
    assert one.framework.plugin_file == str(tmp_path / "frameworks" / "absent-plugin.yaml")
    assert one.arguments["attn_implementation"] == "eager"
    assert one.cannot_run_here is not None and one.cannot_run_here.kind == "no_plugin_file"


def test_a_short_name_with_a_plus_stays_a_name(tmp_path: Path) -> None:
    suite(tmp_path, BASE)
    contents = tmp_path / "frameworks" / "CONTENTS.yaml"
    contents.write_text(contents.read_text() + "- {shortname: eager+1, filename: eager.yaml}\n")
    for text in ("eager+1", "[[eager+1]]"):
        selection = parse_selection(settings=[f"framework_config={text}"])
        (one,) = expand(load_suite(tmp_path / "scenarios.yaml"), selection, EIGHT_GPUS).experiments
        assert one.framework is not None and one.framework.name == "eager+1"


def test_one_member_for_other_trainers_skips_the_combination(tmp_path: Path) -> None:
    eager = "trainers: huggingface\narguments: {attn_implementation: eager}\n"
    (one,) = with_frameworks(tmp_path, "custom", "[[fsdp, eager]]", eager=eager).experiments
    assert one.skip is not None and one.skip.text.startswith(
        "framework configuration 'eager' is written for other trainers (huggingface);"
    )
    assert one.arguments == {"model_name_or_path": "m"} and one.accelerate["distributed_type"] == "FSDP"


def test_memory_of_a_combination_is_that_of_its_settings(tmp_path: Path) -> None:
    saves = {"eager": "arguments: {gradient_checkpointing: true, dtype: bfloat16}\n"}
    rest = "num_gpus: 2, arguments: {model_name_or_path: config:llama-1b"
    suite(tmp_path, f"""
        scenarios:
        - {{name: a, framework_config: [[fsdp, eager]], {rest}}}}}
        - {{name: b, framework_config: fsdp, {rest}, gradient_checkpointing: true, dtype: bfloat16}}}}
    """)  # fmt: skip
    (tmp_path / "frameworks" / "eager.yaml").write_text(saves["eager"])
    both, plain = expand(load_suite(tmp_path / "scenarios.yaml"), Selection(), EIGHT_GPUS).experiments
    estimates = [json_value(one, gpu_memory_bytes=80 * 2**30) for one in (both, plain)]
    assert estimates[0] == estimates[1] and estimates[0]


def test_tables_and_comparisons_know_a_combination_by_its_name() -> None:
    table = made_table(Made(framework="fsdp", runs=speeds(100.0)), Made(framework="eager+fsdp", runs=speeds(150.0)))
    for baseline, expected in (("fsdp", [1.0, 1.5]), ("eager+fsdp", [2 / 3, 1.0])):
        assert list(with_baseline(table, [baseline]).experiments["speedup"]) == pytest.approx(expected)
