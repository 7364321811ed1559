"""Finds the GPUs of this machine with NVML, and reads their state. If NVML fails, no exception is raised.

The GPUs are in NVML's order, by PCI bus. Every run sets CUDA_DEVICE_ORDER=PCI_BUS_ID, so that CUDA has the same order. A
machine without the driver or the library counts as a machine without GPUs. MIG instances are found if CUDA_VISIBLE_DEVICES
names them by UUID.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from orchestrator.errors import SelectionError
from orchestrator.records import Gpu

# If an NVIDIA driver is loaded (also under WSL), one of these files exists. If none exists, a plan need not load NVML.
_DRIVER = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")
# A GPU has at most this number of NVLinks.
_MOST_NVLINKS = 18
# NVML's levels of topology: the nearest part that two GPUs share.
_PCIE_WAYS = {
    0: "PCIe on one board",
    10: "PCIe through one switch",
    20: "PCIe through several switches",
    30: "PCIe through the host",
    40: "PCIe inside a NUMA node",
    50: "PCIe between sockets",
}


@contextmanager
def nvml_session() -> Iterator[Any]:
    """Yield the initialised NVML library, or None if the driver is missing or does not answer."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # if pynvml, the library or a matching driver is missing, no GPU is visible
        yield None
        return
    try:
        yield pynvml
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def nvml_problem() -> str:
    """Return a sentence that says why NVML shows no GPU, and what to do about it."""
    try:
        import pynvml
    except ImportError:
        return "pynvml, which reads the GPUs, is not installed: pip install nvidia-ml-py"
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


def all_gpus(nvml: Any) -> tuple[Gpu, ...]:
    """Return all GPUs, including those that CUDA_VISIBLE_DEVICES hides. A GPU that does not answer has no UUID and no name."""
    indices = range(_ask(nvml.nvmlDeviceGetCount) or 0)
    return tuple(_ask(partial(_gpu, nvml, index)) or Gpu(index=index, uuid="", name="") for index in indices)


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that this process may use: all GPUs, or the GPUs that CUDA_VISIBLE_DEVICES names by index or UUID."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if (visible is not None and not visible.strip()) or not any(map(os.path.exists, _DRIVER)):
        return ()
    with nvml_session() as nvml:
        if nvml is None:
            return ()
        try:
            gpus = tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
            return gpus if visible is None else _visible(nvml, gpus, visible)
        except Exception:  # a GPU that fell off the bus makes NVML fail in many ways; such a machine has no usable GPU
            return ()


def _gpu(nvml: Any, index: int) -> Gpu:
    return _described(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index)


def _described(nvml: Any, handle: Any, index: int) -> Gpu:
    uuid, name = _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle))
    memory = _ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Gpu(index=index, uuid=uuid, name=name, memory_bytes=memory)


def _visible(nvml: Any, gpus: tuple[Gpu, ...], visible: str) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names, in PCI order. Like CUDA, stop at the first word that names no GPU."""
    named: list[Gpu] = []
    for word in map(str.strip, visible.split(",")):
        gpu = mig_instance(nvml, word) if word.startswith("MIG-") else find_gpu(word, gpus)
        if gpu is None or gpu in named:
            break
        named.append(gpu)
    return tuple(sorted(named, key=lambda gpu: gpu.index))


def find_gpu(word: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """Return the GPU whose index is `word`, or the only GPU whose UUID begins with `word`. Return None if there is no such GPU."""
    if word.isdecimal():
        return next((gpu for gpu in gpus if len(word) < 10 and gpu.index == int(word)), None)
    matches = [gpu for gpu in gpus if word.startswith("GPU-") and gpu.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def select_gpus(words: str, visible: Sequence[Gpu], *, option: str) -> tuple[Gpu, ...]:
    """Return the visible GPUs that `words` names by index or by the beginning of a UUID.

    Raise SelectionError for any other word.
    """
    selected: list[Gpu] = []
    for word in map(str.strip, words.split(",")):
        match = next((gpu for gpu in visible if gpu.uuid == word), None) or find_gpu(word, visible)
        if match is None:
            there = ", ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in visible)
            raise SelectionError(
                f"{option} {words}: {word!r} is not a visible GPU{'. Allowed: ' if visible else '; no GPU is visible here'}{there}"
            )
        selected.append(match)
    return tuple(dict.fromkeys(selected))


def mig_instance(nvml: Any, uuid: str) -> Gpu | None:
    """Return the MIG instance with this UUID, or None. Its `index` is the index of the GPU that contains it."""
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        parent = nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
        return _described(nvml, handle, parent)
    except nvml.NVMLError:
        return None


def idlest_first(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs sorted by memory in use, in whole GiB. GPUs with the same number of GiB keep their order."""
    with nvml_session() as nvml:
        if nvml is None:
            return tuple(gpus)
        used = {gpu: _ask(partial(_used, nvml, gpu)) or 0 for gpu in gpus}
    return tuple(sorted(gpus, key=lambda gpu: used[gpu] >> 30))


def pci_addresses(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return a dict from UUID to PCI address. GPUs with an unknown address are left out."""
    with nvml_session() as nvml:
        if nvml is None:
            return {}
        addresses = {gpu.uuid: _ask(partial(_pci_address, nvml, gpu)) for gpu in gpus}
    return {uuid: address for uuid, address in addresses.items() if address}


def pcie_link(nvml: Any, gpu: Gpu) -> str | None:
    """Return the highest generation of a GPU's PCIe link and its present width, such as `PCIe 5 ×16`. None if it is unknown."""
    handle = _ask(lambda: nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
    generation = _ask(lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
    width = _ask(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))
    return f"PCIe {generation} ×{width}" if generation and width else None


def active_nvlinks(nvml: Any, gpu: Gpu) -> int | None:
    """Return how many NVLinks of a GPU are active, or None if the GPU does not say."""
    handle = _ask(lambda: nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
    states = [_ask(partial(_nvlink_state, nvml, handle, link)) for link in range(_MOST_NVLINKS)]
    known = [state for state in states if state is not None]
    return sum(state == 1 for state in known) if known else None


def _nvlink_state(nvml: Any, handle: Any, link: int) -> int:
    return int(nvml.nvmlDeviceGetNvLinkState(handle, link))


def link_between(nvml: Any, first: Gpu, second: Gpu) -> str | None:
    """Return the type of the link between two GPUs: NVLink, or the nearest part of PCIe that they share. None if it is unknown."""
    handles = [_ask(partial(nvml.nvmlDeviceGetHandleByUUID, gpu.uuid)) for gpu in (first, second)]
    if _ask(lambda: nvml.nvmlDeviceGetP2PStatus(*handles, nvml.NVML_P2P_CAPS_INDEX_NVLINK)) == 0:
        return "NVLink"
    shared = _ask(lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(*handles))
    return None if shared is None else _PCIE_WAYS.get(shared, "PCIe")


def _used(nvml: Any, gpu: Gpu) -> int:
    return int(nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used)


def _pci_address(nvml: Any, gpu: Gpu) -> str:
    return _text(nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).busId)


def gpu_state(gpu: Gpu) -> dict[str, Any]:
    """Return a GPU's identity and present settings: limits, clocks, temperature. A value that the GPU does not support is None."""
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
    """Return a dict with the driver's version and the highest CUDA version that the driver supports."""
    with nvml_session() as nvml:
        if nvml is None:
            return {"driver": None, "cuda": None}
        cuda = _ask(lambda: nvml.nvmlSystemGetCudaDriverVersion())
        return {
            "driver": _ask(lambda: _text(nvml.nvmlSystemGetDriverVersion())),
            "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        }


def _ask(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # NVMLError, or AttributeError in an older binding: this GPU or driver does not support the call
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
