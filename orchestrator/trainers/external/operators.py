"""The trainer `operators`: one operator, such as a norm or a loss, measured in one process by `workers/operators/`.

The arguments name the operator, its shape and type, the implementation, and the direction. The process writes
`operators.json`. It has three times of a call: in total, on the host, and on the device. On a CPU the host computes, so the
device's time is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from orchestrator.errors import suggestion
from orchestrator.files import reading
from orchestrator.files.package import WORKERS
from orchestrator.measure.memory_logs import finite
from orchestrator.records import Caveat, Experiment, Measurement, Reason, Text
from orchestrator.records.run_folder import path_text
from orchestrator.trainers import instrumented
from orchestrator.trainers.trainer import Trainer

NAME = "operators"
RESULTS = "operators.json"
PROGRAM = str(WORKERS / "operators" / "operators.py")

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
FORWARD_ONLY = ("optimizer_step", *COLLECTIVES)
OPERATORS = (
    *("rmsnorm", "layernorm", "rotary", "swiglu", "cross_entropy", "linear_cross_entropy", "attention"),
    *("linear", "lora_linear", "nf4_linear", "einsum", *FORWARD_ONLY),
)
_COMPILED = ("eager", "inductor", "thunder", "liger")
_IMPLEMENTATIONS: Mapping[str, tuple[str, ...]] = {
    "attention": (*_COMPILED[:3], "flash", "efficient", "math", "cudnn", "flex"),
    "optimizer_step": ("eager", "foreach", "fused"),
    "nf4_linear": ("eager",),
    **dict.fromkeys(COLLECTIVES, ("eager",)),
}
ANY_IMPLEMENTATION = tuple(dict.fromkeys((*_COMPILED, *chain(*_IMPLEMENTATIONS.values()), "module:callable")))
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "operator": OPERATORS,
    "dtype": ("float32", "bfloat16", "float16"),
    "direction": ("forward", "backward", "both"),
    "cache": ("warm", "cold"),
}
# The arguments that make the work of a call.
WORK = ("operator", "shape", "equation", "dtype", "direction", "cache", "rank", "seed")
ARGUMENTS = (*_CHOICES, "shape", "implementation", "equation", "rank", "seed", "min_run_time_s")
# Argument → whether it is a whole number, and its smallest and largest value.
_LIMITS: Mapping[str, tuple[bool, float, float]] = {
    "rank": (True, 1, 2**20),
    "seed": (True, 0, 2**63 - 1),
    "min_run_time_s": (False, 0.001, 3600),
}
_SHAPE = re.compile(r"[1-9]\d{0,11}(x[1-9]\d{0,11})*", re.ASCII)
_MODEL = "model_name_or_path"

# Implementation → the packages that it needs besides torch.
_NEEDS: Mapping[str, tuple[str, ...]] = {"liger": ("liger-kernel",), "thunder": ("lightning-thunder",)}

# Metric → the key of the reason for a missing value, if the value can be missing.
_NUMBERS: Mapping[str, str] = {
    "call_time_s": "",
    "call_time_iqr_s": "",
    "host_time_s": "",
    "device_time_s": "device_missing",
    "device_span_s": "device_missing",
    "launches_per_call": "device_missing",
    "first_call_s": "",
    "peak_allocated_bytes": "memory_missing",
    "max_error": "error_missing",
    "relative_error": "error_missing",
}


class Operators(Trainer):
    """Microbenchmarks of operators."""

    name = NAME
    requires: tuple[str, ...] = ("torch", "accelerate")
    result = "call_time_s"
    needs_model = False
    takes_defaults = False

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        arguments = {name: value for name, value in experiment.arguments.items() if name != _MODEL}
        folder = ["--module_folder", experiment.script.folder] if experiment.script else []
        return [PROGRAM, path_text(run_dir, RESULTS), *instrumented.flags(arguments), *folder]

    def requires_for(self, arguments: Mapping[str, Text]) -> tuple[str, ...]:
        quantised = ("bitsandbytes",) if arguments.get("operator") == "nf4_linear" else ()
        return (*self.requires, *_NEEDS.get(str(arguments.get("implementation")), ()), *quantised)

    def mistakes(self, arguments: Mapping[str, Text], written: Collection[str]) -> Iterator[tuple[str, str]]:
        for name, value in arguments.items():
            if name in ARGUMENTS:
                why = _wrong_value(name, value)
                yield from [(name, f"{name}: {why}")] if why else []
            elif name != _MODEL and name in written:
                yield name, f"trainer operators has no argument {name!r}{suggestion(name, ARGUMENTS)}"

    def problem(self, experiment: Experiment) -> Reason | None:
        for _, sentence in self.mistakes(experiment.arguments, experiment.arguments):
            return Reason(kind="operators", text=sentence)
        found = _wrong(experiment)
        return Reason(kind="operators", text=found) if found else None

    def metrics(self, run_dir: Path) -> list[Measurement]:
        """Return the numbers of `operators.json`, and those that follow from them."""
        try:
            written = reading.read_json(run_dir / RESULTS, limit=reading.RECORD_BYTES)
        except FileNotFoundError:
            return _missing(f"the process ended before it wrote {RESULTS}")
        except (OSError, ValueError) as error:
            return _missing(f"{RESULTS} cannot be read: {reading.reason(error).partition(':')[0]}")
        if not isinstance(written, Mapping):
            return _missing(f"{RESULTS} has no JSON object")
        return [*(_measurement(name, written) for name in _NUMBERS), *_rates(written), *_busy(written)]


def _missing(why: str) -> list[Measurement]:
    return [Measurement(name=name, value=None, source=RESULTS, missing=Caveat(detail=why)) for name in _NUMBERS]


def _measurement(name: str, written: Mapping[str, Any]) -> Measurement:
    value = finite(written.get(name))
    why = written.get(_NUMBERS[name]) if value is None else None
    detail = why if isinstance(why, str) else f"{RESULTS} has no usable {name}"
    return Measurement(
        name=name, value=value, source=RESULTS, missing=None if value is not None else Caveat(detail=detail)
    )


def _rates(written: Mapping[str, Any]) -> list[Measurement]:
    """Return the operations and bytes per second. The device's time counts if it is known, so launches do not."""
    seconds = finite(written.get("device_time_s")) or finite(written.get("call_time_s"))
    operations, moved = finite(written.get("flops_per_call")), finite(written.get("bytes_per_call"))
    rates = {"operator_tflops_per_s": (operations, 1e12), "operator_bytes_per_s": (moved, 1.0)}
    return [
        Measurement(name=name, value=amount / seconds / unit, source=RESULTS)
        for name, (amount, unit) in rates.items()
        if amount and seconds
    ]


def _busy(written: Mapping[str, Any]) -> list[Measurement]:
    """Return the share of a call in which the device computes. Kernels of several streams may overlap, so it may be above 1."""
    device, call = finite(written.get("device_time_s")), finite(written.get("call_time_s"))
    if not device or not call:
        return []
    return [Measurement(name="device_busy_share", value=device / call, source=RESULTS)]


def own_module(experiment: Experiment) -> str | None:
    """Return the module of an operator's function that the user wrote: `module:callable`. Return None if it is not the user's."""
    return module_in(experiment.arguments) if experiment.trainer == NAME else None


def module_in(arguments: Mapping[str, Text]) -> str | None:
    module, colon, _ = str(arguments.get("implementation", "")).partition(":")
    return module if colon else None


def _wrong_value(name: str, value: Text) -> str | None:
    if not isinstance(value, str):
        items = f"the list {', '.join(map(repr, value))}" if value else "an empty list"
        return f"{items} is invalid; write one value (to try several values, list them under 'matrix:')"
    allowed = _CHOICES.get(name, ())
    if name == "implementation" and ":" not in value:
        allowed = ANY_IMPLEMENTATION
    if allowed and value not in allowed:
        return f"{value!r} is invalid{suggestion(value, allowed)}"
    if name == "shape" and not all(map(_SHAPE.fullmatch, value.split(","))):
        return f"{value!r} is invalid; write sizes with an x between them, such as 8x2048x4096"
    return _wrong_number(value, *_LIMITS[name]) if name in _LIMITS else None


def _wrong_number(text: str, is_whole: bool, least: float, most: float) -> str | None:
    try:
        if least <= (int if is_whole else float)(text) <= most:
            return None
    except ValueError:
        pass
    return f"{text!r} is invalid; write {'a whole number' if is_whole else 'a number'} from {least} to {most}"


def _wrong(experiment: Experiment) -> str | None:
    """Return a sentence about arguments that the program would refuse, or None."""
    arguments = {name: str(value) for name, value in experiment.arguments.items()}
    for name in ("operator", "shape"):
        if name not in arguments:
            return f"{name} is missing; write it under 'arguments:' or 'matrix:'"
    operator, implementation = arguments["operator"], arguments.get("implementation", "eager")
    allowed = _IMPLEMENTATIONS.get(operator, _COMPILED)
    if ":" not in implementation and implementation not in allowed:
        named = f"{', '.join(allowed)}, or module:callable"
        return f"operator {operator} has no implementation {implementation}; write {named}"
    return _wrong_shape(arguments) or _wrong_processes(experiment, operator)


def _wrong_shape(arguments: Mapping[str, str]) -> str | None:
    shapes, operator = arguments["shape"].split(","), arguments["operator"]
    if operator == "einsum" and "equation" not in arguments:
        return "equation is missing; write one such as 'bij,jk->bik' for operator einsum"
    if operator != "einsum" and len(shapes) > 1:
        return f"shape {arguments['shape']} has {len(shapes)} shapes; {operator} needs one"
    if operator in FORWARD_ONLY and arguments.get("direction", "forward") != "forward":
        return f"{operator} has no backward pass; write direction: forward or leave it out"
    return None


def _wrong_processes(experiment: Experiment, operator: str) -> str | None:
    if operator in COLLECTIVES and experiment.num_gpus == 1:
        return f"{operator} needs several processes; write num_gpus: 2 or more"
    if operator not in COLLECTIVES and experiment.num_gpus > 1:
        return f"{operator} runs in one process; write num_gpus: 1"
    return None
