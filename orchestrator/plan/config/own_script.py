"""The user's script that a scenario names under `script:` or `module:`: its keys, its path, and the files that its arguments name.

Tunebench looks in the scenario file's folder for the script, and for the files that the script's arguments name. A module may
also be in a package of the training environment. Such a package is not checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from orchestrator.errors import suggestion
from orchestrator.plan.config.keys.scenario_keys import Scenario
from orchestrator.plan.config.yaml_file import YamlPath
from orchestrator.plan.identity.imports import on_path
from orchestrator.records import Script, Text, as_items
from orchestrator.trainers.external import operators, pytest_benchmark
from orchestrator.trainers.script import may_name_file

TRAINER, SUITE, OPERATORS = "script", pytest_benchmark.NAME, operators.NAME
PYTHON = ("", ".py")

Found = Iterator[tuple[YamlPath, str]]


def contradictions(scenario: Scenario) -> Found:
    """Yield a place and a sentence for each contradiction between the keys `trainer`, `script`, `module` and `cwd`."""
    given = [key for key in ("script", "module") if getattr(scenario, key)]
    if len(given) == 2:
        yield ("module",), "'script:' and 'module:' are both given; keep one of them"
    if given and scenario.trainer_name() != TRAINER:
        message = (
            f"the trainer is {scenario.trainer!r}, but '{given[0]}:' needs 'trainer: script'; remove one of the two"
        )
        yield (given[0],), message
    if not given and scenario.trainer == TRAINER:
        yield ("trainer",), "'trainer: script' needs a script; add 'script: train.py' or 'module: pkg.train'"
    elif not given and scenario.cwd:
        yield ("cwd",), "'cwd:' has no effect without 'script:' or 'module:'; remove it"


def record(scenario: Scenario, folder: Path) -> Script:
    """Return the record of the scenario's script. `folder` is the scenario file's folder.

    The record's `files` are empty, because each cell may name different files. `in_cell` adds the files.
    """
    script, module = (words[0] if words else None for words in (scenario.script, scenario.module))
    words = (*scenario.script, *scenario.module)[1:]
    return Script(script=script, module=module, words=words, cwd=scenario.cwd, folder=str(folder))


def of_suite(folder: Path) -> Script:
    """Return the record of a suite of benchmarks, whose file differs between cells (`in_cell`).

    Pytest starts in the scenario file's folder: the names of tests may depend on the folder in which it starts.
    """
    return Script(cwd="scenario", folder=str(folder))


def of_operator(module: str | None, folder: Path) -> Script | None:
    """Return the record of the module with an operator's function. Return None if the scenario file's folder has no such module.

    As for `python script.py`, this folder comes before PYTHONPATH.
    """
    return Script(module=module, folder=str(folder)) if module and on_path(str(folder), module) else None


def missing(script: Script) -> Found:
    """Yield the key and an error sentence if the script or module does not exist."""
    if script.script is not None:
        message = _missing_script(script, script.script)
        if message:
            yield ("script",), message
    elif script.module is not None:
        message = _missing_module(script.module, Path(script.folder))
        if message:
            yield ("module",), message


def _missing_script(script: Script, written: str) -> str | None:
    path = Path(script.path)
    if path.is_file():
        if path.suffix in PYTHON:
            return None
        return f"{written!r} is not a Python script; use 'trainer: custom' for another command"
    words = written.split()
    if len(words) > 1 and os.path.isfile(os.path.join(script.folder, words[0])):
        return f"there is no script {written!r}; write only the path of the script here, and its arguments under 'arguments:'"
    return no_script(path, written)


def no_script(path: Path, written: str) -> str:
    """Return a sentence about a script that does not exist, with the scripts that are in its folder."""
    names = [file.name for file in path.parent.glob(f"*{path.suffix or '.py'}")]
    near = suggestion(path.name, names) if names else "; write its path as seen from the scenario file"
    return f"there is no script {written!r} in {path.parent}{near}"


def _missing_module(name: str, folder: Path) -> str | None:
    """Return a sentence if the module's package is next to the scenario file and does not contain the module."""
    package, *rest = name.split(".")
    place = folder.joinpath(package, *rest)
    if not rest or not (folder / package / "__init__.py").is_file():
        return None
    if place.with_suffix(".py").is_file() or (place / "__main__.py").is_file():
        return None
    parent = name.rpartition(".")[0]
    names = [f"{parent}.{file.stem}" for file in place.parent.glob("*.py") if file.stem != "__init__"]
    return f"there is no module {name!r} in {folder}{suggestion(name, names)}"


def in_cell(script: Script, arguments: Mapping[str, Text]) -> Script:
    """Return the script with the files that a cell's arguments name. Cells with the same files get the same object."""
    if script.script is None and script.module is None:
        return _with_file(script, pytest_benchmark.file_of(arguments))
    return _with_files(script, tuple(dict.fromkeys(text for _, text in files(script, arguments))))


@lru_cache(maxsize=1024)
def _with_files(script: Script, names: tuple[str, ...]) -> Script:
    return replace(script, files=names)


@lru_cache(maxsize=1024)
def _with_file(script: Script, file: str) -> Script:
    return replace(script, script=file)


def files(script: Script, arguments: Mapping[str, Text]) -> Iterator[tuple[str, str]]:
    """Yield each text that names a file or folder next to the scenario file, with the name of its argument ("" for a word).

    Yield nothing if `cwd:` is set: then the script starts in the scenario file's folder, and finds such files itself. Numbers
    do not count as file names. Most of the Trainer's arguments are not file names either.
    """
    if script.cwd is not None:
        return
    given = [("", script.words), *((name, as_items(value)) for name, value in arguments.items())]
    for name, texts in given:
        if may_name_file(name):
            yield from ((name, text) for text in texts if _is_there(text, script.folder))


def note_on_folder(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence if the script may write its output into the user's own folder."""
    if scenario.cwd is not None and "output_dir" not in scenario.arguments:
        yield (
            f"scenario {scenario.name!r}: what the script writes to relative paths lands next to the scenario file; "
            "list output_dir under 'arguments:' to give each run its own folder"
        )


def notes(script: Script, arguments: Mapping[str, Text], scenario: str) -> Iterator[str]:
    """Yield a sentence for each value that looks like a plain word but names a file or folder next to the scenario file."""
    for name, text in files(script, arguments):
        if name and re.fullmatch(r"\w+", text):
            yield (
                f"scenario {scenario!r}: {name} {text!r} is also a name in the scenario file's folder, "
                "so the script gets that path; with 'cwd: scenario' it gets the word"
            )


def _is_there(text: str, folder: str) -> bool:
    is_number = re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", text, re.IGNORECASE) and text not in (".", "..")
    return bool(text) and not is_number and not os.path.isabs(text) and os.path.exists(os.path.join(folder, text))
