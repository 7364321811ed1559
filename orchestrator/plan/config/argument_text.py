"""What a YAML value becomes on its way to a trainer: the text of one argument, or the texts of a list.

The rule is the reference's: `str()` of what YAML 1.1 makes of the value, so that `2e-5` stays as written (it is text
there), `2.0e-5` becomes `2e-05`, `yes` becomes `True`; a list becomes its items; null takes the argument away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.records import Text


def argument_text(value: Any) -> Text | None:
    """The text that a trainer receives for `value`, the texts of its items, or None where the argument is taken away."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return tuple(str(item) for item in value)
    return str(value)


def argument_texts(values: Mapping[str, Any]) -> dict[str, Text | None]:
    """`argument_text` for each value of a mapping, in its order."""
    return {name: argument_text(value) for name, value in values.items()}


def shown(value: object) -> str:
    """A value as it may be named in a sentence: in YAML's words, and short."""
    if value is None:
        return "a blank (null)"
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


_ENCODER = json.JSONEncoder(sort_keys=True, default=str)


def canonical(value: Any) -> str:
    """One text for one content, whatever the order of its keys: what a digest is taken over."""
    try:
        return _ENCODER.encode(value)
    except TypeError:  # keys of several types, or of a type that JSON has not
        return _ENCODER.encode(_text_keys(value))


def _text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {f"{type(key).__name__} {key}": _text_keys(item) for key, item in value.items()}
    return [_text_keys(item) for item in value] if isinstance(value, (list, tuple)) else value
