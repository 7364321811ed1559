"""A secret that was found in a text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """A secret in a text: its position, its kind in words, and the environment variable that contains it, if any."""

    start: int
    end: int
    what: str
    variable: str | None = None
