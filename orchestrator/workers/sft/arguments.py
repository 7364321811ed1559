"""The words of the command line as typed values: the built-in trainer's own arguments and all TrainingArguments.

`parse` is pure and knows nothing of torch or transformers; `sft.py` hands it the fields that exist. Values arrive as
`--key item item`: text, of which the type is settled here by the field's annotation. What is wrong is told in one
sentence, before any model is loaded. Abbreviations are refused: `--adam_eps` is not `--adam_epsilon`.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import enum
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict, List, Optional, Union

TRUE, FALSE = ("true", "yes", "on"), ("false", "no", "off")
# Names that people bring from elsewhere, and what they are called here.
KNOWN_AS = {
    "torch_dtype": "dtype",
    "evaluation_strategy": "eval_strategy",
    "use_flash_attn": "attn_implementation",
    "max_seq_length": "max_seq_len",
    "max_length": "max_seq_len",
    "lora_r": "r",
    "lora_target_modules": "target_modules",
    "no_cuda": "use_cpu",
    "include_tokens_per_second": "include_num_input_tokens_seen",
    "load_in_4bit": "quantization",
    "load_in_8bit": "quantization",
    "dataset_name": "training_data_path",
    "liger": "use_liger_kernel",
    "use_liger": "use_liger_kernel",
    "batch_size": "per_device_train_batch_size",
    "per_device_batch_size": "per_device_train_batch_size",
}


class ArgumentError(Exception):
    """A mistake in the arguments, as one sentence."""

    __module__ = "builtins"  # shown by its bare name in the run's error


@dataclasses.dataclass(frozen=True)
class Own:
    """The arguments that are the built-in trainer's, not the Trainer's."""

    model_name_or_path: str = ""
    training_data_path: str = ""
    dtype: str = "float32"
    attn_implementation: Optional[str] = None
    trust_remote_code: bool = False
    revision: Optional[str] = None
    packing: bool = False
    padding_free: bool = False
    max_seq_len: Optional[int] = None
    peft_method: str = "none"
    r: int = 8
    lora_alpha: float = 16
    lora_dropout: float = 0.0
    target_modules: Optional[List[str]] = None
    quantization: Optional[str] = None
    response_template: Optional[str] = None
    response_field: Optional[str] = None
    dataset_text_field: Optional[str] = None


CHOICES = {
    "dtype": ("float32", "bfloat16", "float16", "auto"),
    "peft_method": ("lora", "none"),
    "quantization": ("nf4", "fp4", "int8", "gptq"),
}
REQUIRED = ("model_name_or_path", "training_data_path")


@dataclasses.dataclass(frozen=True)
class Parsed:
    """`training` are TrainingArguments' fields; `model` what is left for the model's configuration, not yet typed."""

    own: Own
    training: Mapping[str, Any]
    model: Mapping[str, Sequence[str]]


def words_by_name(argv: Sequence[str]) -> dict[str, list[str]]:
    """`--key item item` as a mapping. `--key=value` and `--some-key` are understood; a key twice is a mistake."""
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
            raise ArgumentError(f"{word!r} stands before any --argument; write --name value.")
        else:
            current.append(word)
    return found


def parse(argv: Sequence[str], training_fields: Mapping[str, Any]) -> Parsed:
    """The command line, typed. `training_fields` maps TrainingArguments' field names to their types."""
    own_types = typing.get_type_hints(Own)
    own: dict[str, Any] = {}
    training: dict[str, Any] = {}
    model: dict[str, list[str]] = {}
    for name, words in words_by_name(argv).items():
        if name in own_types:
            own[name] = convert(name, words, own_types[name])
        elif name in training_fields:
            training[name] = convert(name, words, training_fields[name])
        elif name in KNOWN_AS:
            raise ArgumentError(f"unknown argument --{name}; here it is called --{KNOWN_AS[name]}.")
        else:
            model[name] = words
    check_own(own)
    return Parsed(own=Own(**own), training=training, model=model)


def check_own(own: Mapping[str, Any]) -> None:
    for name in REQUIRED:
        if not own.get(name):
            raise ArgumentError(f"--{name} is missing; it is needed for every run.")
    for name, allowed in CHOICES.items():
        if own.get(name) is not None and own[name] not in allowed:
            raise ArgumentError(f"--{name} is {own[name]!r}; allowed are {', '.join(allowed)}.")
    if own.get("max_seq_len") is not None and own["max_seq_len"] < 2:
        raise ArgumentError(f"--max_seq_len is {own['max_seq_len']}; give 2 or more, or leave it out.")
    if own.get("quantization") and own.get("peft_method", "none") == "none":
        raise ArgumentError("--quantization without --peft_method lora: quantised weights can't be trained themselves.")
    if own.get("packing") and own.get("padding_free"):
        raise ArgumentError("--packing and --padding_free exclude each other; packed rows have no padding. Choose one.")
    if own.get("packing") and not own.get("max_seq_len"):
        raise ArgumentError("--packing needs --max_seq_len, the length that rows are packed to.")


def check_unknown(names: Iterable[str], known: Iterable[str], *, what: str) -> None:
    """Refuses names that nothing answers to, with the nearest that does."""
    everything = sorted(set(known))
    for name in names:
        near = difflib.get_close_matches(name, everything, n=1, cutoff=0.6)
        hint = f"did you mean --{near[0]}?" if near else "remove it, or look at the list in TrainingArguments."
        raise ArgumentError(f"unknown argument --{name}: neither the trainer nor {what} has it; {hint}")


# --- one value -------------------------------------------------------------------------------------------------------


def alternatives(kind: Any) -> list[Any]:
    """The members of a union, or the type itself."""
    origin = typing.get_origin(kind)
    if origin is Union or origin is getattr(types, "UnionType", Union):
        return [one for member in typing.get_args(kind) for one in alternatives(member)]
    return [kind]


def convert(name: str, words: Sequence[str], kind: Any) -> Any:
    """The words of one argument as a value of its type. Raises ArgumentError, naming the argument and what it takes."""
    members = alternatives(kind)
    lists = [member for member in members if (typing.get_origin(member) or member) is list]
    if lists and (len(words) != 1 or str not in members):
        inner = (typing.get_args(lists[0]) or (str,))[0]
        items = literal(words[0]) if len(words) == 1 and words[0].startswith("[") else list(words)
        if not isinstance(items, list):
            raise ArgumentError(f"--{name} is {words[0]!r}, which is not a list; give its items one after the other.")
        return [convert(name, [str(item)], inner) for item in items]
    if len(words) != 1:
        what = "no value" if not words else f"{len(words)} values"
        raise ArgumentError(f"--{name} got {what}; it takes one, {describe(members)}.")
    for attempt in (as_nothing, as_bool, as_int, as_float, as_choice, as_mapping, as_text):
        done, value = attempt(words[0], members)
        if done:
            return value
    raise ArgumentError(f"--{name} is {words[0]!r}; it takes {describe(members)}.")


Attempt = typing.Tuple[bool, Any]
NO: Attempt = (False, None)


def as_nothing(text: str, members: Sequence[Any]) -> Attempt:
    return (True, None) if text == "None" and type(None) in members else NO


def as_bool(text: str, members: Sequence[Any]) -> Attempt:
    if bool in members and text.lower() in TRUE + FALSE:
        return True, text.lower() in TRUE
    return NO


def as_int(text: str, members: Sequence[Any]) -> Attempt:
    """Whole numbers, also written as 1e3, unless the field would rather have a float."""
    if int not in members:
        return NO
    try:
        return True, int(text)
    except ValueError:
        done, value = as_float(text, [float])
        whole = done and value.is_integer() and float not in members
        return (True, int(value)) if whole else NO


def as_float(text: str, members: Sequence[Any]) -> Attempt:
    if float not in members:
        return NO
    try:
        return True, float(text)
    except ValueError:
        return NO


def is_choice(member: Any) -> bool:
    return typing.get_origin(member) is None and isinstance(member, type) and issubclass(member, enum.Enum)


def as_choice(text: str, members: Sequence[Any]) -> Attempt:
    """A word of an enumeration, as text. `False` stands for `no`: YAML makes the one of the other."""
    for member in members:
        if is_choice(member):
            words = [str(choice.value) for choice in member]
            word = "no" if text.lower() == "false" and "no" in words else text
            return (True, word) if word in words else NO
    return NO


def as_mapping(text: str, members: Sequence[Any]) -> Attempt:
    """A dict as JSON or as a Python literal."""
    if any((typing.get_origin(member) or member) is dict for member in members) and text.lstrip().startswith("{"):
        value = literal(text)
        return (True, value) if isinstance(value, dict) else NO
    return NO


def as_text(text: str, members: Sequence[Any]) -> Attempt:
    """Any text where text is meant; where it stands beside an enumeration, the enumeration has decided."""
    chosen = any(map(is_choice, members))
    plain = str in members or any(typing.get_origin(member) is typing.Literal for member in members)
    return (True, text) if plain and not chosen else NO


def literal(text: str) -> Any:
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return None


def describe(members: Sequence[Any]) -> str:
    """What the members of a union accept, in words."""
    names: Dict[Any, str] = {
        bool: "True or False",
        int: "a whole number",
        float: "a number",
        str: "a text",
        dict: "a mapping as JSON",
        list: "a list",
    }
    parts = []
    for member in members:
        if is_choice(member):
            return "one of " + ", ".join(str(choice.value) for choice in member)
        word = names.get(typing.get_origin(member) or member)
        if word and word not in parts:
            parts.append(word)
    return " or ".join(parts) or "another value"
