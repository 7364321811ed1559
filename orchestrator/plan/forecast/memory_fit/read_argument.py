"""Functions that read an argument's text as a word, a switch or a number, for an estimate. The trainer checks the types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.plan.forecast.memory_fit.shapes import LARGEST, NotKnown
from orchestrator.records import Text

_NOTHING = frozenset({"false", "no", "off", "none", "null", "", "0", "0.0", "default"})


def word(arguments: Mapping[str, Text], name: str) -> str | None:
    value = arguments.get(name)
    return value if isinstance(value, str) and value not in ("None", "") else None


def plain(value: Any) -> str:
    return "none" if value is None else str(value)


def is_off(value: Text) -> bool:
    return isinstance(value, str) and value.strip().lower() in _NOTHING


def whole(arguments: Mapping[str, Text], name: str, default: int | None) -> int:
    """Return a whole number of at least 1. It may be written as 1e3. Raises NotKnown for other values."""
    text = arguments.get(name, "" if default is None else str(default))
    try:
        number = float(text) if isinstance(text, str) else 0.0
    except ValueError:
        number = 0.0
    if not (1 <= number <= LARGEST and number.is_integer()):
        raise NotKnown(f"{name} is {text!r}" if text else f"no {name}")
    return int(number)
