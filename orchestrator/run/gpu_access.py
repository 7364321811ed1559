"""A check before a run: whether another program uses the run's GPUs. During the run, a monitor watches for such programs.

A GPU is in use if a process computes on it, or if more than 1 GiB of its memory is taken. Processes of the previous run are
counted, too. A GPU whose driver does not answer counts as idle.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from orchestrator.errors import LaunchError
from orchestrator.machine.gpus import nvml_session
from orchestrator.monitors.nvml_sampler import memory_in_use
from orchestrator.monitors.occupants import occupied
from orchestrator.records import Gpu

PATIENCE_S = 60.0
_PAUSE_S = 0.5
# A driver takes seconds to free the memory of a killed process.
GIVEN_BACK_S = 15.0
# A smaller increase over the memory before the run is not reported: readings are not that exact.
RESIDUE_BYTES = 2**26

Look = Callable[[Sequence[Gpu]], tuple[str, ...]]


def settle(
    gpus: Sequence[Gpu],
    policy: str,
    *,
    cancelled: Callable[[], bool] = lambda: False,
    patience_s: float = PATIENCE_S,
    look: Look | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each GPU that is in use.

    With the policy "wait", wait at most `patience_s` seconds for idle GPUs. With "warn", do not wait. With "fail", raise
    LaunchError if a GPU is in use.
    """
    look = look or occupants
    in_use = look(gpus) if gpus else ()
    began = time.monotonic()
    while in_use and policy == "wait" and time.monotonic() < began + patience_s and not cancelled():
        time.sleep(_PAUSE_S)
        in_use = look(gpus)
    if in_use and policy == "fail":
        raise LaunchError(
            f"{'; '.join(in_use)}; end the processes there, choose other GPUs with CUDA_VISIBLE_DEVICES, or set busy_gpus: warn"
        )
    waited = f" after {time.monotonic() - began:.0f} s of waiting" if policy == "wait" else ""
    return tuple(f"{sentence} when the run began{waited}" for sentence in in_use)


def memory_taken(gpus: Sequence[Gpu]) -> dict[str, int]:
    """Return a dict from UUID to the bytes that are in use now. GPUs whose driver does not answer are left out."""
    found: dict[str, int] = {}
    with nvml_session() as nvml:
        for gpu in gpus if nvml is not None else ():
            try:
                found[gpu.uuid] = memory_in_use(nvml, nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
            except nvml.NVMLError:
                continue
    return found


def given_back(gpus: Sequence[Gpu], before: dict[str, int], *, patience_s: float = GIVEN_BACK_S) -> tuple[str, ...]:
    """Wait until the GPUs use as little memory as before the run. Return a sentence for each GPU that still uses more."""
    deadline = time.monotonic() + patience_s
    while True:
        now = memory_taken(gpus) if before else {}
        kept = {uuid: now[uuid] - taken for uuid, taken in before.items() if now.get(uuid, 0) > taken + RESIDUE_BYTES}
        if not kept or time.monotonic() >= deadline:
            break
        time.sleep(_PAUSE_S)
    return tuple(
        f"{patience_s:.0f} s after the run, GPU {gpu.index} used {kept[gpu.uuid] / 2**30:.2f} GiB more than before the run"
        for gpu in gpus
        if gpu.uuid in kept
    )


def occupants(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Return a description of each GPU that is in use, with its processes and the memory in use."""
    return tuple(
        f"GPU {one.gpu.index} ({one.gpu.name}) was in use ({one.used_bytes / 2**30:.1f} GiB, "
        f"{', '.join(process.words for process in one.processes) or 'by no visible process'})"
        for one in occupied(gpus)
    )
