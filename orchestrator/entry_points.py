"""Registries of plugs: trainers, monitors and executors.

A plug is either built in, or another package installs it under an entry-point group. Entry points are loaded only when the
program looks for a name that no built-in plug has. If a plug fails to load, its name is reported and the program continues. An
installed plug cannot take the name of a built-in plug.

An installed plug is checked: its attributes when it is loaded, and the answers of its methods when they are asked. They must have
the types that the interface says. `raised_by` names an installed plug whose code raised an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from functools import cache, wraps
from inspect import getattr_static, isfunction
from traceback import walk_tb
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

from orchestrator.errors import SelectionError, suggestion
from orchestrator.files.printable_text import quoted

P = TypeVar("P")
GROUPS = {"tunebench.trainers": "trainer", "tunebench.monitors": "monitor", "tunebench.executors": "executor"}
_LONGEST = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Registry(Generic[P]):
    """The plugs of one kind, by name: the built-in plugs (`ours`), and those that other packages installed under `group`."""

    kind: type
    group: str
    ours: Mapping[str, P]

    def get(self, name: str) -> P:
        """Return the plug with that name.

        If there is none, raise SelectionError; the error lists all names and all load problems.
        """
        plug = self.find(name)
        if plug is None:
            unknown = f"unknown {self.kind.__name__.lower()} {name!r}{suggestion(name, self.names())}"
            raise SelectionError(". ".join([unknown, *self.load_problems()]))
        return plug

    def find(self, name: str) -> P | None:
        """Return the plug with that name, or None."""
        return self.ours[name] if name in self.ours else self._installed()[0].get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all plugs, built-in plugs first."""
        return (*self.ours, *sorted(self._installed()[0]))

    def load_problems(self) -> tuple[str, ...]:
        """Return a sentence for each installed plug that cannot be used."""
        return self._installed()[1]

    def _installed(self) -> tuple[Mapping[str, P], tuple[str, ...]]:
        return _installed(self.group, self.kind, frozenset(self.ours))


@cache
def _installed(group: str, kind: type, ours: Iterable[str]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    from importlib.metadata import entry_points  # takes 20 ms; built-in names do not need it

    noun = kind.__name__.lower()
    plugs: dict[str, Any] = {}
    problems: list[str] = []
    for point in entry_points(group=group):
        if point.name in ours:
            problems.append(f"The installed {noun} '{point.name}' ({point.value}) has the name of a built-in {noun}.")
            continue
        try:
            loaded = point.load()
            plug = loaded() if isinstance(loaded, type) else loaded
        except (
            Exception
        ) as error:  # code of another package may raise anything, and Tunebench continues without the plug
            problems.append(f"The {noun} '{point.name}' ({point.value}) could not be loaded: {error!r}.")
            continue
        if not isinstance(plug, kind):
            problems.append(
                f"The {noun} '{point.name}' ({point.value}) does not implement {kind.__name__}: see docs/add-a-plug.md."
            )
            continue
        try:
            _check(plug, kind, f"the {noun} {point.name!r}")
            plugs[point.name] = plug
        except Exception as error:
            why = str(error) if isinstance(error, ValueError) else repr(error)
            problems.append(f"The {noun} '{point.name}' ({point.value}) could not be loaded: {why}.")
    return plugs, tuple(problems)


class WrongAnswer(TypeError):
    """An installed plug gave an answer that its interface does not allow. The text is a sentence for people."""


def _check(plug: Any, kind: type, name: str) -> None:
    """Check an installed plug by the annotations of its interface. Raise ValueError for an attribute of a wrong type.

    Each method is replaced by one that raises WrongAnswer for an answer of a wrong type. Sequences are not checked, since any
    iterable will do, and their readers look at each item.
    """
    for attribute, hint in get_type_hints(kind).items():
        if hasattr(type(plug), attribute) and not isinstance(getattr_static(plug, attribute), property):
            object.__setattr__(plug, attribute, _as_type(hint, getattr(plug, attribute), attribute))
    for method, function in vars(kind).items():
        hint = get_type_hints(function).get("return") if isfunction(function) else None
        if not method.startswith("_") and hint is not None and get_origin(hint) not in (Sequence, Iterator):
            own = getattr(plug, method)
            object.__setattr__(plug, method, _checked(own, hint, f"{name}, which is not part of Tunebench: {method}"))


def _checked(method: Callable[..., Any], hint: Any, name: str) -> Callable[..., Any]:
    @wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        answer = method(*args, **kwargs)
        if isinstance(answer, Iterator):
            answer = [*answer]  # an error in a generator is the plug's own
        try:
            return _as_type(hint, answer, "its answer")
        except ValueError as error:
            raise WrongAnswer(f"{name} is wrong: {error}; correct it there, or use another plug") from None

    return checked


def _as_type(hint: Any, value: Any, name: str) -> Any:
    """Return the value as the type of a hint. Raise ValueError with the place of the first part that has another type."""
    from pydantic import ValidationError

    try:
        return _adapter(hint).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, (name, *first["loc"])))
        raise ValueError(f"{place} is {quoted(first['input'])}: {first['msg']}") from None


@cache
def _adapter(hint: Any) -> Any:
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(hint, config=None if is_dataclass(hint) else ConfigDict(arbitrary_types_allowed=True))


def raised_by(error: BaseException) -> str | None:
    """Return a sentence about an error in the code of an installed plug: its last line there, the plug, and the error.

    Return None if no plug was called. A plug's code is its package, because a plug may use other modules of its package. A package
    whose own files are damaged cannot be asked for plugs. The sentence names it, even if another library asked.
    """
    if isinstance(error, WrongAnswer):
        return str(error)
    if damaged := _damaged_package(error):
        return damaged
    plugs: list[tuple[str, str]] = []
    with suppress(Exception):  # a package may have damaged files, and the error has another cause
        plugs = [*_plugs_by_module()]
    called = [(frame.f_globals.get("__name__", ""), frame, line) for frame, line in walk_tb(error.__traceback__)]
    for name, frame, line in reversed(called):
        package = name.partition(".")[0]
        alike = [(module, plug) for module, plug in plugs if module.partition(".")[0] == package]
        if alike:
            modules = {name for name, _, _ in called}
            plug = next((plug for module, plug in alike if module in modules), alike[0][1])
            what = " ".join(f"{type(error).__name__}: {_text(error)}".split()).removesuffix(":")[:_LONGEST]
            place = f"{frame.f_code.co_filename}:{line}"
            return (
                f"{place}: {plug}, which is not part of Tunebench, raised {what}; correct it there, or use another plug"
            )
    return None


def _damaged_package(error: BaseException) -> str | None:
    """Return a sentence about the installed package whose files `importlib.metadata` could not interpret, or None."""
    from importlib.metadata import Distribution

    if isinstance(error, (OSError, MemoryError)):  # such as too many open files: the package may be right
        return None
    for frame, _ in walk_tb(error.__traceback__):
        package = frame.f_locals.get("self")
        if isinstance(package, Distribution):
            name, folder = None, package.locate_file("")
            with suppress(Exception):
                name = package.metadata["Name"]
            why = " ".join(f"{type(error).__name__}: {_text(error)}".split())[:_LONGEST]
            return (
                f"{folder}: the package {quoted(name or 'unknown')} there has damaged files ({why}); install it again"
            )
    return None


def _text(error: BaseException) -> str:
    """Return the text of an error. The code of a plug may define an error that has none."""
    try:
        return str(error)
    except Exception:
        return ""


def _plugs_by_module() -> Iterator[tuple[str, str]]:
    """Yield the module and the name in words of each installed plug. Load none."""
    from importlib.metadata import entry_points

    for group, noun in GROUPS.items():
        for point in entry_points(group=group):
            yield point.module, f"the {noun} {point.name!r}"
