"""The function of the user that is measured: `module:callable`. This file imports it, and says where it raised an exception."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from typing import Any, Callable, Optional

from shipped import ArgumentError

_PACKAGES = ("site-packages", "dist-packages")


def load(name: str, folder: str) -> Callable[..., Any]:
    """Return the user's function. `folder` is the folder of its module; if it is "", the module must be in PYTHONPATH or installed.

    As for `python script.py`, the folder comes before PYTHONPATH. Raise ArgumentError if the function does not exist.
    """
    module, _, attribute = name.partition(":")
    if folder:
        sys.path.insert(0, folder)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # the module exists, and a module that it imports is missing
            raise
        raise ArgumentError(
            f"implementation {name}: {error}; put it next to the scenario file, or set PYTHONPATH to its folder under env:."
        ) from error
    file = getattr(found, "__file__", None) or ""
    if folder and not file.startswith(os.path.join(folder, "")):
        raise ArgumentError(f"implementation {name}: Python has another module {module} ({file}); rename yours.")
    if not callable(getattr(found, attribute, None)):
        raise ArgumentError(f"implementation {name}: module {module} has no function {attribute}.")
    function: Callable[..., Any] = getattr(found, attribute)
    return function


def failure(name: str, error: Exception) -> str:
    """Return a sentence of one line about an exception: its type, its message, and the line of the user's code that raised it.

    If no line of the user's code was at work, the sentence names the line of the function's definition.
    """
    message = next(iter(str(error).strip().splitlines()), "")
    text = f"{type(error).__name__}: {message}".rstrip(": ")
    place = _place_of(error) or _definition(name)
    return f"implementation {name}: {text}{f' ({place})' if place else ''}"


def _place_of(error: Exception) -> Optional[str]:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_of_user(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


def _is_of_user(file: str) -> bool:
    ours, library = os.path.dirname(os.path.abspath(__file__)), sysconfig.get_paths()["stdlib"]
    installed = any(f"{os.sep}{name}{os.sep}" in file for name in _PACKAGES)
    return os.path.isfile(file) and not installed and not file.startswith((f"{ours}{os.sep}", f"{library}{os.sep}"))


def _definition(name: str) -> Optional[str]:
    module, _, attribute = name.partition(":")
    code = getattr(inspect.unwrap(getattr(sys.modules.get(module), attribute, failure)), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None and _is_of_user(code.co_filename) else None
