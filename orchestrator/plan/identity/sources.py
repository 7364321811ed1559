"""The files of the user that an experiment runs, with the digests of their content.

The digests are part of the experiment's id.

Only a script, a suite, a command or an operator of the user (trainers `script`, `pytest_benchmark`, `custom` and `operators`) has
such files:

- the script, and each file that a word of the command names. The name may also be in `--config=FILE`, in a list with commas, or in
  a line for a shell;
- the files of the module that follows `-m`;
- the module of an operator's `implementation: module:callable`, if the scenario file's folder has it, or a folder that `env:`
  puts into PYTHONPATH;
- the Python files in a suite's folder, or a suite's file, and each `conftest.py` from the scenario file's folder down to them;
- the modules that these Python files import from their own folder, from the scenario file's folder, or from a folder that `env:`
  puts into PYTHONPATH.

A relative name is searched in the scenario file's folder. These are not included: folders, files in a results folder, and the
target of `>` in a line for a shell. Interpreters and other programs of the system or of an environment are not included either.

A file is named relative to the scenario file's folder, so that a copy of the folder has the same ids. A file in another folder
keeps the absolute path from the command. If PYTHONPATH has an operator's module, its files are named relative to that folder.
`files/content.py` says which parts of a large file are hashed.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from orchestrator.files import content
from orchestrator.plan.identity.imports import Imports, is_inside, on_path, run_as_module
from orchestrator.records import Experiment, Script
from orchestrator.trainers.external.custom import Custom
from orchestrator.trainers.external.operators import own_module
from orchestrator.trainers.external.pytest_benchmark import NAME as SUITE
from orchestrator.trainers.instrumented import flags

UNREADABLE = "unreadable"

_SHOWN = 3
_RESULTS_FILE = "suite.json"
_RUN_DIR = Path("{run_dir}")
_PYTHON_ITSELF = "{python}"
_OUTPUTS = (">", ">>", ">|", "&>", "&>>")
_MODULE_OPTIONS = ("-m", "--module")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_OF_THE_SYSTEM = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
_OF_AN_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")


class Sources:
    """The files of all experiments of a plan. Each file is read once, so use a new object for every plan."""

    def __init__(self) -> None:
        self._modules = lru_cache(maxsize=None)(Imports().modules_of)
        self._is_source = lru_cache(maxsize=None)(_is_source)
        self._is_python = lru_cache(maxsize=None)(_is_python)
        self._digest = lru_cache(maxsize=None)(_digest)
        self._digests = lru_cache(maxsize=None)(self._digests_of)
        self._of_word = lru_cache(maxsize=2**16)(self._files_of_word)

    def of(self, experiment: Experiment) -> Mapping[str, str]:
        """Return name → digest of each file, in the order of the command. Only trainers of the user's own files have any.

        Experiments with the same files get the same object.
        """
        folder = folder_of(experiment)
        if folder is None:
            return self._digests(())
        words, extra = _words(experiment), _python_path(experiment)
        files: dict[tuple[str, str], None] = {}
        for before, word in zip(("", *words), words, strict=False):
            files |= self._of_word(before, word, folder, extra)
        return self._digests(tuple(files))

    def _digests_of(self, files: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
        return {name: self._digest(path) for name, path in files}

    def _files_of_word(
        self, before: str, word: str, folder: str, extra: tuple[str, ...]
    ) -> dict[tuple[str, str], None]:
        """Return the name and the path of each file that a word names, and of the modules that these files import."""
        files: dict[tuple[str, str], None] = {}
        for named in _named(before, word, folder, extra):
            for path in filter(self._is_source, named.paths):
                files[named.name(path, folder), path] = None
                if named.is_script or self._is_python(path):
                    home = named.home or os.path.dirname(
                        os.path.realpath(path)
                    )  # as Python: behind a link, its target's folder
                    modules = self._modules(path, (home, folder, *extra))
                    files |= {(named.name(module, folder), module): None for module in modules}
        return files


class _Named(NamedTuple):
    """A text in the command, the paths that it may mean, and (for the module after `-m`) the folder that contains the module.

    `is_script` says whether the text follows an interpreter. Then the file is Python, even with another suffix.
    """

    text: str
    paths: Sequence[str]
    is_script: bool
    home: str | None = None

    def name(self, path: str, folder: str) -> str:
        """Return the name that the experiment records for the file at `path`, which this text names or leads to."""
        is_absolute = os.path.isabs(self.text) and not is_inside(path, folder)
        return path if is_absolute else os.path.relpath(path, folder)


def folder_of(experiment: Experiment) -> str | None:
    """Return the folder that the names of the experiment's files are relative to. Return None if it runs no files of the user."""
    own = experiment.script or experiment.custom
    if own is None:
        module = own_module(experiment)
        return next((home for home in _python_path(experiment) if module and on_path(home, module)), None)
    return own.folder


def missing_module(experiment: Experiment) -> str | None:
    """Return a sentence if the module of a script, or of an operator's function, is in no folder in which Python looks for it.

    Return None if this is unknown, because another environment may have the module installed.
    """
    script = experiment.script
    module = (script.module if script else None) or own_module(experiment)
    if module is None or experiment.python or experiment.environment:
        return None
    if folder_of(experiment) is not None and (script is None or _has_package(script.folder, module)):
        return None
    python_path = experiment.env.get("PYTHONPATH") or ""
    in_start_folder = script and any(part and not os.path.isabs(part) for part in python_path.split(os.pathsep))
    if in_start_folder or _is_installed(module.partition(".")[0], python_path):
        return None
    file = f"{module.replace('.', '/')}.py"
    return f"there is no module {module!r}; put {file} next to the scenario file, or its folder into PYTHONPATH under 'env:'"


def _has_package(folder: str, module: str) -> bool:
    """Return whether the module's package, or the module, is in the folder. A package may lack an `__init__.py`."""
    name = module.partition(".")[0]
    return os.path.isdir(os.path.join(folder, name)) or bool(on_path(folder, name))


@lru_cache(maxsize=1024)
def _is_installed(name: str, python_path: str) -> bool:
    places = [*filter(os.path.isabs, python_path.split(os.pathsep)), *sys.path]
    if not name or name in sys.builtin_module_names or PathFinder.find_spec(name, places) is not None:
        return bool(name)
    # A package in development may have a finder of its own.
    return any(finder.find_spec(name, None) is not None for finder in sys.meta_path if finder is not PathFinder)


def changed(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the experiment's files that have changed or are missing."""
    folder = folder_of(experiment) or ""
    return tuple(
        name for name, known in experiment.sources.items() if _digest(os.path.join(folder, name), missing="") != known
    )


def why_changed(experiment: Experiment, when: str) -> str | None:
    """Return a sentence that names the changed files and ends with `when`. Return None if no file has changed."""
    names = changed(experiment)
    return f"{listed(names)} changed {when}" if names else None


def listed(names: Sequence[str]) -> str:
    """Return a text for a sentence: the first file names, and the number of further names."""
    more = len(names) - _SHOWN
    return f"{', '.join(names[:_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def _words(experiment: Experiment) -> Sequence[str]:
    """Return the words that may name files, with relative names as the user wrote them."""
    script, module = experiment.script, own_module(experiment)
    if module:
        home = folder_of(experiment) or ""
        return tuple(
            chain.from_iterable((_PYTHON_ITSELF, os.path.relpath(file, home)) for file in on_path(home, module))
        )
    if script is None:
        return Custom().command(experiment, _RUN_DIR)
    if experiment.trainer == SUITE:
        return tuple(chain.from_iterable((_PYTHON_ITSELF, file) for file in _of_suite(script)))
    target = os.path.expanduser(script.script) if script.script is not None else script.module or ""
    return (_PYTHON_ITSELF if script.module is None else "-m", target, *script.words, *flags(experiment.arguments))


def _of_suite(script: Script) -> Iterator[str]:
    """Yield the Python files of a suite, as seen from the scenario file's folder."""
    files = _python_files(script.path) if os.path.isdir(script.path) else (script.path,)
    for path in (*files, *_conftests(script)):
        yield os.path.relpath(path, script.folder)


def _python_files(suite: str) -> Iterator[str]:
    """Yield the Python files in a folder. Like pytest, leave out hidden folders and environments."""
    for folder, inner, files in os.walk(suite):
        inner[:] = sorted(name for name in inner if not name.startswith((".", "__pycache__", "node_modules")))
        inner[:] = [name for name in inner if not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))]
        yield from (os.path.join(folder, name) for name in sorted(files) if name.endswith(".py"))


def _conftests(script: Script) -> Iterator[str]:
    """Yield where pytest looks for a `conftest.py`, from the suite up to the scenario file's folder."""
    folder, top = (
        script.path if os.path.isdir(script.path) else os.path.dirname(script.path),
        os.path.normpath(script.folder),
    )
    yield os.path.join(folder, "conftest.py")
    while folder != top and is_inside(folder, top):
        folder = os.path.dirname(folder)
        yield os.path.join(folder, "conftest.py")


def _python_path(experiment: Experiment) -> tuple[str, ...]:
    """Return the folders of the PYTHONPATH in `env:`, without folders of installed packages."""
    folders = (experiment.env.get("PYTHONPATH") or "").split(os.pathsep)
    return tuple(os.path.normpath(path) for path in folders if os.path.isabs(path) and "-packages" not in path)


def _named(before: str, word: str, folder: str, extra: Sequence[str]) -> Iterator[_Named]:
    """Yield the files that a word may name. `extra` are further folders in which Python looks for modules."""
    for place, last, token in ((folder, before, word), *_in_shell_line(word, folder)):
        if last in _OUTPUTS:
            continue
        if last in _MODULE_OPTIONS and _MODULE.fullmatch(token):
            found = ((home, run_as_module(token, home)) for home in (place, *extra))
            home, paths = next(filter(itemgetter(1), found), (place, ()))
            yield _Named(text=token, paths=paths, is_script=True, home=home)
        is_script = last == _PYTHON_ITSELF or _PYTHON.fullmatch(os.path.basename(last)) is not None
        for text in dict.fromkeys((token, *re.split("[=,@]", token))):
            yield _Named(text=text, paths=(os.path.normpath(os.path.join(place, text)),), is_script=is_script)


def _in_shell_line(line: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield each word of a shell line, with its working folder and the word before it. A text of one word is not a shell line."""
    words = _shell_words(line) if any(map(str.isspace, line)) else []
    for before, word in zip(("", *words), words, strict=False):
        yield folder, before, word
        if before == "cd":
            folder = os.path.join(folder, word)


def _shell_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:  # a quote without an end
        return line.split()


def _is_source(path: str) -> bool:
    return os.path.isfile(path) and not _is_program(path) and not _is_in_results(path)


def _is_program(path: str) -> bool:
    """Return whether a file is an interpreter, or a program of the system or of an environment."""
    folder, name = os.path.split(path)
    in_environment = os.path.basename(folder) == "bin" and any(
        os.path.exists(os.path.join(os.path.dirname(folder), mark)) for mark in _OF_AN_ENVIRONMENT
    )
    return folder in _OF_THE_SYSTEM or in_environment or _PYTHON.fullmatch(name) is not None


def _is_in_results(path: str) -> bool:
    for parent in Path(path).parents:
        if (parent / _RESULTS_FILE).exists():
            from orchestrator.results.folder import is_ours  # this import loads much, and such a file is rare

            if is_ours(parent):
                return True
    return False


def _is_python(path: str) -> bool:
    """Return whether a file's suffix or first line says that it is a Python script."""
    if os.path.splitext(path)[1]:
        return path.endswith(".py")
    try:
        with open(path, "rb") as stream:
            return re.match(rb"#!.*python", stream.read(200)) is not None
    except OSError:
        return False


def _digest(path: str, missing: str = UNREADABLE) -> str:
    """Return the digest of a file, `missing` if there is no such file, or UNREADABLE if it cannot be read."""
    try:
        return content.digest(Path(path))
    except FileNotFoundError:
        return missing
    except (OSError, ValueError):
        return UNREADABLE
