"""The list of all cases, and the decorator that adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from attack_cases.scene import Scene

Attack = Callable[..., None]


class Skipped(Exception):
    """An error for a case that cannot run on this machine; its text says what is missing."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case with a name that is unique: its area, its function, its parameters."""

    name: str
    attack: Callable[[Scene], None]


CASES: list[Case] = []


def case(**parameters: Iterable[Any]) -> Callable[[Attack], Attack]:
    """Register a function as a case for each combination of the parameters' values.

    The function gets the scene, then the values by name. A parameter that is a mapping gives its keys to the case's name and its
    values to the function.
    """

    def register(attack: Attack) -> Attack:
        area = attack.__module__.rpartition(".")[2]
        for values in product(*map(_named, parameters.values())):
            given = {name: value for name, (_, value) in zip(parameters, values, strict=True)}
            shown = ",".join(label for label, _ in values)
            name = f"{area}.{attack.__name__}" + (f"[{shown}]" if shown else "")
            assert name not in {one.name for one in CASES}, name
            CASES.append(Case(name=name, attack=partial(attack, **given)))
        return attack

    return register


def _named(values: Iterable[Any]) -> list[tuple[str, Any]]:
    if isinstance(values, dict):
        return [(str(name), value) for name, value in values.items()]
    return [(str(getattr(value, "name", value)), value) for value in values]
