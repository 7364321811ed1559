"""YAML files as values with places: marks, anchors, merge keys, and the scalars of YAML 1.1."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from factories.cases import cases
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError
from orchestrator.plan.config import Document, argument_text, parse_scalar, read_document


def read(folder: Path, text: str) -> Document:
    file = folder / "a.yaml"
    file.write_bytes(text.encode())
    return read_document(file)


# ----------------------------------------------------------------------------------------------------------- marks

PLACED = """\
# a comment
first: 1
list:
- a
-   {x: 1, 'y': [p,  q]}
nested:
    deep:
        "quoted key" : 3
"""


@pytest.mark.parametrize(("path", "place"), cases("yaml_file/every_key_and_item_has_its_place"))
def test_every_key_and_item_has_its_place(path: list[str | int], place: list[int], tmp_path: Path) -> None:
    assert read(tmp_path, PLACED).place(tuple(path)) == tuple(place)


def test_places_count_characters_and_know_windows_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    document = read(tmp_path, "\ufeffgröße: [ä, ö]\r\nb: 1\r\n")
    assert document.value == {"größe": ["ä", "ö"], "b": 1}
    assert document.place(("größe",)) == (1, 1)
    assert document.place(("größe", 1)) == (1, 12)
    assert document.place(("b",)) == (2, 1)


def test_an_alias_has_a_place_at_each_use(tmp_path: Path) -> None:
    document = read(tmp_path, "a: &one {x: [1, 2]}\nb: *one\n")
    assert document.value == {"a": {"x": [1, 2]}, "b": {"x": [1, 2]}}
    assert document.place(("b",)) == (2, 1)
    assert document.place(("b", "x")) == (1, 10), "what is in it stands where it was written"


# ------------------------------------------------------------------------------------------------------ merge keys


@pytest.mark.parametrize(("text", "value"), cases("yaml_file/merge_keys"))
def test_merge_keys(text: str, value: dict[str, Any], tmp_path: Path) -> None:
    assert read(tmp_path, text).value["b"] == value


@given(
    st.lists(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)), min_size=1, max_size=3),
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)),
)
def test_merging_agrees_with_the_yaml_library(
    tmp_path_factory: pytest.TempPathFactory, merged: list[Any], own: dict[str, int]
) -> None:
    anchors = "".join(
        f"a{index}: &a{index} {yaml.safe_dump(one, default_flow_style=True)}" for index, one in enumerate(merged)
    )
    body = "".join(f"  {key}: {value}\n" for key, value in own.items())
    text = f"{anchors}b:\n  <<: [{', '.join(f'*a{index}' for index in range(len(merged)))}]\n{body}"
    assert read(tmp_path_factory.mktemp("merge"), text).value == yaml.safe_load(text)


def test_a_mistake_in_a_merged_mapping_is_placed_where_it_was_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "a: &a\n  x: 1\n  x: 2\nb:\n  <<: *a\n")
    assert [(one.line, one.column) for one in caught.value.problems] == [(3, 3)]


# --------------------------------------------------------------------------------------------------------- scalars

SCALARS: list[tuple[str, Any, str | tuple[str, ...] | None]] = [  # as written, as a value, as a trainer gets it
    ("2e-5", "2e-5", "2e-5"),
    ("2.0e-5", 2e-05, "2e-05"),
    ("1_000", 1000, "1000"),
    ("010", 8, "8"),
    ("0x10", 16, "16"),
    ("1:30", 90, "90"),
    ("yes", True, "True"),
    ("No", False, "False"),
    ("on", True, "True"),
    ("'on'", "on", "on"),
    ("y", "y", "y"),
    ("~", None, None),
    ("", None, None),
    ("null", None, None),
    ("'null'", "null", "null"),
    ("1.50", 1.5, "1.5"),
    (".inf", math.inf, "inf"),
    ("=", "=", "="),
    ("2024-01-02", "2024-01-02", "2024-01-02"),
    ("!!str 5", "5", "5"),
    ("!!binary aGk=", b"hi", "b'hi'"),
    ("[a, 1, null]", ["a", 1, None], ("a", "1", "None")),
    ("{x: 1}", {"x": 1}, "{'x': 1}"),
    ("|-\n  two\n  lines", "two\nlines", "two\nlines"),
]


@pytest.mark.parametrize(("written", "value", "text"), SCALARS)
def test_scalars_are_those_of_yaml_1_1(
    written: str, value: Any, text: str | tuple[str, ...] | None, tmp_path: Path
) -> None:
    found = read(tmp_path, f"a: {written}\n").value["a"]
    assert found == value
    assert type(found) is type(value)
    assert argument_text(found) == text


@pytest.mark.parametrize(("written", "value"), [(one[0], one[1]) for one in SCALARS if one[0] not in ("", "=")])
def test_the_command_line_reads_a_value_as_a_file_does(written: str, value: Any) -> None:
    assert parse_scalar(written) == value


NO_YAML = (
    "",
    "=",
    "a: b: c",
    "'open",
    "[",
    "*alias",
    "!!python/name:os.system",
    "!!int x",
    "2024-99-99",
    "!!timestamp x",
)
COMMENTS = ("run #5", "#5", "[a, b] #c")


@pytest.mark.parametrize("text", [*NO_YAML, *COMMENTS])
def test_what_is_no_yaml_on_the_command_line_is_text(text: str) -> None:
    assert parse_scalar(text) == text


def test_a_number_that_no_program_can_hold_is_text_on_the_command_line() -> None:
    for text in ("9" * 301, "9" * 5000, "0x" + "f" * 5000, "1" + ":59" * 500_000):
        assert parse_scalar(text) == text
        assert parse_scalar(f"[{text}]") == f"[{text}]"
    assert parse_scalar("9" * 300) == 10**300 - 1


# ----------------------------------------------------------------------------------------------------- other files


def test_a_pipe_is_read(tmp_path: Path) -> None:
    """`tunebench plan <(generate)` hands over a file without a size."""
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text("a: 1\n"))
    writer.start()
    assert read_document(tmp_path / "pipe").value == {"a": 1}
    writer.join()


def test_a_device_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="exceeds the limit of 8 MiB"):
        read_document(Path("/dev/zero"))


def test_duplicate_keys_are_found_at_every_depth_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, "a: 1\nb:\n- {x: 1, x: 2}\na: 3\n1: x\n1: y\n")
    assert [(one.line, one.column) for one in caught.value.problems] == [(4, 1), (6, 1), (3, 10)]


def test_keys_of_two_types_are_two_keys_unless_yaml_says_otherwise(tmp_path: Path) -> None:
    assert read(tmp_path, "1: a\n'1': b\n").value == {1: "a", "1": "b"}
