"""Check values of the Trainer's arguments without transformers: numbers, yes or no, a few words.

The names and types are data: `argument_types.json`, made from transformers' TrainingArguments and the built-in trainer's own
arguments. `tests/integration/test_values_table.py` writes that file and compares it with the installed transformers.
An argument that the file does not have is left to the trainer. A name that is close to a known name is reported, but allowed: it
may be the model's own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path

from orchestrator.records import Text

TYPES_FILE = Path(__file__).with_name("argument_types.json")
ON_TRAINING_ARGUMENTS = ("huggingface", "trl", "fms_hf_tuning")
WHOLE, NUMBER, TRUTH, ANY = "a whole number", "a number", "true or false", "any"
YES, NO = ("true", "yes", "on"), ("false", "no", "off")
_OTHERS_YES_NO = (*YES, *NO, "t", "y", "1", "f", "n", "0")
_NEAR = 0.85


@cache
def types(part: str) -> Mapping[str, str | list[str]]:
    """Return the arguments of a part, "Trainer" or "built-in trainer", each with its type or the words that it takes."""
    parts: Mapping[str, Mapping[str, str | list[str]]] = json.loads(TYPES_FILE.read_text(encoding="utf-8"))
    return parts[part]


@lru_cache(maxsize=4096)
def wrong(name: str, value: Text, trainer: str) -> str | None:
    """Return the values that the argument accepts if this value is certainly wrong, else None."""
    own = trainer == "huggingface"
    if isinstance(value, tuple) and len(value) == 1:  # it becomes the same words as its item
        return wrong(name, value[0], trainer)
    if trainer not in ON_TRAINING_ARGUMENTS or value == "None":
        return None
    if value == () and not own:  # a flag without a value, which other trainers take for yes
        return None
    kind = types("Trainer").get(name) or (types("built-in trainer").get(name) if own else None)
    if isinstance(kind, list):
        return None if value in kind else f"one of {', '.join(kind)}"
    if kind == TRUTH:
        allowed = (*YES, *NO) if own else _OTHERS_YES_NO
        return None if isinstance(value, str) and value.lower() in allowed else kind
    if kind in (WHOLE, NUMBER):
        return None if _is_number(value, whole=kind == WHOLE) else kind
    return None


@lru_cache(maxsize=4096)
def meant(name: str) -> str | None:
    """Return the argument of the built-in trainer that an unknown name is close to, or None."""
    near = [] if name in _names() else get_close_matches(name, _names(), n=1, cutoff=_NEAR)
    return near[0] if near else None


def known(arguments: Collection[str]) -> list[str]:
    """Return the arguments that `wrong` can judge, in their order."""
    return [name for name in arguments if name in _names()]


@cache
def _names() -> frozenset[str]:
    return frozenset({*types("Trainer"), *types("built-in trainer")})


def _is_number(value: Text, *, whole: bool) -> bool:
    try:
        number = float(value) if isinstance(value, str) else float("nan")
    except ValueError:
        return False
    return number.is_integer() if whole else number == number
