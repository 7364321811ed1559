"""Runs a training script or module (the target) as Python itself would, and writes down what happened inside its process.

    instrument.py -- SCRIPT.py ARGUMENTS…        instrument.py [--modules-in FOLDER] -- -m MODULE ARGUMENTS…

Modules are found as if Python had been started in FOLDER. FOLDER is by default the current folder.

What is measured, and how: `recorder.py` adds a callback to the Hugging Face Trainer and wraps `Trainer.training_step`. It
passes each step to the meter (`meter.py`: its time; `phases.py`: the parts of this time; `counting.py`: its tokens;
`compilations.py`: what torch compiled in it). It reads memory at stages (`stages.py`), and ends training early if asked to
(`ending.py`). It notes logged losses and final metrics. It reads the settings (`settings.py`) before the model is wrapped,
and again when training begins. The results are files in the folder TUNEBENCH_RUN_DIR:

    worker-rank{R}.json   all results of a rank, written at its end; a killed process has no such file
    steps-rank{R}.jsonl   a line per step, appended
    pids.txt              a line per process

In Tunebench's own tree these parts are files in this one's folder. For a run, `trainers/instrumented.py` makes one file with all
parts. In that file, the table PARTS has the texts of the parts. The file can be copied and run anywhere, and stays with the run
that it measured.

Each part says what its numbers leave out. A loss that is not finite is written as null, since JSON has no word for it.

    TUNEBENCH_MEASURE         {"discard_steps", "at_least_steps", "at_most_steps", "within"} as JSON; unset: train to the end.
                              "at_least_s" is there if the scenario has it
    TUNEBENCH_MEMORY_TRACKER  `native`: use the Trainer's memory tracker; `light`: use it without its thread (`stages.py`)
    TUNEBENCH_TOGGLE_STEPS    a number N, for an overhead study: measure only every other block of N steps
    TUNEBENCH_PROFILE         profile some steps (`profiler.py`)
    TUNEBENCH_INSTRUMENT      `off`, for an overhead study: record only errors, final metrics and settings; do nothing at a step

SIGUSR2 writes the stacks of all threads to stderr, unless the target uses the signal itself. The watchdog asks for these stacks
before it ends a run that makes no step.

This file needs only the standard library and never imports torch or transformers. An import hook acts when the target imports them.
For a target without a Trainer, only its status or error is written.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import glob
import importlib.abc
import importlib.machinery
import importlib.metadata
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
PACKAGES = (
    *("torch", "transformers", "peft", "accelerate", "datasets", "tokenizers", "trl", "bitsandbytes", "liger_kernel"),
    *("flash_attn", "gptqmodel", "deepspeed", "torchao", "triton", "fms_hf_tuning", "numpy"),
)


def part(name: str) -> Any:
    """Return a part as a module. The part is not in sys.modules, so the target may have a module of the same name."""
    if name in PARTS:
        path, (above, text) = __file__, PARTS[name]
        text = "\n" * above + text  # so that a traceback finds its lines in this file
    else:
        folder = os.path.dirname(os.path.abspath(__file__))
        path = next(glob.iglob(os.path.join(glob.escape(folder), "**", name + ".py"), recursive=True))
        with open(path, encoding="utf-8") as file:
            text = file.read()
    module = types.ModuleType("_tunebench_" + name)
    exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)
    return module


def sentence_of_argparse(trace: types.TracebackType | None) -> str | None:
    """Return the error sentence of argparse if argparse ended the process, else None. The exit itself has only a code."""
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "error" and os.path.basename(frame.f_code.co_filename) == "argparse.py":
            return str(frame.f_locals.get("message"))
        trace = trace.tb_next
    return None


def describe(error: BaseException, *, step: int | None) -> dict[str, Any] | None:
    """Return the error as data, or None for an exit without an error.

    A SystemExit raised `from` an error counts as that error. So does an exit code that is raised while an error is handled:
    fms-hf-tuning logs its error and exits with 203.
    """
    code: int | None = None
    refusal: str | None = None
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return None
        code = error.code if isinstance(error.code, int) else 1
        handled = None if isinstance(error.code, str) else error.__context__
        refusal = None if handled else sentence_of_argparse(error.__traceback__)
        error = error.__cause__ or handled or error
    kind = type(error)
    home = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
    return {
        "type": home + kind.__qualname__,
        "message": whole_words(refusal or str(error)),
        "traceback": whole_lines("".join(traceback.format_exception(kind, error, error.__traceback__))),
        "step": None if step is None else step + 1,
        "exit_code": code,
    }


def whole_words(text: str) -> str:
    """Return the beginning of a long text without half a word. The word may be a secret, and half a secret is not masked later."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rpartition(" ")[0]


def whole_lines(text: str) -> str:
    """Return the end of a long text without half a line."""
    return text if len(text) <= LONGEST_TEXT else text[-LONGEST_TEXT:].partition("\n")[2]


class AfterImport(importlib.abc.MetaPathFinder):
    """An import finder that calls `then` with the module `name` as soon as this module has been imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self.then, self.asking = name, then, False
        self.loader: Any = None

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name or self.asking or self not in sys.meta_path:
            return None
        self.asking = True  # another hook may start the search anew
        try:
            behind = sys.meta_path[sys.meta_path.index(self) + 1 :]  # the finders before this one were asked already
            finders = [finder for finder in behind if hasattr(finder, "find_spec")]
            spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in finders)), None)
        finally:
            self.asking = False
        loader: Any = None if spec is None else spec.loader
        # A finder may return the same loader again, which is already wrapped.
        if loader is self.loader or not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            self.then(module)

        with contextlib.suppress(AttributeError):  # some loaders forbid this: the target then runs unmeasured
            loader.exec_module = exec_module
            self.loader = loader
        return spec


def after_import(name: str, then: Callable[[Any], None]) -> None:
    """Call `then` with the module `name` as soon as it has been imported. In a warm start, this was before the fork."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, AfterImport(name, then))


def main_module(target: list[str], modules_in: str | None) -> tuple[types.ModuleType, Any]:
    """Return two values for the target: its `__main__` module and its code. Set sys.argv and sys.path as Python does."""
    main = types.ModuleType("__main__")
    start = modules_in or os.getcwd() if target[0] == "-m" else os.path.dirname(os.path.realpath(target[0]))
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
    """Return the traceback as if the target had been started directly."""
    inner = trace
    while inner is not None and inner.tb_frame.f_code.co_filename == __file__:
        inner = inner.tb_next
    return inner or trace


def installed() -> dict[str, str]:
    """Return the versions of the packages in this environment, used or not. `cuda` is the CUDA version that torch was built for."""
    versions = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {**versions, "cuda": cuda} if cuda else versions


def write(folder: str, seen: Any, error: dict[str, Any] | None) -> None:
    """Write `worker-rank{R}.json` in one step, so that no reader sees a part of the file."""
    host = os.fsencode(socket.gethostname()).decode("utf-8", "replace")
    document = {
        "schema": SCHEMA, "pid": os.getpid(), "host": host, "status": "error" if error else "ok",
        "error": error, **seen, "versions": installed(),
    }  # fmt: skip
    path = os.path.join(folder, f"worker-rank{seen['rank']}.json")
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, allow_nan=False, default=str)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def on_cpu(module: types.ModuleType) -> None:
    """Set `use_cpu` in each TrainingArguments, since the launcher chose the CPU. Otherwise TrainingArguments refuse bfloat16."""
    kind = module.TrainingArguments
    finish = kind.__post_init__

    @functools.wraps(finish)
    def post_init(arguments: Any, *args: Any, **kwargs: Any) -> None:
        arguments.use_cpu = True
        finish(arguments, *args, **kwargs)

    kind.__post_init__ = post_init


def run(target: list[str], folder: str, recorder: Any, modules_in: str | None) -> None:
    """Run the target to its end and write the results. An exception of the target, even SystemExit, is raised again."""
    after_import("transformers.trainer", recorder.patch)
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes"):
        after_import("transformers.training_args", on_cpu)
    try:
        main, code = main_module(target, modules_in)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)
    except BaseException as error:
        error.__traceback__ = without_own_frames(error.__traceback__)
        write(folder, recorder.document(), describe(error, step=recorder.step))
        raise
    write(folder, recorder.document(), None)


def start() -> None:
    if hasattr(signal, "SIGUSR2"):
        faulthandler.register(signal.SIGUSR2, all_threads=True)
    words, modules_in = sys.argv[1:], None
    if words[:1] == ["--modules-in"] and len(words) > 1:
        modules_in, words = words[1], words[2:]
    words = words[1:] if words[:1] == ["--"] else words
    folder = os.environ.get("TUNEBENCH_RUN_DIR")
    if not words or words == ["-m"]:
        sys.exit("usage: instrument.py [--modules-in FOLDER] -- SCRIPT.py ARGUMENTS… | -m MODULE ARGUMENTS…")
    if not folder or not os.path.isdir(folder):
        sys.exit("error: TUNEBENCH_RUN_DIR must name the folder that this run's results are written to.")
    try:
        recorder = part("recorder").Recorder(folder, load=part, started=STARTED)
    except ValueError as error:
        sys.exit(
            f"error: TUNEBENCH_MEASURE must be a JSON mapping, TUNEBENCH_TOGGLE_STEPS must be a whole number: {error}."
        )
    # If the kernel kills this process, its id is in this file. A full disk is ignored.
    with contextlib.suppress(OSError), open(os.path.join(folder, "pids.txt"), "a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
    run(words, folder, recorder, modules_in)


# Maps the name of a part to two values: the number of lines above the part's text in this file, and the text.
PARTS: dict[str, tuple[int, str]] = {}


if __name__ == "__main__":
    start()
