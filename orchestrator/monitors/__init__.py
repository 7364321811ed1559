"""The monitors, one dict: name -> instance. Third parties add theirs by the entry-point group `tunebench.monitors`.

An entry point is loaded when a monitor that is not ours is asked for; one that fails to load is reported by its name
and never stops the program. A monitor of ours can't be replaced from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from orchestrator.errors import SelectionError
from orchestrator.monitors.hf_memory import HfMemory
from orchestrator.monitors.monitor import Monitor
from orchestrator.monitors.nvidia_smi import NvidiaSmi
from orchestrator.monitors.nvml import Nvml

__all__ = ["ENTRY_POINTS", "MONITORS", "Monitor", "get", "load_problems", "names"]

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


def load_problems() -> tuple[str, ...]:
    """A sentence for each installed monitor that could not be loaded."""
    return _third_parties()[1]


@cache
def _third_parties() -> tuple[Mapping[str, Monitor], tuple[str, ...]]:
    from importlib.metadata import entry_points  # costs 20 ms, paid only when a monitor that is not ours is named

    found: dict[str, Monitor] = {}
    problems: list[str] = []
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in MONITORS:
            problems.append(f"The installed monitor '{point.name}' ({point.value}) has the name of a built-in one.")
            continue
        try:
            loaded = point.load()
            monitor = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:  # anything may be wrong in a third party's code, and none of it is ours to die of
            problems.append(f"The monitor '{point.name}' ({point.value}) could not be loaded: {error!r}.")
            continue
        if isinstance(monitor, Monitor):
            found[point.name] = monitor
        else:
            problems.append(f"The monitor '{point.name}' ({point.value}) is no Monitor: see docs/add-a-plug.md.")
    return found, tuple(problems)
