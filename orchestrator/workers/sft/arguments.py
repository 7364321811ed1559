"""Reads the command line of the built-in trainer: its own arguments, fields of TrainingArguments, and fields of the model.

`parse` needs neither torch nor transformers: `sft.py` gives it the fields that exist. Values arrive as words, `--key item item`.
The annotation of the field decides the type of the value. A mistake gives one sentence, before any model is loaded.

This module does not use HfArgumentParser, because the words are `str()` of YAML values. HfArgumentParser refuses four kinds of such
words: `None`; `1e3` for a whole number; a mapping in Python's notation; `False` for the choice `no`.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import difflib
import enum
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict, List, Optional, Union

TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
# Common short names that differ too much from the real names to be guessed.
SHORT_NAMES = {"batch_size": "per_device_train_batch_size", "liger": "use_liger_kernel"}


class ArgumentError(Exception):
    """A mistake in the arguments, in one sentence."""

    __module__ = "builtins"  # the run's error then shows the name of this class without a module


@dataclasses.dataclass(frozen=True)
class Own:
    """The arguments that the built-in trainer adds to those of the Trainer."""

    model_name_or_path: str = ""
    training_data_path: str = ""
    dtype: str = "float32"
    attn_implementation: Optional[str] = None
    trust_remote_code: bool = False
    revision: Optional[str] = None
    weights: str = "drawn"
    weights_folder: str = ""
    packing: bool = False
    padding_free: bool = False
    max_seq_len: Optional[int] = None
    peft_method: str = "none"
    r: int = 8
    lora_alpha: float = 16
    lora_dropout: float = 0.0
    target_modules: Optional[List[str]] = None
    quantization: Optional[str] = None
    double_quantization: bool = False
    response_template: Optional[str] = None
    response_field: Optional[str] = None
    dataset_text_field: Optional[str] = None
    sdpa_backend: Optional[str] = None
    chunked_loss: bool = False
    activation_offloading: bool = False


CHOICES = {
    "dtype": ("float32", "bfloat16", "float16", "auto"),
    "peft_method": ("lora", "none"),
    "quantization": ("nf4", "fp4", "int8", "gptq"),
    "weights": ("drawn", "saved"),
    "sdpa_backend": ("flash", "efficient", "math", "cudnn"),
}
TYPE_WORDS: Dict[Any, str] = {
    **{bool: "True or False", int: "a whole number", float: "a number"},
    **{str: "a text", dict: "a mapping as JSON", list: "a list"},
}
REQUIRED = ("model_name_or_path", "training_data_path")


class Parsed(typing.NamedTuple):
    """A command line in three parts. `model` has the words for the model's configuration, which are not yet converted."""

    own: Own
    training: Mapping[str, Any]
    model: Mapping[str, Sequence[str]]


def words_by_name(argv: Sequence[str]) -> dict[str, list[str]]:
    """Return the words of each argument by name, from `--key item item` or `--key=value`. Refuse a repeated key."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in argv:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            if name in found:
                raise ArgumentError(f"the argument --{name} is given twice; give it once.")
            current = found[name] = [value] if equals else []
        elif current is None:
            raise ArgumentError(f"{word!r} comes before any --argument; write --name value.")
        else:
            current.append(word)
    return found


def parse(argv: Sequence[str], training_fields: Mapping[str, Any]) -> Parsed:
    """Return the command line with typed values. `training_fields` maps TrainingArguments' fields to their types."""
    own_types = typing.get_type_hints(Own)
    own: dict[str, Any] = {}
    training: dict[str, Any] = {}
    model: dict[str, list[str]] = {}
    for name, words in words_by_name(argv).items():
        if name in own_types:
            own[name] = convert(name, words, own_types[name])
        elif name in training_fields:
            training[name] = convert(name, words, training_fields[name])
        elif name in SHORT_NAMES:
            raise ArgumentError(f"unknown argument --{name}; here it is called --{SHORT_NAMES[name]}.")
        else:
            model[name] = words
    check_own(own)
    return Parsed(own=Own(**own), training=training, model=model)


def check_own(own: Mapping[str, Any]) -> None:
    """Refuse the built-in trainer's own arguments if one is missing or out of range, or if two exclude each other."""
    for name in REQUIRED:
        if not own.get(name):
            raise ArgumentError(f"--{name} is missing; it is needed for every run.")
    for name, allowed in CHOICES.items():
        if own.get(name) is not None and own[name] not in allowed:
            raise ArgumentError(f"--{name} is {own[name]!r}; allowed are {', '.join(allowed)}.")
    if own.get("max_seq_len") is not None and own["max_seq_len"] < 2:
        raise ArgumentError(f"--max_seq_len is {own['max_seq_len']}; give 2 or more, or leave it out.")
    if own.get("quantization") and own.get("peft_method", "none") == "none":
        raise ArgumentError(
            "--quantization without --peft_method lora: quantised weights do not train; add the adapter."
        )
    if own.get("double_quantization") and own.get("quantization") not in ("nf4", "fp4"):
        raise ArgumentError(
            "--double_quantization needs --quantization nf4 or fp4: it quantises the scales of these formats."
        )
    if own.get("packing") and own.get("padding_free"):
        raise ArgumentError("--packing and --padding_free exclude each other: packed rows have no padding; choose one.")
    if own.get("sdpa_backend") and own.get("attn_implementation") not in (None, "sdpa"):
        raise ArgumentError(
            f"--sdpa_backend needs --attn_implementation sdpa, and it is {own['attn_implementation']!r}; leave one out."
        )
    if own.get("packing") and not own.get("max_seq_len"):
        raise ArgumentError("--packing needs --max_seq_len, the length that rows are packed to.")


def check_unknown(names: Iterable[str], known: Iterable[str], *, what: str) -> None:
    """Raise ArgumentError for a name that neither the trainer nor `what` knows. The error names the nearest known name."""
    for name in names:
        near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
        hint = f"did you mean --{near[0]}?" if near else "remove it, or look at the list in TrainingArguments."
        raise ArgumentError(f"unknown argument --{name}: neither the trainer nor {what} has it; {hint}")


# --- one value -------------------------------------------------------------------------------------------------------


def convert(name: str, words: Sequence[str], kind: Any) -> Any:
    """Return the words of one argument as a value of its type, or raise ArgumentError.

    TrainingArguments checks the words of an enumeration itself.
    """
    is_union = typing.get_origin(kind) in (Union, getattr(types, "UnionType", Union))
    members = typing.get_args(kind) if is_union else (kind,)
    plain = [typing.get_origin(member) or member for member in members]
    if list in plain and (len(words) != 1 or str not in plain):
        return as_list(name, words, members[plain.index(list)])
    if len(words) != 1:
        what = "no value" if not words else f"{len(words)} values"
        raise ArgumentError(f"--{name} got {what}; it takes one, {describe(plain)}.")
    text = words[0]
    if text == "None" and type(None) in plain:
        return None
    if bool in plain and text.lower() in TRUE + FALSE:
        return text.lower() in TRUE
    if dict in plain and isinstance(mapping := literal(text), dict):
        return mapping
    if {int, float} & {*plain} and (number := as_number(text, whole=float not in plain)) is not None:
        return number
    if any(isinstance(member, type) and issubclass(member, enum.Enum) for member in plain):
        return "no" if text.lower() == "false" else text  # YAML 1.1 reads `no` as False
    if str in plain or typing.Literal in plain:
        return text
    raise ArgumentError(f"--{name} is {text!r}; it takes {describe(plain)}.")


def as_list(name: str, words: Sequence[str], kind: Any) -> List[Any]:
    """Return a list of this kind. Either each word is an item, or one word is the whole list in JSON or Python notation."""
    items = literal(words[0]) if len(words) == 1 and words[0].startswith("[") else list(words)
    if not isinstance(items, list):
        raise ArgumentError(f"--{name} is {words[0]!r}, which is not a list; give its items one after the other.")
    inner = (typing.get_args(kind) or (str,))[0]
    return [convert(name, [str(item)], inner) for item in items]


def as_number(text: str, *, whole: bool) -> Union[int, float, None]:
    """Return the text as a number, or None if it is not a number. A whole number may be written as 1e3."""
    with contextlib.suppress(ValueError, OverflowError):
        if not whole:
            return float(text)
        with contextlib.suppress(ValueError):
            return int(text)
        return int(float(text)) if float(text).is_integer() else None
    return None


def literal(text: str) -> Any:
    """Return the value of a text in JSON or Python notation, or None for any other text."""
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError):
            return read(text)
    return None


def describe(kinds: Iterable[Any]) -> str:
    """Return a description of the values that these types accept."""
    return " or ".join(TYPE_WORDS[kind] for kind in kinds if kind in TYPE_WORDS) or "another value"
