"""The commands that lock and install packages: those of uv, and those of pip and venv if there is no uv. Pure, except `find`."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from orchestrator.machine.environments.places import Place
from orchestrator.machine.environments.request_digest import entries
from orchestrator.records.environment import EnvironmentRequest

_NAMED = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(\[[^\]]*\])?\s*@")
# The packages whose import fails if their builds do not belong together. The solver cannot see that.
_IMPORTED = ("torch", "torchvision", "torchaudio")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command of a build. `what` completes the sentence "… failed"."""

    what: str
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Uv:
    """The commands of uv. `argv` starts uv, and `options` say where packages come from."""

    argv: tuple[str, ...]
    options: tuple[str, ...] = ()
    name: str = field(default="uv", init=False)

    def version(self, place: Place) -> tuple[str, ...]:
        """Return a command whose output has the version of the tool as its second word."""
        return (*self.argv, "--version")

    def steps(self, request: EnvironmentRequest, place: Place) -> list[Step]:
        """Return the steps of a build: lock (unless the lock is given), make the folder, install the lock, check."""
        fresh, python = _fresh(request), request.python or sys.executable
        lock = ("pip", "compile", "--generate-hashes", "--no-header", "--python", python, *self.options, *fresh)
        limits = ("--constraints", place.constraints.name) if request.constraints else ()
        replaced = ("--overrides", place.overrides.name) if request.overrides else ()
        files = (place.requirements.name, *limits, *replaced, "--output-file", place.locked.name)
        into = ("--python", str(place.interpreter))
        steps = [] if request.lock is not None else [Step(what="locking its packages", argv=(*lock, *files))]
        steps += [
            Step(what="making its folder", argv=("venv", "--no-project", "--python", python, str(place.venv))),
            Step(what="installing its packages", argv=("pip", "sync", *self.options, *fresh, *into, place.locked.name)),
        ]
        if not request.overrides:  # the check would find the requirements that were replaced
            steps.append(Step(what="checking its packages", argv=("pip", "check", *into)))
        return [Step(what=step.what, argv=(*self.argv, *step.argv)) for step in steps]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pip:
    """The commands of venv and pip, in place of uv's."""

    name: str = field(default="pip", init=False)

    def version(self, place: Place) -> tuple[str, ...]:
        """Return a command whose output has the version of the tool as its second word."""
        return (str(place.interpreter), "-m", "pip", "--version")

    def steps(self, request: EnvironmentRequest, place: Place) -> list[Step]:
        """Return the steps of a build: make the folder, install, check. pip cannot lock before it installs."""
        file = place.requirements if request.lock is None else place.locked
        pip = (str(place.interpreter), "-m", "pip")
        return [
            Step(
                what="making its folder",
                argv=(request.python or sys.executable, "-m", "venv", str(place.venv)),
            ),
            Step(what="installing its packages", argv=(*pip, "install", "--no-input", "--requirement", file.name)),
            Step(what="checking its packages", argv=(*pip, "check")),
        ]

    def freeze(self, place: Place) -> tuple[str, ...]:
        """Return the command whose output is the lock of a finished build."""
        return (str(place.interpreter), "-m", "pip", "freeze")


def find(options: tuple[str, ...]) -> Uv | Pip:
    """Return uv if this machine has it, else pip. `options` are uv's options about indexes."""
    if program := shutil.which("uv"):
        return Uv(argv=(program,), options=options)
    if importlib.util.find_spec("uv") is not None:
        return Uv(argv=(sys.executable, "-P", "-m", "uv"), options=options)
    return Pip()


def import_check(packages: Mapping[str, str], place: Place) -> list[Step]:
    """Return a step that imports torch and its companions. If torch is not installed, it only starts the interpreter."""
    names = [name for name in _IMPORTED if name in packages]
    what, text = ("importing torch", f"import {', '.join(names)}") if "torch" in names else ("starting its Python", "")
    return [Step(what=what, argv=(str(place.interpreter), "-c", text))]


def _fresh(request: EnvironmentRequest) -> tuple[str, ...]:
    """Return the options that keep uv from installing a wheel of an earlier content of a local package.

    uv's cache notices only changes of `pyproject.toml` and `setup.py`.
    """
    names = set()
    for path in request.folders:
        name = next((_NAMED.match(entry) for entry in entries(request.requirements) if path in unquote(entry)), None)
        if name is None:
            return ("--refresh",)  # the package's own name is known only to its build
        names.add(name["name"])
    return tuple(word for name in sorted(names) for word in ("--refresh-package", name))
