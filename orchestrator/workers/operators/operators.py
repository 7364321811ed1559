"""Measures one operator in one process: `operators.py FILE --operator NAME --shape 8x2048x4096 …`. Rank 0 writes FILE as JSON.

The order is fixed: the work is counted, the first call is timed, which may compile, the error is computed, and memory and time are
measured. After the timing, the tensors get new numbers, and the error is computed again. A mistake in the arguments, or an
exception or a wrong result of a function of the user, is one sentence on stderr.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import re
import secrets
import sys
import traceback
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves the script's folder out

import accuracy
import calls
import implementations
import new_numbers
import own_function
import shipped
import timing
import torch
from calls import BACKWARD, BOTH, FORWARD
from shipped import COLLECTIVES, FORWARD_ONLY, ArgumentError, Setting

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DIRECTIONS = (FORWARD, BACKWARD, BOTH)
WARM, COLD = "warm", "cold"
# Calls before anything is measured, after the first one.
WARM_UP = 5
# Cold calls use copies of the tensors which together are larger than the last cache by this factor.
TIMES_CACHE, CPU_CACHE_BYTES, MOST_COPIES = 4, 64 * 2**20, 512
# Far more than the seeds of repeats.
OF_A_RANK = 1_000_000
ON_CPU = "a CPU computes on the host"

Copies = Callable[[], shipped.Tensors]


def parsed(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("file")
    parser.add_argument("--operator", required=True, choices=sorted(shipped.SHAPES))
    parser.add_argument("--shape", required=True)
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--implementation", default="eager")
    parser.add_argument("--module_folder", default="")
    parser.add_argument("--direction", default=None, choices=DIRECTIONS)
    parser.add_argument("--cache", default=WARM, choices=(WARM, COLD))
    parser.add_argument("--equation", default="")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--min_run_time_s", type=float, default=0.5)
    return parser.parse_args(words)


def setting_of(given: argparse.Namespace, device: str) -> Setting:
    """Return the setting. Raise ArgumentError if the arguments do not fit together."""
    shapes = tuple(_shape(text) for text in given.shape.split(","))
    if given.operator == "einsum" and not given.equation:
        raise ArgumentError("einsum needs --equation, such as bij,jk->bik.")
    if given.operator != "einsum" and len(shapes) > 1:
        raise ArgumentError(f"--shape {given.shape} has {len(shapes)} shapes; {given.operator} needs one.")
    if given.operator in FORWARD_ONLY and given.direction not in (None, FORWARD):
        raise ArgumentError(f"{given.operator} has no backward pass; write --direction forward.")
    return Setting(
        operator=given.operator,
        shapes=shapes,
        dtype=DTYPES[given.dtype],
        device=device,
        equation=given.equation,
        rank=given.rank,
        seed=given.seed,
    )


def _shape(text: str) -> Tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,11}(x[1-9]\d{0,11})*", text, re.ASCII):
        raise ArgumentError(f"--shape {text!r} is invalid; write sizes with an x between them, such as 8x2048x4096.")
    return tuple(map(int, text.split("x")))


def work(setting: Setting, make: Copies, direction: str) -> Dict[str, Optional[float]]:
    """Return the operations of a call, and the bytes that it must read or write at least once.

    torch counts matrix products and attention only. Without any of them, the number is missing. The bytes of a collective operation
    are those that each device must at least send (the "bus bandwidth" of NCCL's tests).
    """
    from torch.utils.flop_counter import FlopCounterMode

    if setting.operator in COLLECTIVES:
        return {"flops_per_call": None, "bytes_per_call": shipped.bytes_sent(setting)}
    if setting.operator in FORWARD_ONLY:
        return {"flops_per_call": None, "bytes_per_call": None}
    tensors = make()
    function = shipped.function(setting)
    outputs = calls.results(function(**tensors))
    moved = sum(tensor.nbytes for tensor in (*tensors.values(), *outputs))
    if direction != FORWARD:
        moved += sum(tensor.nbytes for tensor in calls.learning(tensors))
    call = calls.one_call(function, tensors, direction)
    with FlopCounterMode(display=False) as counter:
        call()
    return {"flops_per_call": counter.get_total_flops() or None, "bytes_per_call": moved}


def peak_memory(function: implementations.Call, make: Copies, direction: str, device: str) -> Dict[str, Any]:
    """Return the largest memory of tensors while one call makes its inputs and computes, in bytes.

    Gradients are kept in the inputs, as a training keeps those of weights. The working memory of cuBLAS is counted if it is used.
    """
    if device == "cpu":
        return {"peak_allocated_bytes": None, "memory_missing": ON_CPU}
    timing.wait()
    torch.cuda.empty_cache()
    getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    tensors = make()
    outputs = calls.results(function(**tensors))
    if direction != FORWARD:
        torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    timing.wait()
    return {"peak_allocated_bytes": torch.cuda.max_memory_allocated() - before}


def _once(function: implementations.Call, tensors: shipped.Tensors, direction: str) -> None:
    """Compute once: forward, and then backward too unless only `forward` is measured."""
    outputs = calls.results(function(**tensors))
    if direction != FORWARD:  # ones are made soon, and the time of this call is measured
        calls.gradients(outputs, tensors, [torch.ones_like(output) for output in outputs])


def copies_for(cache: str, one: shipped.Tensors, device: str) -> int:
    """Return the number of copies of the tensors. With `cold`, a call finds none of its tensors in a cache."""
    if cache == WARM:
        return 1
    last: int = torch.cuda.get_device_properties(0).L2_cache_size if device != "cpu" else CPU_CACHE_BYTES
    size = max(1, sum(tensor.nbytes for tensor in one.values()))
    copies: int = max(2, min(MOST_COPIES, math.ceil(TIMES_CACHE * last / size)))
    return copies


def times(call: Callable[[], Any], *, least_s: float, device: str, together: bool) -> Dict[str, Any]:
    """Return the times of a call. If processes call `together`, all of them make the same number of calls."""
    for _ in range(WARM_UP):
        call()
    timing.wait()
    found: Dict[str, Any] = timing.in_blocks(call) if together else timing.total(call, least_s=least_s)
    if device == "cpu":
        return {**found, "host_time_s": found["call_time_s"], "device_time_s": None, "device_missing": ON_CPU}
    if together:  # each process has its own times, so they must not decide the number of calls
        found["host_time_s"] = timing.host(call, calls=timing.CALLS_TOGETHER)
        return {**found, **timing.device(call)}
    call_s = found["call_time_s"]
    found |= timing.device(call, calls=timing.fitting(timing.PROFILED, call_s, timing.MOST_PROFILED_S))
    launched = int(timing.MOST_LAUNCHES / max(found["launches_per_call"], 1))
    most = min(timing.MOST_CALLS_OF_BLOCK, launched)
    found["host_time_s"] = timing.host(call, calls=timing.fitting(most, call_s, timing.MOST_BLOCK_S), least_s=least_s)
    found["device_span_s"] = timing.behind_sleep(call, host_s=found["host_time_s"])
    return found


def measure(given: argparse.Namespace, device: str) -> Dict[str, Any]:
    setting = setting_of(given, device)
    direction = given.direction or (FORWARD if setting.operator in FORWARD_ONLY else BOTH)
    if direction == BACKWARD and given.implementation != "eager":
        # The backward pass is repeated, so its inputs must survive.
        importlib.import_module("torch._functorch.config").donated_buffer = False  # type: ignore[attr-defined]
    make = _maker(setting)
    plain_work = work(setting, make, direction)
    build = functools.partial(implementations.build, given.implementation, setting, module_folder=given.module_folder)
    one = make()
    function = build(one)
    found: Dict[str, Any] = {"first_call_s": timing.seconds(lambda: _once(function, one, direction)), **plain_work}
    together, is_own = setting.operator in COLLECTIVES, ":" in given.implementation
    if setting.operator != "optimizer_step":
        found |= accuracy.error(function, shipped.function(setting), make(), with_gradients=direction != FORWARD)
    if setting.operator not in FORWARD_ONLY:
        del one  # a call that makes its tensors needs the room
        found |= peak_memory(function, make, direction, device)
    one = make()
    several = [one, *(make() for _ in range(copies_for(given.cache, one, device) - 1))]
    each = [calls.one_call(function, tensors, direction) for tensors in several]
    looked_at = secrets.randbelow(len(several))  # a function cannot know which copy of its tensors is looked at
    timed = several[looked_at]
    before = timed["weights"].detach().clone() if is_own and setting.operator == "optimizer_step" else None
    found |= times(calls.in_turn(each), least_s=given.min_run_time_s, device=device, together=together)
    # The inputs of a backward pass are kept in a graph, so they cannot change.
    if setting.operator not in FORWARD_ONLY and direction != BACKWARD:
        new_numbers.refuse_memory(each[looked_at], timed)
    if together and is_own:
        new_numbers.put(timed, make())  # in the timing, the numbers may have become infinite
        new_numbers.refuse_memory(each[looked_at], timed)
    again = _error_with_new_numbers(function, timed, setting, direction) if "max_error" in found else {}
    found |= {name: max(found[name], value) for name, value in again.items()}
    if before is not None:
        accuracy.refuse_no_step(before, timed["weights"])
    return {**found, "direction": direction, "copies": len(several), **_software()}


def _error_with_new_numbers(
    function: implementations.Call, timed: shipped.Tensors, setting: Setting, direction: str
) -> Dict[str, Any]:
    """Return the error with other numbers in the tensors that were timed, by the same caller.

    A function with a state may become wrong after its first calls, or may return results of old numbers.
    """
    new_numbers.put(timed, _maker(setting, seed=setting.seed + 1)())

    def as_timed(**tensors: Any) -> Any:
        return timing.result_as_timed(functools.partial(function, **tensors))

    # A collective operation may change its tensors, so it is called only once.
    call = function if setting.operator in COLLECTIVES else as_timed
    return accuracy.error(call, shipped.function(setting), timed, with_gradients=direction != FORWARD)


def _maker(setting: Setting, *, seed: Optional[int] = None) -> Copies:
    """Return a function that makes the tensors of a call. Each time, it makes the same numbers, and others on each rank."""
    own = torch.distributed.get_rank() * OF_A_RANK if torch.distributed.is_initialized() else 0

    def make() -> shipped.Tensors:
        generator = torch.Generator(device=setting.device).manual_seed(own + (setting.seed if seed is None else seed))
        return shipped.tensors(setting, generator)

    return make


def _software() -> Dict[str, Any]:
    return {"torch": torch.__version__, "threads": torch.get_num_threads()}


def main(given: argparse.Namespace) -> None:
    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    use_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes") or not torch.cuda.is_available()
    if not use_cpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if given.operator in COLLECTIVES:
        if processes == 1:
            raise ArgumentError(f"{given.operator} needs several processes; write num_gpus: 2 or more.")
        torch.distributed.init_process_group("gloo" if use_cpu else "nccl")
    found = measure(given, "cpu" if use_cpu else "cuda")
    if rank == 0:
        with open(given.file, "w", encoding="utf-8") as written:
            json.dump(found, written)
    _leave()


def _leave() -> None:
    """Leave the other ranks in order. A process that ends in its group may be aborted when another rank closes its connection."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    words = parsed(sys.argv[1:])
    try:
        main(words)
    except ArgumentError as error:
        sys.exit(f"ArgumentError: {error}")
    except accuracy.WrongResult as error:
        _leave()  # all ranks know it, so none waits for another; after an exception of the user's function, one may
        sys.exit(f"FunctionError: implementation {words.implementation}: {error}")
    except Exception as error:
        if ":" not in words.implementation:
            raise
        traceback.print_exc()
        sys.exit(f"FunctionError: {own_function.failure(words.implementation, error)}")
