"""The monitors, one dict: name -> instance. Third parties add theirs by the entry-point group `tunebench.monitors`.

An entry point is loaded when a monitor that is not ours is asked for; one that fails to load is reported by its name
and never stops the program. A monitor of ours can't be replaced from outside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from orchestrator import plugs
from orchestrator.errors import SelectionError
from orchestrator.monitors.hf_memory import HfMemory
from orchestrator.monitors.monitor import Monitor
from orchestrator.monitors.nvidia_smi import NvidiaSmi
from orchestrator.monitors.nvml import Nvml

__all__ = ["ENTRY_POINTS", "MONITORS", "Monitor", "get", "load_problems", "names", "perturbing"]

ENTRY_POINTS = "tunebench.monitors"

MONITORS: Mapping[str, Monitor] = {
    "hf_memory": HfMemory(),
    "hf_memory_native": HfMemory(native=True),
    "nvidia_smi": NvidiaSmi(),
    "nvml": Nvml(),
}


def get(name: str) -> Monitor:
    """The monitor of that name. Raises SelectionError, which says what there is and what failed to load."""
    if name in MONITORS:
        return MONITORS[name]
    others, problems = _third_parties()
    if name in others:
        return others[name]
    raise SelectionError(" ".join([f"There is no monitor '{name}'; there are: {', '.join(names())}.", *problems]))


def names() -> tuple[str, ...]:
    """Every monitor that can be asked for, ours first."""
    return (*MONITORS, *sorted(_third_parties()[0]))


def perturbing(chosen: Collection[str]) -> frozenset[str]:
    """Return the chosen monitors that slow a run. A monitor that is not installed counts as one of them."""
    every = MONITORS if MONITORS.keys() >= {*chosen} else {**_third_parties()[0], **MONITORS}
    return frozenset(name for name in chosen if name not in every or every[name].perturbs)


def load_problems() -> tuple[str, ...]:
    """A sentence for each installed monitor that could not be loaded."""
    return _third_parties()[1]


def _third_parties() -> tuple[Mapping[str, Monitor], tuple[str, ...]]:
    return plugs.installed(ENTRY_POINTS, Monitor, ours=MONITORS)
