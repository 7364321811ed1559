"""Whatever stands in a file, the answer is a plan or sentences: no other exception ever leaves the loader."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.errors import OrchestratorError, SelectionError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.config import load_suite, schema_text
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import Selection, parse_selection, whole_numbers

RIGHT = Path(__file__).parents[1] / "golden" / "errors" / "right"
FILES = ("scenarios.yaml", "defaults.yaml", "accelerate.yaml", "frameworks/CONTENTS.yaml", "frameworks/baseline.yaml")
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Words that mean something in our files, so that random values reach the inside of them.
KEYS = {*re.findall(r'"([a-z_]+)": \{', schema_text())} - {"properties", "items"}
WORDS = (
    *sorted(KEYS),
    *("model_name_or_path", "effective_batch_size", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("max_seq_len", "packing", "dtype", "torch_dtype", "framework_configs", "shortname", "filename", "plugins"),
    *("requires", "min_gpus", "accelerate", "fsdp_config", "fsdp_version", "distributed_type", "huggingface", "trl"),
    *("fms_hf_tuning", "baseline", "baseline.yaml", "cpu", "auto", "cuda", "none", "log", "stdout", "hf_memory"),
    *("FSDP", "config:tiny-llama", "{model}", "{seed}", "{arguments}", "m", "~nobody/python", "a/../b", "x" * 300),
    *("emoji 🔥", "8", "2", "1e3", "a b > 1", "builtin:synthetic", "lora", "fp16"),
)
TEXT = st.sampled_from(WORDS) | st.text(max_size=12)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.floats()
    | TEXT
    | st.dates()
    | st.binary(max_size=3)
    | st.just(10**30)
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | SCALAR, inner, max_size=4), max_leaves=12
)
LIST = st.lists(SCALAR, max_size=3)
SCENARIO = st.fixed_dictionaries(
    {
        "name": TEXT,
        "arguments": st.fixed_dictionaries({"model_name_or_path": TEXT | LIST}, optional={"max_seq_len": VALUE}),
    },
    optional={
        "matrix": st.dictionaries(TEXT, LIST, max_size=3),
        "framework_config": st.lists(st.sampled_from([None, "baseline", "eager-attention"]), max_size=3) | VALUE,
        "num_gpus": st.lists(st.integers(0, 4), max_size=2) | VALUE,
        "include": st.lists(st.dictionaries(TEXT, VALUE, max_size=2), max_size=2),
        "exclude": st.lists(st.dictionaries(TEXT, VALUE, max_size=2), max_size=2),
        "trainer": st.sampled_from(["huggingface", "fms_hf_tuning", "trl", "custom"]) | VALUE,
        "device": st.sampled_from(["cpu", "cuda", "auto"]),
        "env": st.dictionaries(TEXT, SCALAR, max_size=2),
        "custom": st.fixed_dictionaries(
            {"command": st.lists(TEXT, min_size=1, max_size=3)},
            optional={
                "metrics": st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
                "results": TEXT,
            },
        ),
        "python": TEXT,
        "monitors": VALUE,
        "tags": VALUE,
    },
)
SUITE = st.fixed_dictionaries(
    {"scenarios": st.lists(SCENARIO, max_size=3)},
    optional={
        "experiment_tag": TEXT,
        "data_processing": st.fixed_dictionaries({}, optional={"dataset_name": TEXT, "seed": VALUE, "samples": VALUE}),
    },
)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def lay_out(folder: Path, name: str, content: bytes) -> None:
    (folder / "frameworks").mkdir(exist_ok=True)
    for file in (*FILES, "frameworks/eager.yaml"):
        (folder / file).write_bytes(content if file == name else (RIGHT / file).read_bytes())


def answer(folder: Path, name: str, content: bytes, selection: Selection | None = None) -> None:
    """Either a plan whose ids are unique and fit for a folder, or sentences that stand one a line."""
    lay_out(folder, name, content)
    try:
        plan = expand(load_suite(folder / "scenarios.yaml"), selection or Selection(), Machine(cpu_count=2))
    except OrchestratorError as error:
        assert str(error).strip()
        return
    ids = [one.id for one in plan.experiments]
    assert len(set(ids)) == len(ids)
    assert all(len(one) < 200 and one.isascii() and "/" not in one and one[0] not in ".-" for one in ids)


@QUICK
@given(name=st.sampled_from(FILES), content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(name="scenarios.yaml", content=b"scenarios: &a\n- *a")
@example(name="scenarios.yaml", content=b"? !!bool maybe\n: 1")
@example(name="defaults.yaml", content=b"!!int '': 1")
@example(name="defaults.yaml", content=b"a: =\n=: b")
def test_any_text(folder: Path, name: str, content: bytes) -> None:
    answer(folder, name, content)


ALPHABET = st.sampled_from(
    [*"abc:-?{}[],#&*!|>'\"%@`~=<. \n\n\t0", "- ", ": ", "\n  ", "<<: ", "!!", "&a ", "*a ", "---\n", "true", "1:3"]
)


@QUICK
@given(name=st.sampled_from(FILES), content=st.lists(ALPHABET, max_size=60).map("".join))
def test_any_text_that_looks_like_yaml(folder: Path, name: str, content: str) -> None:
    answer(folder, name, content.encode())


@QUICK
@given(name=st.sampled_from(FILES), value=VALUE)
@example(name="frameworks/baseline.yaml", value={"arguments": {"a": {1: "x", "b": "y"}}})
@example(name="frameworks/baseline.yaml", value={"plugins": {1: "x", "b": "y", None: 3}})
@example(name="frameworks/baseline.yaml", value={"requires": ["> nothing"]})
@example(name="accelerate.yaml", value={"fp8_config": {"fp8_override_linear_precision": [{1: 2, "a": 3}]}})
def test_any_value(folder: Path, name: str, value: Any) -> None:
    answer(folder, name, yaml.safe_dump(value, allow_unicode=True).encode(errors="replace"))


@settings(QUICK, max_examples=250)
@given(value=SUITE)
@example(
    value={
        "scenarios": [{"name": "s", "arguments": {"model_name_or_path": "m"}, "include": [{"framework_config": ["a"]}]}]
    }
)
@example(
    value={
        "scenarios": [
            {"name": "s", "arguments": {"model_name_or_path": "m"}, "include": [{"model_name_or_path": None}]}
        ]
    }
)
@example(
    value={"scenarios": [{"name": "s", "arguments": {"model_name_or_path": "m"}, "python": "~nobody/" + "x" * 300}]}
)
@example(value={"scenarios": [{"name": "s", "arguments": {"model_name_or_path": "m", "dataset_name": "x" * 5000}}]})
def test_anything_that_is_nearly_a_scenario_file(folder: Path, value: Any) -> None:
    answer(folder, "scenarios.yaml", yaml.safe_dump(value, allow_unicode=True).encode(errors="replace"))


@settings(QUICK, max_examples=200)
@given(
    kind=st.sampled_from(["settings", "axes", "scenarios"]),
    name=st.sampled_from(
        ["device", "env.A", "framework_config", "num_gpus", "trainer", "monitors", "repeats", "arguments.max_steps"]
    )
    | TEXT,
    value=TEXT | st.lists(ALPHABET, max_size=12).map("".join) | VALUE.map(repr),
)
@example(kind="settings", name="arguments.x", value="[" * 100_000)
@example(kind="settings", name="arguments.x", value="!!bool maybe")
@example(kind="settings", name="framework_config", value="nope")
@example(kind="settings", name="framework_config", value="[[a]]")
@example(kind="settings", name="trainer", value="nope")
@example(kind="settings", name="arguments.model_name_or_path", value="{a: b}")
@example(kind="axes", name="model_name_or_path", value="[a,b],null")
@example(kind="axes", name="effective_batch_size", value="eight")
def test_any_choice_on_the_command_line(folder: Path, kind: str, name: str, value: str) -> None:
    try:
        selection = parse_selection(**{kind: [f"{name}={value}"]})
    except SelectionError:
        return
    answer(folder, "none of them", b"", selection)


@given(st.text(max_size=10) | st.just("9" * 6000))
def test_whole_numbers_are_numbers_or_an_error(text: str) -> None:
    try:
        found = whole_numbers(text, option="--num-gpus")
    except SelectionError as error:
        assert "--num-gpus" in str(error)
    else:
        assert found
        assert all(number >= 1 for number in found)
