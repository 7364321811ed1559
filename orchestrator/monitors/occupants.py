"""The GPUs that other programs use, and their processes: asked before a run, and before a machine is screened.

A GPU is in use if a process computes on it, or if more than 1 GiB of its memory is taken. A GPU whose driver does not answer counts
as idle.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.machine.gpus import nvml_session
from orchestrator.monitors.nvml_numbers import named
from orchestrator.monitors.nvml_sampler import memory_in_use, processes
from orchestrator.records import Gpu

# A display and the driver itself use less than this.
IDLE_BYTES = 2**30
# Every process that computes on a GPU has this device open.
_COMPUTING = "/dev/nvidia-uvm"


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupant:
    """A process on a GPU, in words. `is_here` is false if its number is from another container, so that its name is unknown.

    `is_ending` means that the kernel is just ending the process. The driver frees its memory soon.
    """

    words: str
    is_here: bool
    is_ending: bool
    memory_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupied:
    """A GPU that is in use: the memory in use, and its processes, if NVML shows any."""

    gpu: Gpu
    used_bytes: int
    processes: tuple[Occupant, ...]


def occupied(gpus: Sequence[Gpu]) -> tuple[Occupied, ...]:
    """Return the GPUs that are in use."""
    with nvml_session() as nvml:
        if nvml is None:
            return ()
        found = []
        for gpu in gpus:
            try:
                handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                used, busy = memory_in_use(nvml, handle), _processes(nvml, handle)
            except nvml.NVMLError:
                continue
            if busy or used > IDLE_BYTES:
                found.append(Occupied(gpu=gpu, used_bytes=used, processes=busy))
        return tuple(found)


def _processes(nvml: Any, handle: Any) -> tuple[Occupant, ...]:
    try:
        seen = processes(nvml, handle).split()
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:  # then only the memory decides
        return ()
    memory = {one.pid: one.usedGpuMemory for one in running}
    return tuple(_occupant(one, memory) for one in seen)


def _occupant(seen: str, memory: Mapping[int, int | None]) -> Occupant:
    """Return the process that the sampler's text describes, such as `foreign:12:python`."""
    kind, pid, *_ = seen.split(":", 2)
    return Occupant(
        words=named(seen),
        is_here=kind in ("own", "foreign"),
        is_ending=kind == "leaving",
        memory_bytes=memory.get(int(pid)),
    )


def computing_here(proc: Path = Path("/proc")) -> tuple[str, ...]:
    """Return the processes of this container that use some GPU, in words, without this process.

    In a container, NVML may know only the host's numbers of processes, or none. Then it is unknown which GPU a process uses.
    """
    found = []
    for folder in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        if int(folder.name) != os.getpid() and any(map(_is_computing, _opened(folder))):
            with suppress(OSError):
                found.append(f"process {folder.name} ({(folder / 'comm').read_text(errors='replace').strip()})")
    return tuple(found)


def _opened(folder: Path) -> Iterator[str]:
    """Yield the paths of a process's open files. Yield nothing for a process of another user."""
    with suppress(OSError):
        for name in os.listdir(folder / "fd"):
            with suppress(OSError):
                yield os.readlink(folder / "fd" / name)


def _is_computing(path: str) -> bool:
    return path.startswith(_COMPUTING)
