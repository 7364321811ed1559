"""Check names and values of the Trainer's arguments. This module does not need transformers.

The names and types are in `argument_types.json`. This file is made from four sources: TrainingArguments of transformers, the
built-in trainer's own arguments, trl, and the configuration classes of common models. `tests/integration/test_values_table.py`
writes the file and compares it with the installed packages. The names of older versions, of fms-hf-tuning, Thunder and pytest-
benchmark are added to the file by hand. The built-in trainer accepts only known names and `model_config.NAME`. The NAME is not
checked; it becomes a field of the model's configuration. The lists for trl, fms_hf_tuning and thunder may be incomplete, so for
these trainers only an obvious typing error is a mistake. All remaining trainers accept any name. A user's script most likely
passes its arguments to the Trainer, so a likely typing error gives a note.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.records import Text

TYPES_FILE = Path(__file__).with_name("argument_types.json")
ON_TRAINING_ARGUMENTS = ("huggingface", "trl", "trl_dpo", "fms_hf_tuning")
SCRIPT = "script"
WHOLE, NUMBER, TRUTH, ANY = "a whole number", "a number", "true or false", "any"
YES, NO = ("true", "yes", "on"), ("false", "no", "off")
_OTHERS_YES_NO = (*YES, *NO, "t", "y", "1", "f", "n", "0")
MODEL_CONFIG = "model_config."  # the rest of such a name is a field of the model's configuration
# Trainer → parts of `argument_types.json`. They have the names that it accepts besides those of today's Trainer.
_OWN_NAMES = {
    "huggingface": ("built-in trainer", "earlier transformers", "model configurations"),
    "trl": ("trl", "earlier transformers"),
    "trl_dpo": ("trl_dpo", "earlier transformers"),
    "fms_hf_tuning": ("fms_hf_tuning", "trl", "earlier transformers"),
    "thunder": ("thunder",),
    "pytest_benchmark": ("pytest_benchmark",),
}
# Trainers without the Trainer's arguments. Each has a part of the file with the types of its own arguments.
_WITH_OWN_TYPES = ("thunder", "pytest_benchmark")
_SHORTEST_SLIP = 4  # any shorter name is one typing error away from `r` or another short name
_SHORTEST_SLIP_IN_SCRIPT = 6  # a script may have its own `speed`, which is similar to the Trainer's `seed`


class Doubt(NamedTuple):
    """A name that may be unknown to the trainer, and the sentence that the user sees.

    If `certain` is true, the plan refuses the name. If `certain` is false, only the run shows whether the trainer knows the name.
    """

    sentence: str
    certain: bool


@cache
def _file() -> Mapping[str, Any]:
    parts: Mapping[str, Any] = json.loads(TYPES_FILE.read_text(encoding="utf-8"))
    return parts


def types(part: str) -> Mapping[str, str | list[str]]:
    """Return the arguments in a part of the file ("Trainer" or "built-in trainer"), each with its type or its allowed words."""
    types: Mapping[str, str | list[str]] = _file()[part]
    return types


@lru_cache(maxsize=4096)
def wrong(name: str, value: Text, trainer: str) -> str | None:
    """Return a description of the allowed values if this value is certainly wrong, else None."""
    own = trainer == "huggingface"
    if isinstance(value, tuple) and len(value) == 1:  # on the command line, such a list is the same as its item
        return wrong(name, value[0], trainer)
    if trainer in _WITH_OWN_TYPES:
        return _mismatch(types(trainer).get(name), value, own=False)
    if trainer not in ON_TRAINING_ARGUMENTS or value == "None":
        return None
    if value == () and not own:  # a flag without a value means yes for other trainers
        return None
    kind = types("Trainer").get(name) or (types("built-in trainer").get(name) if own else None)
    return _mismatch(kind, value, own=own)


def unlikely(name: str, value: Text, trainer: str) -> str | None:
    """Return a description of the allowed values if a script gets a value that the Trainer would refuse, else None.

    Only numbers and yes/no values are checked.
    """
    kind = types("Trainer").get(name) if trainer == SCRIPT and isinstance(value, str) and value != "None" else None
    return _mismatch(kind, value, own=False) if kind in (WHOLE, NUMBER, TRUTH) else None


def _mismatch(kind: str | list[str] | None, value: Text, *, own: bool) -> str | None:
    """Return a description of the allowed values if an argument of this kind does not accept this value, else None."""
    if isinstance(kind, list):
        return None if value in kind else f"one of {', '.join(kind)}"
    if kind == TRUTH:
        allowed = (*YES, *NO) if own else _OTHERS_YES_NO
        return None if isinstance(value, str) and value.lower() in allowed else kind
    if kind in (WHOLE, NUMBER):
        return None if _is_number(value, whole=kind == WHOLE) else kind
    return None


@lru_cache(maxsize=4096)
def doubt(name: str, trainer: str) -> Doubt | None:
    """Return the doubt about a name, or None if the trainer knows the name or accepts any name."""
    if trainer == SCRIPT:
        return _doubt_of_script(name)
    if trainer not in _OWN_NAMES or name in names(trainer):
        return None
    own = trainer == "huggingface"
    if own and name.startswith(MODEL_CONFIG):
        return None
    near = _file()["short names"].get(name) if own else None
    near = near or next(iter(get_close_matches(name, sorted(names(trainer)), n=1, cutoff=0.6)), None)
    if own:
        cure = f"write {near}, or {MODEL_CONFIG}{name}" if near else f"write {MODEL_CONFIG}{name}"
        missing = f"neither the trainer nor the model's configuration has an argument {name!r}"
        return Doubt(f"{missing}; {cure} to pass it on unchecked", certain=True)
    slip = next((known for known in sorted(names(trainer)) if _one_slip(name, known)), None)
    if slip:
        return Doubt(f"trainer {trainer} has no argument {name!r}; write {slip}", certain=True)
    hint = f"; did you mean {near}?" if near else ""
    sentence = f"{name} is not an argument that Tunebench knows of trainer {trainer}, which gets it unchecked{hint}"
    return Doubt(sentence, certain=False)


def _doubt_of_script(name: str) -> Doubt | None:
    """Return a doubt if the name is probably a misspelt argument of the Trainer, else None."""
    if len(name) < _SHORTEST_SLIP_IN_SCRIPT or any(name in names(trainer) for trainer in _OWN_NAMES):
        return None
    near = next((known for known in sorted(types("Trainer")) if _one_slip(name, known)), None)
    sentence = f"{name} is not an argument of the Trainer; did you mean {near}? Your script may have {name} itself"
    return Doubt(sentence, certain=False) if near else None


@cache
def names(trainer: str) -> frozenset[str]:
    """Return the known names of a trainer's arguments."""
    lists = (_file()[part] for part in _OWN_NAMES[trainer])
    parts = (part.split() if isinstance(part, str) else part for part in lists)
    of_the_trainer = () if trainer in _WITH_OWN_TYPES else types("Trainer")
    return frozenset(of_the_trainer).union(*parts)


def _one_slip(word: str, known: str) -> bool:
    """Return whether two names differ by one typing error: a letter is added, missing or replaced, or two letters are swapped."""
    if len(word) < _SHORTEST_SLIP or abs(len(word) - len(known)) > 1:
        return False
    at = next((at for at, pair in enumerate(zip(word, known, strict=False)) if pair[0] != pair[1]), None)
    if at is None:  # one name is the beginning of the other name
        return word != known
    swapped = word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :]
    rests = (word[at + 1 :], known[at + 1 :]), (word[at:], known[at + 1 :]), (word[at + 1 :], known[at:])
    return swapped == known or any(rest == other for rest, other in rests)


def known(arguments: Collection[str]) -> list[str]:
    """Return the arguments that `wrong` can judge, in their order."""
    return [name for name in arguments if name in _names()]


@cache
def _names() -> frozenset[str]:
    return frozenset(name for part in ("Trainer", "built-in trainer", *_WITH_OWN_TYPES) for name in types(part))


def _is_number(value: Text, *, whole: bool) -> bool:
    try:
        number = float(value) if isinstance(value, str) else float("nan")
    except ValueError:
        return False
    return number.is_integer() if whole else number == number
