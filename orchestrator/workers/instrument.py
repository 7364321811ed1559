"""Runs a training script or module as Python itself would, and writes down what happened inside its process.

    instrument.py -- SCRIPT.py ARGUMENTS…        instrument.py -- -m MODULE ARGUMENTS…

What is measured, and how: a callback of the Hugging Face Trainer notes the wall clock at the end of each optimizer
step, the logged losses and the final metrics; a wrapper of `Trainer.training_step` adds up the tokens and samples of
every micro-batch from their shapes; the settings (`effective.py`) are read once before the model is wrapped and once
when training begins. Everything goes to the folder that TUNEBENCH_RUN_DIR names, as `worker-rank{R}.json` (written
aside, put in place at the end) and `steps-rank{R}.jsonl` (a line a step, appended).

What the numbers leave out: the clock is the host's and nothing is synchronised, so a single step's time holds whatever
the GPU was still doing; tokens count padding; a loss that is not finite is written as null, since JSON has no word for
it. A process that is killed writes no worker file; its absence says so.

This file needs the standard library alone and never imports torch or transformers: an import hook waits for the target
to do it. A target without a Trainer gets its status or its error written and nothing else. `launcher` runs it in
whatever environment trains.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import math
import os
import socket
import sys
import time
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

SCHEMA = 1
LONGEST_TEXT = 20_000
PACKAGES = (
    *("torch", "transformers", "peft", "accelerate", "datasets", "tokenizers", "trl", "bitsandbytes", "liger_kernel"),
    *("flash_attn", "gptqmodel", "deepspeed", "torchao", "triton", "fms_hf_tuning", "numpy"),
)


def finite(value: Any) -> Any:
    """The value as JSON can hold it: a number that is not finite becomes None, what is no number or text its text."""
    if hasattr(value, "item") and getattr(value, "numel", lambda: 1)() == 1:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def sibling(name: str) -> Any:
    """A module beside this file, loaded by its path so that no module of the target's is shadowed by it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location("_tunebench_" + name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module at {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recorder:
    """What one rank has seen of its training. Methods named on_… are the Trainer's events."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rank, self.local_rank, self.world_size = (
            int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))
        )
        self.steps_path = os.path.join(folder, f"steps-rank{self.rank}.jsonl")
        self.effective: Any = None
        self.trainer: Callable[[], Any] = lambda: None
        self.metrics: dict[str, Any] = {}
        self.settings: dict[str, Any] = {}
        self.step: int | None = None
        self.reset()

    def reset(self) -> None:
        self.processed = self.samples = self.steps = self.micro_batches = 0
        self.packed_samples: Any = 0
        self.losses: list[tuple[int, Any]] = []

    def patch(self, module: Any) -> None:
        """Puts the recorder into `transformers.trainer`, just imported."""
        self.effective = sibling("effective")
        events = {name: getattr(self, name) for name in ("on_train_begin", "on_step_end", "on_log", "on_train_end")}
        module.DEFAULT_CALLBACKS.append(type("TunebenchCallback", (module.TrainerCallback,), events))
        build, train = module.Trainer.__init__, module.Trainer.training_step

        @functools.wraps(build)
        def init(trainer: Any, *args: Any, **kwargs: Any) -> None:
            build(trainer, *args, **kwargs)
            self.trainer = weakref.ref(trainer)
            self.settings = self.effective.read(self.effective.BUILT, trainer)

        @functools.wraps(train)
        def training_step(trainer: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self.count(inputs)
            return train(trainer, model, inputs, *args, **kwargs)

        module.Trainer.__init__, module.Trainer.training_step = init, training_step

    def count(self, inputs: Any) -> None:
        """Adds one micro-batch. Rows that hold several samples are counted on the device and read once, at the end."""
        tokens = inputs.get("input_ids") if hasattr(inputs, "get") else None
        if tokens is None:
            return
        self.micro_batches += 1
        self.processed += tokens.numel()
        positions = inputs.get("position_ids")
        if positions is None:
            self.samples += tokens.shape[0]
        else:
            self.packed_samples = self.packed_samples + (positions == 0).sum()

    def note(self, line: dict[str, Any]) -> None:
        with open(self.steps_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.reset()
        self.step = state.global_step
        self.settings.update(self.effective.read(self.effective.PREPARED, self.trainer()))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        now = time.time()
        self.step = state.global_step
        self.steps += 1
        if self.steps == 1 and self.micro_batches:  # what really was accumulated, before an epoch's end cuts it short
            self.settings["gradient_accumulation_steps"] = self.micro_batches
        self.note({"step": self.step, "t": now})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        logs = logs or {}
        if "train_runtime" in logs:
            self.metrics = {name: finite(value) for name, value in logs.items()}
        elif "loss" in logs:
            loss = finite(logs["loss"])
            self.losses.append((state.global_step, loss))
            self.note({"step": state.global_step, "t": time.time(), "loss": loss})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step = None

    def effective_settings(self) -> dict[str, Any]:
        settings = dict(self.settings)
        rows, times = settings.get("per_device_train_batch_size"), settings.get("gradient_accumulation_steps")
        if rows and times:
            settings["global_batch"] = rows * times * (settings.get("world_size") or self.world_size)
        return settings

    def write(self, error: dict[str, Any] | None) -> None:
        """`worker-rank{R}.json`, whole or not at all."""
        try:
            samples = self.samples + int(self.packed_samples)
        except Exception:  # the device itself failed; the error says how
            samples = self.samples
        document = {
            "schema": SCHEMA, "rank": self.rank, "local_rank": self.local_rank, "world_size": self.world_size,
            "pid": os.getpid(), "host": socket.gethostname(), "status": "error" if error else "ok", "error": error,
            "metrics": self.metrics, "tokens": {"processed": self.processed, "samples": samples, "steps": self.steps},
            "settings": self.effective_settings(), "versions": versions(), "losses": self.losses,
        }  # fmt: skip
        path = os.path.join(self.folder, f"worker-rank{self.rank}.json")
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, allow_nan=False, default=str)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".part", path)


def versions() -> dict[str, str]:
    """What is installed, whether or not it was used; `cuda` is the one that torch was built for."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {**found, "cuda": cuda} if cuda else found


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
    """Hands a module to a function as soon as it has been imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self.name, self.then = name, then

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path) if fullname == self.name else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            self.then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
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


def run(target: list[str], recorder: Recorder) -> None:
    """Runs the target to its end and records it. What the target raises is raised again, SystemExit too."""
    sys.meta_path.insert(0, AfterImport("transformers.trainer", recorder.patch))
    try:
        main, code = main_module(target)
        sys.modules["__main__"] = main
        exec(code, main.__dict__)
    except BaseException as error:
        error.__traceback__ = without_own_frames(error.__traceback__)
        recorder.write(describe(error, step=recorder.step))
        raise
    recorder.write(None)


def start() -> None:
    words = sys.argv[1:]
    words = words[1:] if words[:1] == ["--"] else words
    folder = os.environ.get("TUNEBENCH_RUN_DIR")
    if not words or words == ["-m"]:
        sys.exit("usage: instrument.py -- SCRIPT.py ARGUMENTS… | -m MODULE ARGUMENTS…")
    if not folder or not os.path.isdir(folder):
        sys.exit("error: TUNEBENCH_RUN_DIR must name the folder that this run's results are written to.")
    run(words, Recorder(folder))


if __name__ == "__main__":
    start()
