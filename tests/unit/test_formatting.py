"""Rows to text and text to labels, by the reference's cases and by our own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from formatting import IGNORED, PreparationError, Sample, Spec, check_spec, format_rows, tokenize_samples
from prepare import prepare

CASES = json.loads((Path(__file__).parents[1] / "golden/units/data_preparation.json").read_text())["cases"]
BY_NAME = {case["case"]: case for case in CASES}
# The reference's option for each of ours; `no_such` is refused where the scenario file is read.
FIELDS = {"dataset_split": "split", "dataset_text_field": "text_field"}


class Letters:
    """A tokenizer of one token a character, and an end of sequence; `special` puts a beginning before the text."""

    eos_token_id = 1

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Any]:
        first = ([0], [0]) if special else ([], [])
        return [([*first[0], *map(ord, text)], [*first[1], *range(1, len(text) + 1)]) for text in texts]


def spec_of(case: dict[str, Any], folder: Path) -> Spec:
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in case["input_rows"]))
    config = {FIELDS.get(name, name): value for name, value in case["config"].items() if name != "dataset_name"}
    if config.get("split"):
        config["split"] = "train[:8000]"
    template = case["response_template"] if config.get("tokenize") else None
    made = folder / "made"
    return Spec(source=str(source), path=str(made), form="text", response_template=template, **config)


@pytest.mark.parametrize("name", [name for name, case in BY_NAME.items() if case["result"]])
def test_the_reference_prepares_the_same_text(name: str, tmp_path: Path) -> None:
    spec = spec_of(BY_NAME[name], tmp_path)
    assert prepare(dataclasses.replace(spec, tokenizer=None))
    assert (Path(spec.path) / "train.json").read_text() == BY_NAME[name]["result"]["raw_text"]


@pytest.mark.parametrize("name", ["no-formatting-no-tokenize", "chat-template-tokenize-no-response"])
def test_what_the_reference_refuses_is_one_sentence_here(name: str, tmp_path: Path) -> None:
    with pytest.raises(PreparationError) as error:
        prepare(spec_of(BY_NAME[name], tmp_path))
    assert str(error.value).endswith(".")
    assert not (tmp_path / "made").exists()


def test_an_input_that_is_empty_has_no_section() -> None:
    spec = Spec(source="s", path="p")
    rows = [{"instruction": "I", "input": "X", "output": "O"}, {"instruction": "I", "input": "", "output": "O"}]
    first, second = format_rows(rows, spec, special_tokens={})
    assert "### Input:\nX\n\n" in first.text
    assert "### Input:" not in second.text
    assert second.text.endswith("### Response: O")


def test_a_missing_field_is_named_with_its_row() -> None:
    said = r"row 2 of 's' has no field 'output'; it has 'instruction' \(formatting: none takes dataset_text_field as it is\)"
    with pytest.raises(PreparationError, match=said):
        format_rows(
            [{"instruction": "a", "output": "b"}, {"instruction": "a"}], Spec(source="s", path="p"), special_tokens={}
        )


def test_a_chat_template_sees_special_tokens_and_trims_blocks() -> None:
    template = "{{ bos_token }}\n  {%- for m in messages %}\n[{{ m.q }}]\n  {%- endfor %}\n{{ eos_token }}"
    spec = Spec(source="s", path="p", chat_template=template)
    (sample,) = format_rows([{"q": "hi"}], spec, special_tokens={"bos_token": "<s>", "eos_token": "</s>"})
    assert sample.text == "<s>[hi]</s>"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{% for %}", "a mistake in line 1"),
        ("{{ raise_exception('no') }}", "row 1 of 's' makes the chat template fail: Te.*: no"),
    ],
)
def test_a_broken_template_is_one_sentence(template: str, sentence: str) -> None:
    with pytest.raises(PreparationError, match=sentence):
        format_rows([{"q": "hi"}], Spec(source="s", path="p", chat_template=template), special_tokens={})


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ messages[0]['q'] + 1 }}", "TypeError: can only concatenate str"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{% include 'other' %}", "TypeError: no loader"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError: "),
        ("{{ {}.popitem() }}", "SecurityError|KeyError"),
        ("{{ '%(a)s' % messages[0] }}", "KeyError: 'a'"),
    ],
)
def test_any_error_of_a_template_names_the_row(template: str, sentence: str) -> None:
    said = f"row 1 of 's' makes the chat template fail: ({sentence}).*; correct the template or the row"
    with pytest.raises(PreparationError, match=said):
        format_rows([{"q": "hi"}], Spec(source="s", path="p", chat_template=template), special_tokens={})


def test_a_template_that_cannot_be_compiled_is_one_sentence() -> None:
    template = "{{" + "(" * 3000 + "1" + ")" * 3000 + "}}"
    with pytest.raises(PreparationError, match=r"the chat template cannot be compiled: .*; simplify it"):
        format_rows([{"q": "hi"}], Spec(source="s", path="p", chat_template=template), special_tokens={})


def test_half_a_character_names_its_row() -> None:
    rows = [{"instruction": "a", "output": "b"}, {"instruction": "a", "output": "\ud800"}]
    with pytest.raises(
        PreparationError, match=r"row 2 of 's' cannot be prepared: UnicodeEncodeError: .*remove this row"
    ):
        format_rows(rows, Spec(source="s", path="p"), special_tokens={})


def test_null_is_an_empty_input() -> None:
    rows = [{"instruction": "I", "input": value, "output": "O"} for value in (None, "")]
    null, empty = format_rows(rows, Spec(source="s", path="p"), special_tokens={})
    assert null == empty


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "output"),
        ({}, "instruction"),
        ({"input_field": "more"}, "input"),
        ({"response_field": "answer"}, "answer"),
        ({"formatting": "none"}, "output"),
        ({"chat_template": "t", "response_field": "answer"}, "answer"),
    ],
)
def test_null_is_never_learnt_as_a_word(fields: dict[str, Any], name: str) -> None:
    row = {"instruction": "I", "input": "X", "more": "M", "output": "O", "answer": "A", name: None}
    with pytest.raises(PreparationError, match=f"row 1 of 's' has null in the field '{name}'; write a text"):
        format_rows([row], Spec(source="s", path="p", **fields), special_tokens={})


def learnt(sample: Sample, **fields: Any) -> str:
    spec = Spec(source="s", path="p", **fields)
    (row,) = tokenize_samples([sample], spec, tokenizer=Letters())
    return "".join(map(chr, (token for token in row.labels if token != IGNORED)))


def test_labels_are_all_tokens_or_the_response_alone() -> None:
    assert learnt(Sample(text="q? a")) == "\0q? a\1"
    assert learnt(Sample(text="q? a"), response_template="?") == " a\1"
    assert learnt(Sample(text="a? b? c"), response_template="?") == " c\1"
    assert learnt(Sample(text="q a", prompt="q"), response_field="answer") == " a\1"
    assert learnt(Sample(text="q a"), response_template="?") == ""


def test_a_chat_templates_text_gets_no_other_special_tokens() -> None:
    chat = {"chat_template": "t", "response_field": "r"}
    assert learnt(Sample(text="qa"), **chat) == "qa\1"
    assert learnt(Sample(text="qa"), form="text", tokenize=True, **chat) == "qa"


def test_a_response_field_follows_the_rendered_text() -> None:
    spec = Spec(source="s", path="p", chat_template="{{ messages[0].q }}:", response_field="a")
    samples = format_rows([{"q": "Q", "a": "A"}], spec, special_tokens={})
    assert samples == [Sample(text="Q:A", prompt="Q:")]


def test_max_length_cuts_tokens_and_labels_alike() -> None:
    (row,) = tokenize_samples([Sample(text="abc")], Spec(source="s", path="p", max_length=2), tokenizer=Letters())
    assert (list(row.input_ids), list(row.labels)) == ([0, ord("a")], [0, ord("a")])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"form": "rows"}, "allowed are tokens and text"),
        ({"formatting": "alpaca"}, "allowed are instruct and none"),
        ({"max_length": 1}, "give 2 or more"),
        ({"samples": 0}, "give 1 or more"),
        ({"seed": -1}, "seed is -1; give 0 or more"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PreparationError, match=sentence):
        check_spec(Spec(source="s", path="p", **fields))
