"""Plugs of third parties: what is installed under an entry-point group, loaded when something is named that is not ours.

One that fails to load is reported by its name and never stops the program; one with the name of ours is not used. Which plugs
are ours, and what is said where there is none, is the packages' own (`trainers`, `monitors`, `executors`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

Plugs = Mapping[str, Any]


def installed(group: str, kind: type, *, ours: Iterable[str]) -> tuple[Plugs, tuple[str, ...]]:
    """The plugs of this kind by name, and a sentence for each that is there and can't be used. Loaded once."""
    return _installed(group, kind, frozenset(ours))


@cache
def _installed(group: str, kind: type, ours: frozenset[str]) -> tuple[Plugs, tuple[str, ...]]:
    from importlib.metadata import entry_points  # costs 20 ms, paid only when something is named that is not ours

    noun = kind.__name__.lower()
    found: dict[str, Any] = {}
    problems: list[str] = []
    for point in entry_points(group=group):
        if point.name in ours:
            problems.append(f"The installed {noun} '{point.name}' ({point.value}) has the name of a built-in one.")
            continue
        try:
            loaded = point.load()
            plug = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:  # anything may be wrong in a third party's code, and none of it is ours to die of
            problems.append(f"The {noun} '{point.name}' ({point.value}) could not be loaded: {error!r}.")
            continue
        if isinstance(plug, kind):
            found[point.name] = plug
        else:
            problems.append(f"The {noun} '{point.name}' ({point.value}) is no {kind.__name__}: see docs/add-a-plug.md.")
    return found, tuple(problems)
