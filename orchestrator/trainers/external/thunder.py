"""The trainer `thunder`: the training benchmark of Lightning Thunder, `thunder.benchmarks.benchmark_litgpt`.

The benchmark trains a LitGPT model, with random weights and random tokens. It gets each argument as `--name value`, under its own
names. `compile` says who compiles: `eager`, `inductor`, `thunder`, or combinations such as `dynamo_thunder`. Rank 0 prints a line
for each iteration, and these lines are the run's steps: an iteration is an optimizer step. At the end, rank 0 writes a JSON file
with the benchmark's own numbers.

`workers/thunder/` starts the benchmark, and writes which executors Thunder has: without nvFuser, its speed is another one. The
numbers of the JSON file are those of rank 0, after `warmup_iters` iterations.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.files.package import WORKERS
from orchestrator.measure.memory_logs import finite
from orchestrator.records import (
    Caveat,
    CaveatKind,
    Device,
    Experiment,
    Measurement,
    Reason,
    RunFolder,
    StepSource,
    Text,
)
from orchestrator.records.run_folder import path_text
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.huggingface import THUNDER
from orchestrator.trainers.trainer import StepReader, Trainer

RESULTS = "thunder.json"
PROGRAM = str(WORKERS / "thunder" / "thunder_benchmark.py")
EXECUTORS = "thunder-executors.json"
MODEL = "model_name_or_path"

# The benchmark's defaults for arguments on which checks and counts depend.
_DEFAULTS = {"micro_batch_size": 1, "max_iters": 45, "warmup_iters": 25}
_ITERATION = re.compile(rb"iter (\d{1,18}): loss (\S+), iter time: (\d+(?:\.\d+)?)ms, t: (\d{1,18})")

_Number = float | int | None


class Thunder(Trainer):
    """Thunder's benchmark of LitGPT models."""

    name = "thunder"
    requires: tuple[str, ...] = (*THUNDER, "accelerate", "litgpt")
    builds_models = False
    takes_defaults = False
    device = Device.CUDA
    steps = StepSource.STDOUT

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        arguments = {name: value for name, value in experiment.arguments.items() if name != MODEL}
        results: dict[str, Text] = {"return_metrics_as_json": "true", "json_path": path_text(run_dir, RESULTS)}
        place = path_text(run_dir, EXECUTORS)
        return [PROGRAM, place, *instrumented.flags({"model_name": experiment.model, **arguments, **results})]

    def metrics(self, run_dir: Path) -> list[Measurement]:
        """Return the benchmark's own numbers, and the executors that Thunder uses by default. A loss counts if it is not finite."""
        return [*_numbers(run_dir), _executors(run_dir), *_not_finite(RunFolder(run_dir).stdout)]

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        return argument_names.translate(argument_names.THUNDER, arguments)

    def problem(self, experiment: Experiment) -> Reason | None:
        found = _wrong_model(experiment) or _wrong_setting(experiment.arguments) or _wrong_processes(experiment)
        return Reason(kind="thunder", text=found) if found else None

    def step_reader(self, experiment: Experiment) -> StepReader:
        return _reader(_rows_per_step(experiment))


def _not_finite(log: Path) -> Iterator[Measurement]:
    """Yield the first loss that the benchmark printed and that is not a finite number."""
    with suppress(OSError), log.open("rb") as lines:
        for match in filter(None, (_ITERATION.fullmatch(line.strip()) for line in lines)):
            loss = reading.number_in(match[2].decode(errors="replace"))
            if loss is not None and not math.isfinite(loss):
                why = Caveat(kind=CaveatKind.NOT_FINITE, detail=f"{loss} in iteration {int(match[1])}")
                yield Measurement(name="train_loss", value=None, source="the benchmark's lines", missing=why)
                return


def _rows_per_step(experiment: Experiment) -> int | None:
    """Return the sequences of an optimizer step on all GPUs. Return None if they may differ in length."""
    if argument_names.is_true(experiment.arguments.get("dynamic")):
        return None
    return _whole(experiment.arguments, "global_batch_size") or (
        (_whole(experiment.arguments, "micro_batch_size") or 0) * experiment.num_gpus or None
    )


@lru_cache(maxsize=64)
def _reader(rows: int | None) -> StepReader:
    """Return the function that turns the line of an iteration into a step of `rows` sequences. Other lines become empty."""

    def step_line(line: bytes) -> bytes:
        match = _ITERATION.fullmatch(line)
        if match is None:
            return b""
        number, milliseconds, length = int(match[1]), float(match[3]), int(match[4])
        tokens = None if rows is None else rows * length
        fields = {"step": number + 1, "seconds": milliseconds / 1000, "tokens": tokens, "samples": rows}
        return json.dumps(fields).encode()

    return step_line


def _numbers(run_dir: Path) -> list[Measurement]:
    try:
        written = reading.read_json(run_dir / RESULTS, limit=reading.LOG_BYTES, finite=False)
    except FileNotFoundError:
        return _missing(f"the benchmark ended before it wrote {RESULTS}")
    except (OSError, ValueError) as error:
        return _missing(f"{RESULTS} cannot be read: {reading.reason(error).partition(':')[0]}")
    if not isinstance(written, Mapping):
        return _missing(f"{RESULTS} has no JSON object")
    return [_measurement(name, written) for name in _NUMBERS]


def _executors(run_dir: Path) -> Measurement:
    """Return the names of the executors that Thunder uses by default, as one text."""
    try:
        written = reading.read_json(run_dir / EXECUTORS, limit=reading.RECORD_BYTES)
    except (OSError, ValueError):
        written = None
    names = written.get("default") if isinstance(written, Mapping) else None
    known = isinstance(names, list) and all(isinstance(name, str) for name in names)
    value = (", ".join(names or ()) or "none") if known else None
    missing = None if known else Caveat(detail=f"{EXECUTORS} has no names of executors")
    return Measurement(name="thunder_executors", value=value, source=EXECUTORS, missing=missing)


def _missing(why: str) -> list[Measurement]:
    caveat = Caveat(detail=why)
    return [Measurement(name=name, value=None, source=RESULTS, missing=caveat) for name in _NUMBERS]


def _measurement(name: str, written: Mapping[str, Any]) -> Measurement:
    key, convert = _NUMBERS[name]
    number = finite(written.get(key))
    value = None if not number else convert(number, written)
    missing = None if value is not None else Caveat(detail=f"{RESULTS} has no usable {key}")
    return Measurement(name=name, value=value, source=RESULTS, missing=missing)


def _flops_per_gpu(flops_per_s: float, written: Mapping[str, Any]) -> _Number:
    """Return TFLOP/s of one GPU. The benchmark counts one micro-batch for each iteration, so accumulation multiplies."""
    gpus, accumulation = finite(written.get("Num GPUS")), finite(written.get("GA"))
    return flops_per_s * accumulation / gpus / 1e12 if gpus and accumulation else None


# Metric → the key in the JSON file, and the function that converts the number into the metric's unit. 0 means unknown.
_NUMBERS: Mapping[str, tuple[str, Callable[[float, Mapping[str, Any]], _Number]]] = {
    "reported_step_time_s": ("average_iter_time", lambda milliseconds, _: milliseconds / 1000),
    "reported_tokens_per_s": ("tokens_per_sec", lambda speed, _: speed),
    "reported_tflops_per_s_per_gpu": ("model_flop_per_sec", _flops_per_gpu),
    "peak_allocated_bytes": ("memory_used_GB", lambda gigabytes, _: round(gigabytes * 1e9)),
    "saved_for_backward_bytes": ("saved_for_backward_tensor_size_mib", lambda mib, _: round(mib * 2**20)),
}


def _wrong_model(experiment: Experiment) -> str | None:
    if not experiment.model.startswith("config:"):
        return None
    return f"trainer thunder can't build {experiment.model}; write the name of a LitGPT model, such as Llama-3.2-1B"


def _wrong_setting(arguments: Mapping[str, Text]) -> str | None:
    """Return a sentence about arguments that the benchmark would refuse, or None."""
    compiler = str(arguments.get("compile", "eager"))
    if compiler not in ("eager", "inductor") and "thunder" not in compiler:
        return f"compile {compiler} is invalid; write eager, inductor, or a word with thunder, such as dynamo_thunder"
    iterations, warm_up = _whole(arguments, "max_iters"), _whole(arguments, "warmup_iters")
    if iterations is not None and warm_up is not None and iterations <= warm_up:
        return f"max_iters {iterations} must exceed warmup_iters {warm_up}; write more max_iters or fewer warmup_iters"
    return None


def _wrong_processes(experiment: Experiment) -> str | None:
    """Return a sentence if the benchmark cannot divide the training among its processes in this way, or None."""
    gpus, arguments = experiment.num_gpus, experiment.arguments
    mode = arguments.get("distributed_mode", "none")
    if gpus > 1 and mode == "none":
        return f"distributed_mode is none, so {gpus} GPUs would train separately; write distributed_mode: ddp, fsdp or fsdp2"
    if gpus == 1 and mode != "none":
        return f"distributed_mode {mode} needs several GPUs; write distributed_mode: none for one GPU"
    if experiment.framework is not None and experiment.framework.accelerate:
        name = experiment.framework.name
        return f"framework configuration {name!r} configures accelerate, which thunder does not use; write distributed_mode"
    rows, batch = _whole(arguments, "global_batch_size"), _whole(arguments, "micro_batch_size")
    if rows is not None and batch and rows % (batch * gpus):
        return f"global_batch_size {rows} is not divisible by {gpus} GPUs × micro_batch_size {batch}"
    return None


def _whole(arguments: Mapping[str, Text], name: str) -> int | None:
    """Return an argument, or its default, as a whole number. Return None if the argument is missing or has another form."""
    value = str(arguments.get(name, _DEFAULTS.get(name, "")))
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 10 else None
