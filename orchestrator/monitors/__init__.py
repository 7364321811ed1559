"""The monitors: a dict from name to instance. Other packages add monitors under the entry-point group `tunebench.monitors`."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator.entry_points import Registry
from orchestrator.monitors.hf_memory import HfMemory
from orchestrator.monitors.monitor import Monitor
from orchestrator.monitors.nvidia_smi import NvidiaSmi
from orchestrator.monitors.nvml import Nvml
from orchestrator.monitors.torch_profiler import MemorySnapshot, TorchProfiler

__all__ = ["MONITORS", "Monitor", "get", "load_problems", "names", "perturbing"]

MONITORS: Mapping[str, Monitor] = {
    "hf_memory": HfMemory(),
    "hf_memory_native": HfMemory(native=True),
    "nvidia_smi": NvidiaSmi(),
    "nvml": Nvml(),
    "memory_snapshot": MemorySnapshot(),
    "torch_profiler": TorchProfiler(),
}

_REGISTRY = Registry(kind=Monitor, group="tunebench.monitors", ours=MONITORS)
get, names, load_problems = _REGISTRY.get, _REGISTRY.names, _REGISTRY.load_problems


def perturbing(chosen: Collection[str]) -> frozenset[str]:
    """Return the chosen monitors that slow a run. A chosen monitor that is not installed counts as one of them."""
    plugs = {name: _REGISTRY.find(name) for name in chosen}
    return frozenset(name for name, monitor in plugs.items() if monitor is None or monitor.perturbs)
