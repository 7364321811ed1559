"""Whether a run has its GPUs to itself: asked once, before it starts. What comes later is for a monitor to see.

A GPU is in use when a process computes on it or when more than 1 GiB of its memory is taken, by whomever. Processes of the
run before, which are still letting go, are waited for like any other. A GPU whose driver says nothing counts as idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.errors import LaunchError
from orchestrator.machine.gpus import nvml_session
from orchestrator.monitors.nvml_numbers import named
from orchestrator.monitors.nvml_sampler import memory_in_use, processes
from orchestrator.records import Gpu

IDLE_BYTES = 2**30
"""A display and the driver's own share stay below."""

PATIENCE_S = 60.0
_PAUSE_S = 0.5

GIVEN_BACK_S = 15.0
"""A driver takes seconds to free the memory of a process that was killed."""

RESIDUE_BYTES = 2**26
"""What may be taken more than before a run without a word: readings are not that exact."""

Look = Callable[[Sequence[Gpu]], tuple[str, ...]]


def settle(
    gpus: Sequence[Gpu],
    policy: str,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    patience_s: float = PATIENCE_S,
    look: Look | None = None,
) -> tuple[str, ...]:
    """Returns when every GPU is idle, with no sentence; or a sentence for each that is not.

    `policy`: "wait" (at most `patience_s`, then as "warn"), "warn" or "fail". Raises LaunchError where it is "fail".
    """
    look = look or occupants
    found = look(gpus) if gpus else ()
    began = time.monotonic()
    while found and policy == "wait" and time.monotonic() < began + patience_s and not cancelled():
        time.sleep(_PAUSE_S)  # before the run: it disturbs nothing
        found = look(gpus)
    if found and policy == "fail":
        raise LaunchError(
            f"{'; '.join(found)}: end what runs there, choose others by CUDA_VISIBLE_DEVICES, or say busy_gpus: warn"
        )
    waited = f" after {time.monotonic() - began:.0f} s of waiting" if policy == "wait" else ""
    return tuple(f"{sentence} when the run began{waited}" for sentence in found)


def memory_taken(gpus: Sequence[Gpu]) -> dict[str, int]:
    """UUID → bytes in use now, of those GPUs that say."""
    found: dict[str, int] = {}
    with nvml_session() as nvml:
        for gpu in gpus if nvml is not None else ():
            try:
                found[gpu.uuid] = memory_in_use(nvml, nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
            except nvml.NVMLError:
                continue
    return found


def given_back(gpus: Sequence[Gpu], before: dict[str, int], *, patience_s: float = GIVEN_BACK_S) -> tuple[str, ...]:
    """Returns once the memory that was free before the run is free again; or a sentence for each GPU where it is not."""
    deadline = time.monotonic() + patience_s
    while True:
        now = memory_taken(gpus) if before else {}
        kept = {uuid: now[uuid] - taken for uuid, taken in before.items() if now.get(uuid, 0) > taken + RESIDUE_BYTES}
        if not kept or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)  # behind the run: it disturbs nothing of it
    return tuple(
        f"GPU {gpu.index} still had {kept[gpu.uuid] / 2**30:.2f} GiB more in use {patience_s:.0f} s after the run than before it"
        for gpu in gpus
        if gpu.uuid in kept
    )


def occupants(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """A phrase for each GPU that is in use: by which processes, and how much memory is taken."""
    with nvml_session() as nvml:
        if nvml is None:
            return ()
        phrases = []
        for gpu in gpus:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                used, there = memory_in_use(nvml, handle), _processes(nvml, handle)
            except nvml.NVMLError:
                continue
            if there or used > IDLE_BYTES:
                phrases.append(f"GPU {gpu.index} ({gpu.name}) was in use ({_described(used, there)})")
        return tuple(phrases)


def _processes(nvml: Any, handle: Any) -> list[str]:
    try:
        return processes(nvml, handle).split()
    except nvml.NVMLError:  # its memory alone has to tell
        return []


def _described(used: int, there: Sequence[str]) -> str:
    who = ", ".join(named(one) for one in there) or "by no process that can be seen"
    return f"{used / 2**30:.1f} GiB, {who}"
