"""Ids fit for a folder and a shell whatever the names, digests over content, and the data that an experiment reads."""

from __future__ import annotations

import os
import re
import string
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment
from factories.suites import expanded, planned, suite
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError
from orchestrator.files.cache import cache_folder
from orchestrator.plan.config import load_suite
from orchestrator.plan.data import FINGERPRINT_FILE, data_path, worker_functions
from orchestrator.plan.identity.experiment_id import Digester, accelerate_settings, readable_part
from orchestrator.records import DataSpec, Experiment, Framework, Measure

ONE = experiment(id="", arguments={"a": "1"})
FIT = re.compile(r"[A-Za-z0-9_=][A-Za-z0-9._=-]*-[0-9a-f]{12}")
NONE: frozenset[str] = frozenset()


def experiment_digest(experiment: Experiment, perturbing: frozenset[str]) -> str:
    return Digester(perturbing).digest(experiment)


# ------------------------------------------------------------------------------------------------------------- ids


@given(
    st.text(min_size=1),
    st.text(min_size=1),
    st.sampled_from(["{model}.{framework}.gpus{num_gpus}", "", "{{}}", "é/{device}"]),
)
def test_any_name_makes_a_tame_id(scenario: str, model: str, form: str) -> None:
    framework = Framework(name=model, digest="d")
    found = readable_part(replace(ONE, scenario=scenario, model=model, framework=framework), form, {}) + "-" + "0" * 12
    assert FIT.fullmatch(found)
    assert len(found.encode()) < 200


def test_the_tag_can_be_set(tmp_path: Path) -> None:
    file = {
        "experiment_tag": "{trainer}_{device}_{num_gpus}x{model}",
        "scenarios": [{"name": "s", "device": "cpu", "arguments": {"model_name_or_path": "org/Llama-3.1-8B/"}}],
    }
    (experiment,) = expanded(suite(tmp_path, file))
    assert experiment.id.startswith("s-huggingface_cpu_1xLlama-3.1-8B-")


SWEEP = """
experiment_tag: '{TAG}'
scenarios:
- name: dpo
  trainer: custom
  device: cpu
  num_gpus: [1, 2]
  matrix: {beta: [0.1, 0.5], optimizer.config.lr: [5.5e-06, null]}
  arguments: {preset: llama3_1_8b_dpo, modules: [q_proj, v_proj]}
  custom: {command: [train.py, '{arguments}']}
- name: sft
  device: cpu
  arguments:
    {model_name_or_path: m, torch_dtype: float32, effective_batch_size: 8, per_device_train_batch_size: 1,
     gradient_accumulation_steps: null}
"""


def tags(tmp_path: Path, tag: str) -> list[str]:
    """The ids of SWEEP without their digests."""
    (tmp_path / "scenarios.yaml").write_text(SWEEP.replace("{TAG}", tag))
    return [one.id[:-13] for one in expanded(load_suite(tmp_path / "scenarios.yaml"))]


def test_the_tag_may_name_arguments_as_fairseq2_s_sweep_tags_do(tmp_path: Path) -> None:
    found = tags(tmp_path, "ps_{preset}.ws_{num_gpus}.beta_{beta}.lr_{optimizer.config.lr}")
    assert found[0] == "dpo-ps_llama3_1_8b_dpo.ws_1.beta_0.1.lr_5.5e-06"
    assert found[1] == "dpo-ps_llama3_1_8b_dpo.ws_1.beta_0.1.lr_none"
    assert found[-2] == "dpo-ps_llama3_1_8b_dpo.ws_2.beta_0.5.lr_none"
    assert found[-1] == "sft-ps_none.ws_1.beta_none.lr_none", "another scenario has these arguments"


def test_an_argument_in_the_tag_has_the_name_and_value_that_are_written(tmp_path: Path) -> None:
    found = tags(tmp_path, "{torch_dtype}.{effective_batch_size}.{modules}.{{beta}}")
    assert (found[0], found[-1]) == ("dpo-none.none.q_proj-v_proj.-beta", "sft-float32.8.none.-beta")


def test_two_experiments_never_have_the_same_id_whatever_the_tag(tmp_path: Path) -> None:
    """fairseq2 gives one tag to two configurations that differ in a key that the format does not name."""
    (tmp_path / "scenarios.yaml").write_text(SWEEP.replace("{TAG}", "ps_{preset}"))
    ids = [one.id for one in expanded(load_suite(tmp_path / "scenarios.yaml"))]
    assert len(ids) == len(set(ids)) == 9


def test_an_unknown_name_in_the_tag_is_an_error_that_lists_the_allowed_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        tags(tmp_path, "ps_{preset}.{betta}.{world_size}")
    first, second = (str(problem) for problem in error.value.problems)
    assert (
        "scenarios.yaml:2:1: experiment_tag: unknown name {betta}; did you mean 'beta'? Allowed: beta, device," in first
    )
    assert first.endswith("num_nodes, optimizer.config.lr, per_device_train_batch_size, preset, torch_dtype, trainer")
    assert "unknown name {world_size}" in second


def test_the_tag_is_no_part_of_the_digest(tmp_path: Path) -> None:
    file: dict[str, Any] = {"scenarios": [{"name": "s", "arguments": {"model_name_or_path": "m"}}]}
    (first,) = expanded(suite(tmp_path, file))
    (second,) = expanded(suite(tmp_path, {"experiment_tag": "{device}", **file}))
    assert first.id[-12:] == second.id[-12:]
    assert first.id != second.id


# --------------------------------------------------------------------------------------------------------- digests


def test_a_key_of_measure_that_came_later_counts_only_where_it_is_used() -> None:
    """The digest is one of a version without `at_least_s`, so that its folders are resumed."""
    older = Measure(discard_steps=5, within=0.01)
    assert experiment_digest(replace(ONE, measure=older), NONE) == "e398d3fbaee4"
    assert experiment_digest(replace(ONE, measure=replace(older, at_least_s=60.0)), NONE) != "e398d3fbaee4"


@given(st.permutations(list(string.ascii_lowercase[:6])))
def test_order_is_no_part_of_a_digest(order: list[str]) -> None:
    arguments = {name: str(ord(name)) for name in string.ascii_lowercase[:6]}
    one = experiment_digest(replace(ONE, arguments=arguments), NONE)
    assert experiment_digest(replace(ONE, arguments={name: arguments[name] for name in order}), NONE) == one


@given(
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=2)),
    st.dictionaries(st.sampled_from("ab"), st.text(max_size=2)),
)
def test_other_arguments_are_another_digest(first: dict[str, str], second: dict[str, str]) -> None:
    digests = [experiment_digest(replace(ONE, arguments=one), NONE) for one in (first, second)]
    assert (digests[0] == digests[1]) == (first == second)


def test_a_list_and_its_text_are_two_arguments() -> None:
    assert experiment_digest(replace(ONE, arguments={"a": ("1",)}), NONE) != experiment_digest(ONE, NONE)


def test_a_monitor_counts_only_where_it_perturbs() -> None:
    watched = replace(ONE, monitors=("nvidia_smi", "hf_memory"))
    assert experiment_digest(watched, NONE) == experiment_digest(ONE, NONE)
    assert experiment_digest(watched, frozenset({"hf_memory"})) != experiment_digest(ONE, NONE)


def test_the_digest_of_today_is_the_digest_of_tomorrow() -> None:
    """A results folder is resumed by it: a change here makes every folder of every user a stranger."""
    assert experiment_digest(ONE, NONE) == "5f71ea676198"


def test_configurations_without_their_plugin_files_have_different_digests() -> None:
    without = [replace(ONE, framework=Framework(name=name, digest="")) for name in ("foak", "bnb")]
    assert len({experiment_digest(one, NONE) for one in (ONE, *without)}) == 3


def test_what_a_framework_file_says_in_other_words_is_the_same_framework(tmp_path: Path) -> None:
    text = "scenarios: [{name: s, framework_config: eager, arguments: {model_name_or_path: m}}]"
    (first,) = planned(tmp_path, text).experiments
    file = tmp_path / "frameworks" / "eager.yaml"
    file.write_text("""# a comment
description: said anew
env: {B: kept, A: from framework}
arguments:
  attn_implementation: eager
""")
    (same,) = expanded(load_suite(tmp_path / "scenarios.yaml"))
    assert same.id == first.id
    file.write_text(file.read_text() + "requires: x\n")
    (changed,) = expanded(load_suite(tmp_path / "scenarios.yaml"))
    assert changed.id != first.id


def test_launch_settings_leave_out_what_is_set_at_launch_and_merge_sections() -> None:
    base = {"num_processes": 8, "gpu_ids": "all", "use_cpu": True, "debug": False, "fsdp_config": {"a": 1, "b": 2}}
    framework = Framework(name="f", digest="d", accelerate={"fsdp_config": {"b": 3}, "mixed_precision": "bf16"})
    assert accelerate_settings(base, None) == {"debug": False, "fsdp_config": {"a": 1, "b": 2}}
    merged = {"debug": False, "fsdp_config": {"a": 1, "b": 3}, "mixed_precision": "bf16"}
    assert accelerate_settings(base, framework) == merged
    assert base["fsdp_config"] == {"a": 1, "b": 2}


# ------------------------------------------------------------------------------------------------------------ data


def with_data(
    folder: Path, arguments: dict[str, Any] | None = None, trainer: str = "huggingface", **data: Any
) -> Experiment:
    scenario = {"name": "s", "trainer": trainer, "arguments": {"model_name_or_path": "m", **(arguments or {})}}
    (experiment,) = expanded(suite(folder, {"scenarios": [scenario], "data_processing": data}))
    return experiment


def test_a_local_file_is_what_it_contains_wherever_it_lies(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"output": "a"}\n')
    first = with_data(tmp_path, dataset_name="rows.jsonl")
    assert first.data is not None
    assert first.data.source == str(tmp_path / "rows.jsonl")
    (tmp_path / "moved.jsonl").write_text('{"output": "a"}\n')
    moved = with_data(tmp_path, dataset_name=str(tmp_path / "moved.jsonl"))
    assert moved.id == first.id
    (tmp_path / "rows.jsonl").write_text('{"output": "b"}\n')
    edited = with_data(tmp_path, dataset_name="rows.jsonl")
    assert edited.id != first.id
    assert edited.data_path != first.data_path


def test_a_folder_is_its_files_with_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "deep"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("1")
    ids = [with_data(tmp_path, dataset_name="data").id]
    (folder / "a.json").rename(folder / "b.json")
    ids.append(with_data(tmp_path, dataset_name="data").id)
    (folder / "c.json").write_text("")
    ids.append(with_data(tmp_path, dataset_name="data").id)
    assert len(set(ids)) == 3


def test_a_large_file_is_its_size_beginning_and_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(worker_functions(FINGERPRINT_FILE)["fingerprint"].__globals__, "WHOLE_FILE_BYTES", 4)
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"0" * 2_000_000)
    first = with_data(tmp_path, dataset_name="rows.jsonl").id
    for position, differs in ((2, True), (1_999_999, True), (500_000, False)):
        changed = bytearray(b"0" * 2_000_000)
        changed[position] = ord("1")
        file.write_bytes(changed)
        assert (with_data(tmp_path, dataset_name="rows.jsonl").id != first) is differs


def test_another_tokenizer_in_a_model_s_folder_is_other_prepared_data_and_the_same_experiment(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    os.mkfifo(model / "model.safetensors")  # weights are not opened
    plan = partial(with_data, tmp_path, arguments={"model_name_or_path": str(model)})
    none = plan()
    assert none.data is not None and none.data.tokenizer_fingerprint is None
    paths = [none.data_path]
    for name in ("tokenizer.json", "tokenizer.json", "special_tokens_map.json", "vocab.txt", "chat_template.jinja"):
        (model / name).write_text(f"{name} {len(paths)}")
        one = plan()
        paths.append(one.data_path)
        assert one.id == none.id
    assert len(set(paths)) == 6
    (model / "README.md").write_text("a tokenizer is not loaded from this file")
    assert plan().data_path == paths[-1]


def test_data_that_may_not_be_read_is_said_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gone.json").symlink_to(tmp_path / "data" / "gone.json")  # a loop: there, and not to be opened
    assert with_data(tmp_path, dataset_name="data").data is not None
    (tmp_path / "rows.jsonl").symlink_to("/proc/self/mem")
    with pytest.raises(ConfigError, match=r"scenarios.yaml:\d+:\d+: dataset_name: .* cannot be read"):
        with_data(tmp_path, dataset_name="rows.jsonl")


@pytest.mark.parametrize("source", ["org/data", "x" * 5000, "a\tb", "~/data", "builtin:stdlib-docs"])
def test_what_is_no_local_file_is_its_name(source: str, tmp_path: Path) -> None:
    data = with_data(tmp_path, dataset_name=source).data
    assert data is not None
    assert (data.source, data.fingerprint) == (source, None)


def test_the_built_in_trainer_reads_tokens_of_its_model_and_the_others_one_text_for_all(tmp_path: Path) -> None:
    tokens, text = with_data(tmp_path).data, with_data(tmp_path, trainer="fms_hf_tuning").data
    assert tokens is not None
    assert text is not None
    assert (tokens.form, tokens.tokenizer) == ("tokens", "m")
    assert (text.form, text.tokenizer) == ("text", None)
    templated = with_data(tmp_path, trainer="fms_hf_tuning", chat_template="{{ messages }}").data
    assert templated is not None
    assert (templated.tokenizer, templated.formatting) == ("m", None)


def test_length_and_seed_matter_to_random_tokens_alone(tmp_path: Path) -> None:
    random = with_data(tmp_path, {"max_seq_len": 64}, dataset_name="builtin:synthetic", samples=9, seed=3).data
    real = with_data(tmp_path, {"max_seq_len": 64}, dataset_name="org/data", samples=9, seed=3).data
    assert random is not None
    assert real is not None
    assert (random.max_length, random.samples, random.seed) == (64, 9, 3)
    assert (real.max_length, real.samples, real.seed) == (None, None, 0)


def test_what_names_the_data_is_prepared_or_the_trainers_own(tmp_path: Path) -> None:
    own = with_data(tmp_path, {"dataset_name": "org/other"})
    assert own.data is not None
    assert own.data.source == "org/other"
    assert not own.arguments.keys() & {"dataset_name", "training_data_path"}
    theirs = with_data(tmp_path, {"training_data_path": "/my/file.json"}, trainer="fms_hf_tuning")
    assert theirs.data is None
    assert theirs.data_path is None
    assert theirs.arguments["training_data_path"] == "/my/file.json"


@given(st.text(min_size=1))
def test_the_prepared_datas_folder_is_tame(source: str) -> None:
    cache = Path("/cache")
    found = Path(data_path(DataSpec(source=source, form="tokens"), cache))
    assert found.parent == cache / "data"
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*-[0-9a-f]{16}", found.name)


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    for name, value, expected in (
        ("TUNEBENCH_CACHE", "", "/home/u/.cache/tunebench"),
        ("XDG_CACHE_HOME", "/xdg", "/xdg/tunebench"),
        ("TUNEBENCH_CACHE", "/own", "/own"),
    ):
        monkeypatch.setenv(name, value)
        assert cache_folder() == Path(expected)
