"""The command line of the built-in trainer: text to typed values, mistakes to sentences."""

from __future__ import annotations

import enum
from typing import Any, Optional, Union

import pytest
from arguments import SHORT_NAMES, ArgumentError, Own, check_unknown, convert, parse, words_by_name
from factories.cases import cases
from sft import in_both_names


class Strategy(enum.Enum):
    NO = "no"
    STEPS = "steps"


# Both ways of writing a union: transformers uses the old one up to 4.x, the new one from 5 on.
FIELDS: dict[str, Any] = {
    "max_steps": int,
    "learning_rate": float,
    "bf16": bool,
    "save_strategy": Union[Strategy, str],  # noqa: UP007
    "report_to": None | str | list[str],
    "lr_scheduler_kwargs": dict[str, Any] | str | None,
    "include_num_input_tokens_seen": str | bool,
    "tf32": Optional[bool],  # noqa: UP045
}
NEEDED = ["--model_name_or_path", "config:tiny-llama", "--training_data_path", "data"]


@pytest.mark.parametrize(("name", "words", "value"), cases("arguments/values_take_the_type_of_their_field"))
def test_values_take_the_type_of_their_field(name: str, words: list[str], value: Any) -> None:
    converted = convert(name, words, FIELDS[name])
    assert converted == value
    assert type(converted) is type(value)


@pytest.mark.parametrize(("words", "sentence"), cases("arguments/a_mistake_is_one_sentence"))
def test_a_mistake_is_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(ArgumentError) as error:
        parse([*NEEDED, *words], FIELDS)
    assert str(error.value) == sentence


def test_own_training_and_model_arguments_are_told_apart() -> None:
    words = [*NEEDED, "--r=4", "--max-steps", "5", "--target_modules", "q_proj", "v_proj", "--num_hidden_layers", "1"]
    parsed = parse(words, FIELDS)
    assert (parsed.own.r, parsed.own.target_modules) == (4, ["q_proj", "v_proj"])
    assert parsed.training == {"max_steps": 5}
    assert parsed.model == {"num_hidden_layers": ["1"]}


@pytest.mark.parametrize("installed", ["gradient_checkpointing", "activation_checkpointing"])
def test_checkpointing_has_both_names_whichever_is_installed(installed: str) -> None:
    fields = in_both_names({**FIELDS, installed: bool, f"{installed}_kwargs": dict})
    words = ["--activation_checkpointing", "True", "--gradient_checkpointing_kwargs", '{"use_reentrant": false}']
    training = {"activation_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
    assert parse([*NEEDED, *words], fields).training == training
    assert in_both_names(FIELDS) == FIELDS


def test_missing_and_stray_words() -> None:
    with pytest.raises(ArgumentError, match="--model_name_or_path is missing"):
        parse([], FIELDS)
    with pytest.raises(ArgumentError, match="'x' comes before any --argument"):
        words_by_name(["x"])


def test_a_negative_number_is_a_value() -> None:
    assert words_by_name(["--max_steps", "-1"]) == {"max_steps": ["-1"]}


def test_an_unknown_name_gets_the_nearest_right_one() -> None:
    with pytest.raises(ArgumentError, match="did you mean --adam_epsilon"):
        check_unknown(["adam_eps"], ["adam_epsilon", "adam_beta1"], what="the model m")


def test_short_names_lead_to_names_that_exist() -> None:
    from transformers import TrainingArguments

    known = {*Own.__dataclass_fields__, *TrainingArguments.__dataclass_fields__}
    assert set(SHORT_NAMES.values()) <= known
