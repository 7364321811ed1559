"""The text of an argument for a trainer, made from its YAML value.

The text is `str()` of the YAML 1.1 value, as in the reference system: `2e-5` is a text and stays as written, `2.0e-5`
becomes `2e-05`, `yes` becomes `True`. A list becomes the texts of its items; null removes the argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import named_secrets, redact_values
from orchestrator.records import Text

_LONGEST = 60


def argument_text(value: Any) -> Text | None:
    """Return the text that a trainer receives for `value`. A list gives a sequence of texts, and null gives None."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(str(item) for item in value)
    return str(value)


def argument_texts(values: Mapping[str, Any]) -> dict[str, Text | None]:
    """Return a mapping with the same names. Each value is replaced by its `argument_text`."""
    return {name: argument_text(value) for name, value in values.items()}


def shown(value: object, *, of: str = "") -> str:
    """Return a value for an error message, written as in YAML and cut if it is long. `of` is its name, which may be a secret's."""
    if value is None:
        return "a blank (null)"
    text = str(value).lower() if isinstance(value, bool) else redact_values(repr(value), named_secrets(value, of))
    return text if len(text) <= _LONGEST else one_line(text, longest=_LONGEST)


def as_yaml(value: object) -> str:
    """Return a value as it may be written in a YAML file: `null`, `true`, `[q_proj, v_proj]`. A text has no quotes."""
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_yaml, value))}]"
    text = str(value)
    return text.lower() if text in ("True", "False") else text


_ENCODER = json.JSONEncoder(sort_keys=True, default=str)


def canonical(value: Any) -> str:
    """Return a value as the text for a digest. The order of keys does not change the text."""
    try:
        return _ENCODER.encode(value)
    except TypeError:  # keys of several types, or of a type that JSON does not have
        return _ENCODER.encode(_text_keys(value))


def _text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {f"{type(key).__name__} {key}": _text_keys(item) for key, item in value.items()}
    return [_text_keys(item) for item in value] if isinstance(value, (list, tuple)) else value
