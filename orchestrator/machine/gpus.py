"""The GPUs of this machine by NVML: which ones a run may use, and the state they are in. Never raises.

Order is NVML's, by PCI bus, which is CUDA's where CUDA_DEVICE_ORDER=PCI_BUS_ID, as every run of ours has it. A machine
without driver or library has no GPUs. MIG parts are found where CUDA_VISIBLE_DEVICES names them by UUID.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from orchestrator.errors import SelectionError
from orchestrator.records import Gpu

_DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")
"""One of these is there where an NVIDIA driver is, also under WSL: without any, a plan need not load NVML to see none."""


@contextmanager
def nvml_session() -> Iterator[Any]:
    """The library, initialised; None where there is no driver or it does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # a missing module, a missing library, a driver that does not match: no GPU is visible
        yield None
        return
    try:
        yield pynvml
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def nvml_problem() -> str:
    """Why NVML has no GPU to show, and what to do about it: a sentence for those to whom it showed none."""
    try:
        import pynvml
    except ImportError:
        return "pynvml, by which GPUs are read, is not installed: pip install nvidia-ml-py"
    try:
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        if not any(map(os.path.exists, _DRIVER)):
            return (
                f"no NVIDIA driver is loaded here ({error}): use a machine with NVIDIA GPUs, "
                "or start the container with its GPUs (docker run --gpus all)"
            )
        return f"the NVIDIA driver is there, but NVML cannot be used ({error}): check what `nvidia-smi` says"
    return "NVML finds no GPU: check what `nvidia-smi` says, and which GPUs this container or job was given"


def every_gpu(nvml: Any) -> tuple[Gpu, ...]:
    """All GPUs that NVML counts, whatever CUDA_VISIBLE_DEVICES says; one that does not answer has no UUID and no name."""
    indices = range(_ask(nvml.nvmlDeviceGetCount) or 0)
    return tuple(_ask(partial(_gpu, nvml, index)) or Gpu(index=index, uuid="", name="") for index in indices)


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that this process may use: all, or those that its CUDA_VISIBLE_DEVICES names by index or UUID."""
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if (asked is not None and not asked.strip()) or not any(map(os.path.exists, _DRIVER)):
        return ()
    with nvml_session() as nvml:
        if nvml is None:
            return ()
        try:
            every = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
            return every if asked is None else _named(nvml, every, asked)
        except Exception:  # a GPU that fell off the bus makes NVML fail in many ways; such a machine has none to offer
            return ()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return _described(nvml, handle, index)


def _described(nvml: Any, handle: Any, index: int) -> Gpu:
    memory = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Gpu(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=memory,
    )


def _named(nvml: Any, every: tuple[Gpu, ...], asked: str) -> tuple[Gpu, ...]:
    """Those that the list names, up to its first word that names none, as CUDA reads it; in PCI order."""
    chosen: list[Gpu] = []
    for word in (part.strip() for part in asked.split(",")):
        gpu = mig_part(nvml, word) if word.startswith("MIG-") else chosen_by(word, every)
        if gpu is None or gpu in chosen:
            break
        chosen.append(gpu)
    return tuple(sorted(chosen, key=lambda gpu: gpu.index))


def chosen_by(word: str, every: tuple[Gpu, ...]) -> Gpu | None:
    """The GPU of that index, or whose UUID begins so; None where there is none or more than one."""
    if word.isdecimal():
        return next((gpu for gpu in every if gpu.index == int(word)), None)
    found = [gpu for gpu in every if word.startswith("GPU-") and gpu.uuid.startswith(word)]
    return found[0] if len(found) == 1 else None


def chosen(asked: str, visible: Sequence[Gpu], *, option: str) -> tuple[Gpu, ...]:
    """Those of the visible GPUs that a list names by index, UUID or its beginning. Raises SelectionError for other words."""
    found: list[Gpu] = []
    for word in map(str.strip, asked.split(",")):
        gpu = next((one for one in visible if one.uuid == word), None) or chosen_by(word, tuple(visible))
        if gpu is None:
            there = ", ".join(f"{one.index} ({one.name}, {one.uuid})" for one in visible) or "none"
            raise SelectionError(f"{option} {asked}: {word!r} names no GPU that is visible; there are: {there}")
        found.append(gpu)
    return tuple(dict.fromkeys(found))


def mig_part(nvml: Any, uuid: str) -> Gpu | None:
    """The part of a GPU that has this UUID, under its GPU's index; None where there is none."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        parent = nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
        return _described(nvml, handle, parent)
    except nvml.NVMLError:
        return None


def idlest_first(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs by how much of their memory is in use, in steps of a GiB; those of one step stay in their order."""
    with nvml_session() as nvml:
        if nvml is None:
            return tuple(gpus)
        used = {gpu: _ask(partial(_used, nvml, gpu)) or 0 for gpu in gpus}
    return tuple(sorted(gpus, key=lambda gpu: used[gpu] >> 30))


def pci_addresses(gpus: Sequence[Gpu]) -> dict[str, str]:
    """UUID → address on the PCI bus, of those that say."""
    with nvml_session() as nvml:
        if nvml is None:
            return {}
        found = {gpu.uuid: _ask(partial(_pci_address, nvml, gpu)) for gpu in gpus}
    return {uuid: address for uuid, address in found.items() if address}


def _used(nvml: Any, gpu: Gpu) -> int:
    return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used)


def _pci_address(nvml: Any, gpu: Gpu) -> str:
    return _text(nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).busId)


def gpu_state(gpu: Gpu) -> dict[str, Any]:
    """What a GPU is and how it is set, now: limits, clocks, temperature. What a part does not support is None."""
    state: dict[str, Any] = {"index": gpu.index, "uuid": gpu.uuid, "name": gpu.name, "memory_bytes": gpu.memory_bytes}
    with nvml_session() as nvml:
        if nvml is None:
            return state
        handle = _ask(lambda: nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
        if handle is None:
            return state
        return state | {name: _ask(read) for name, read in _readings(nvml, handle).items()}


def _readings(nvml: Any, handle: Any) -> dict[str, Callable[[], Any]]:
    sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
    return {
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, sm),
        "sm_clock_max_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, sm),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, memory),
        "clock_event_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "persistence_mode": lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
        "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
        "pci_bus_id": lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
    }


def driver_versions() -> dict[str, str | None]:
    """The driver's version and the CUDA version that it supports."""
    with nvml_session() as nvml:
        if nvml is None:
            return {"driver": None, "cuda": None}
        cuda = _ask(nvml.nvmlSystemGetCudaDriverVersion)
        return {
            "driver": _ask(lambda: _text(nvml.nvmlSystemGetDriverVersion())),
            "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        }


def _ask(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # NVMLError, or AttributeError in an older binding: this part or driver does not say
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
