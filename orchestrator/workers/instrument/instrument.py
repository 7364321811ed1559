"""Runs a training script or module as Python itself would, and writes down what happened inside its process.

    instrument.py -- SCRIPT.py ARGUMENTS…        instrument.py -- -m MODULE ARGUMENTS…

What is measured, and how: a callback of the Hugging Face Trainer and a wrapper of `Trainer.training_step` (`recorder.py`)
hand each step to the meter (`meter.py`: its time; `counting.py`: its tokens), memory is read at stages (`stages.py`), training is
ended early where that was asked for (`ending.py`); logged losses and final metrics are noted, and the settings (`settings.py`)
are read once before the model is wrapped and once when training begins. Everything goes to the folder TUNEBENCH_RUN_DIR, as
`worker-rank{R}.json` (written aside, put in place at the end), `steps-rank{R}.jsonl` (a line a step, appended) and `pids.txt` (a
line a process).

These parts are files beside this one in Tunebench's own tree. A run gets them in one file, whose table PARTS holds their texts
(`trainers/instrumented.py` makes it): it runs wherever it is copied to, and stays with the run whose numbers it made.

What the numbers leave out stands in the files that make them. A loss that is not finite is written as null, since JSON has
no word for it. A process that is killed writes no worker file; its absence says so.

    TUNEBENCH_MEASURE         {"discard_steps", "at_least_steps", "at_most_steps", "within"} as JSON; unset: to the end
    TUNEBENCH_MEMORY_TRACKER  `light`: the Trainer's memory tracker without its spinning thread (`tracker.py`)
    TUNEBENCH_TOGGLE_STEPS    for an overhead study: every other block of so many steps is not measured
    TUNEBENCH_INSTRUMENT      `off`, for the same: errors, final metrics and settings only, nothing at a step

SIGUSR2 writes the stacks of all threads to stderr: what ends a run that makes no step any more asks for them first.

This file needs the standard library alone and never imports torch or transformers: an import hook waits for the target
to do it. A target without a Trainer gets its status or its error written and nothing else. `launcher` runs it in
whatever environment trains.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import socket
import sys
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

SCHEMA = 2
LONGEST_TEXT = 20_000
STARTED = time.time()


def part(name: str) -> Any:
    """A part as a module of its own. It is not put into sys.modules: a target's module of the same name stays its own."""
    if name in PARTS:
        path, (above, text) = __file__, PARTS[name]
        text = "\n" * above + text  # so that a traceback finds its lines in this file
    else:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
        with open(path, encoding="utf-8") as file:
            text = file.read()
    module = types.ModuleType("_tunebench_" + name)
    exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)
    return module


def describe(error: BaseException, *, step: int | None) -> dict[str, Any] | None:
    """The error as data, or None for an exit without one.

    A SystemExit raised `from` an error is told as that error, and so is a bare exit code given while one was handled:
    fms-hf-tuning logs what happened and leaves with 203.
    """
    code: int | None = None
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        code = error.code if isinstance(error.code, int) else 1
        handled = None if isinstance(error.code, str) else error.__context__
        error = error.__cause__ or handled or error
    kind = type(error)
    home = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
    return {
        "type": home + kind.__qualname__,
        "message": str(error)[:LONGEST_TEXT],
        "traceback": "".join(traceback.format_exception(kind, error, error.__traceback__))[-LONGEST_TEXT:],
        "step": None if step is None else step + 1,
        "exit_code": code,
    }


class AfterImport(importlib.abc.MetaPathFinder):
    """Hands a module to a function as soon as it has been imported, by whichever finder: others have hooks, too."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self.then, self.asking = name, then, False
        self.loader: Any = None

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name or self.asking or self not in sys.meta_path:
            return None
        self.asking = True  # another hook may start the search anew
        try:
            behind = sys.meta_path[sys.meta_path.index(self) + 1 :]  # those before us have had their turn
            finders = [finder for finder in behind if hasattr(finder, "find_spec")]
            spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in finders)), None)
        finally:
            self.asking = False
        loader: Any = None if spec is None else spec.loader
        if loader is self.loader or not hasattr(loader, "exec_module"):  # one that a finder keeps is wrapped already
            return spec
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            self.then(module)

        with contextlib.suppress(AttributeError):  # a loader without room for it: nothing is measured, and all runs
            loader.exec_module = exec_module
            self.loader = loader
        return spec


def main_module(target: list[str]) -> tuple[types.ModuleType, Any]:
    """The `__main__` module and code that Python starts for these words; sys.argv and sys.path as it sets them."""
    main = types.ModuleType("__main__")
    start = os.getcwd() if target[0] == "-m" else os.path.dirname(os.path.realpath(target[0]))
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = start
    if target[0] != "-m":
        sys.argv, path = target, os.path.abspath(target[0])
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        main.__dict__.update(__file__=path, __loader__=loader, __spec__=None, __package__=None)
        with open(path, "rb") as file:
            return main, compile(file.read(), path, "exec", dont_inherit=True)
    spec = importlib.util.find_spec(target[1])
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(target[1] + ".__main__")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {target[1]}", name=target[1])
    sys.argv = [spec.origin or target[1], *target[2:]]
    main.__dict__.update(__file__=spec.origin, __loader__=spec.loader, __spec__=spec, __package__=spec.parent)
    return main, spec.loader.get_code(spec.name)  # type: ignore[attr-defined]


def without_own_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    """The traceback as it would look had the target been started directly."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    return inner or trace


def write(folder: str, seen: Any, error: dict[str, Any] | None) -> None:
    """`worker-rank{R}.json`, whole or not at all."""
    document = {
        "schema": SCHEMA, "pid": os.getpid(), "host": socket.gethostname(), "status": "error" if error else "ok",
        "error": error, **seen, "versions": part("versions").installed(),
    }  # fmt: skip
    path = os.path.join(folder, f"worker-rank{seen['rank']}.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, allow_nan=False, default=str)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def run(target: list[str], folder: str, recorder: Any) -> None:
    """Runs the target to its end and writes down what was seen. What it raises is raised again, SystemExit too."""
    sys.meta_path.insert(0, AfterImport("transformers.trainer", recorder.patch))
    try:
        main, code = main_module(target)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)
    except BaseException as error:
        error.__traceback__ = without_own_frames(error.__traceback__)
        write(folder, recorder.document(), describe(error, step=recorder.step))
        raise
    write(folder, recorder.document(), None)


def say_pid(folder: str) -> None:
    """A line in `pids.txt`: whom the kernel kills can then be told to be one of this run. A full disk is the target's to notice."""
    with contextlib.suppress(OSError), open(os.path.join(folder, "pids.txt"), "a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def tell_stacks() -> None:
    """From now on SIGUSR2 writes the stacks of all threads to stderr, unless the target takes the signal for itself."""
    if hasattr(signal, "SIGUSR2"):
        faulthandler.register(signal.SIGUSR2, all_threads=True)


def start() -> None:
    tell_stacks()
    words = sys.argv[1:]
    words = words[1:] if words[:1] == ["--"] else words
    folder = os.environ.get("TUNEBENCH_RUN_DIR")
    if not words or words == ["-m"]:
        sys.exit("usage: instrument.py -- SCRIPT.py ARGUMENTS… | -m MODULE ARGUMENTS…")
    if not folder or not os.path.isdir(folder):
        sys.exit("error: TUNEBENCH_RUN_DIR must name the folder that this run's results are written to.")
    try:
        recorder = part("recorder").Recorder(folder, load=part, started=STARTED)
    except ValueError as error:
        sys.exit(f"error: TUNEBENCH_MEASURE must be a mapping as JSON, TUNEBENCH_TOGGLE_STEPS a whole number: {error}.")
    say_pid(folder)
    run(words, folder, recorder)


# Name → the lines of this file above the part's text, and its text.
PARTS: dict[str, tuple[int, str]] = {}


if __name__ == "__main__":
    start()
