"""The machine's cores: which threads are one physical core, on which NUMA node, and which GPU stands beside them. Reads sysfs.

Cores that this process may not use are left out. Where the system says nothing there is one node of single threads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from orchestrator.records import Gpu

SYS = Path("/sys")


def physical_cores(sys: Path = SYS) -> dict[int, list[tuple[int, ...]]]:
    """NUMA node → its physical cores, each as the threads of it that this process may use."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    nodes = {
        int(path.name.removeprefix("node")): parsed(_text(path / "cpulist"))
        for path in sorted(sys.glob("devices/system/node/node[0-9]*"))
    }
    found: dict[int, list[tuple[int, ...]]] = {}
    seen: set[int] = set()
    for node, threads in sorted(nodes.items()) or [(0, sorted(allowed))]:
        for thread in threads:
            if thread not in allowed or thread in seen:
                continue
            siblings = parsed(_text(sys / f"devices/system/cpu/cpu{thread}/topology/thread_siblings_list")) or [thread]
            core = tuple(one for one in siblings if one in allowed)
            seen.update(core)
            found.setdefault(node, []).append(core)
    return found


def nodes_of(gpus: Iterable[Gpu], bus_ids: Mapping[str, str], sys: Path = SYS) -> dict[str, int]:
    """GPU's UUID → its NUMA node, of those whose place on the PCI bus is known; `bus_ids` maps UUIDs to PCI addresses."""
    found = {}
    for gpu in gpus:
        address = bus_ids.get(gpu.uuid, "").lower()
        text = _text(sys / "bus/pci/devices" / address[-12:] / "numa_node") if address else ""
        if text.strip().lstrip("-").isdecimal() and int(text) >= 0:
            found[gpu.uuid] = int(text)
    return found


def cores_of_gpus(
    gpus: Sequence[Gpu], nodes: Mapping[str, int], cores: Mapping[int, Sequence[tuple[int, ...]]]
) -> dict[str, tuple[int, ...]]:
    """GPU's UUID → its share of its node's cores; a GPU whose node is unknown, or has none, shares in all of them."""
    every = [core for node in cores.values() for core in node]
    known = all(nodes.get(gpu.uuid) in cores for gpu in gpus)
    groups: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(nodes[gpu.uuid] if known else 0, []).append(gpu)
    found: dict[str, tuple[int, ...]] = {}
    for node, members in groups.items():
        shares = dealt(cores[node] if known else every, len(members))
        found |= {gpu.uuid: share for gpu, share in zip(members, shares, strict=True)}
    return found


def dealt(cores: Sequence[Sequence[int]], shares: int) -> list[tuple[int, ...]]:
    """Physical cores (each with its threads) dealt to so many shares, as evenly as can be; none where they do not suffice."""
    if shares <= 0 or len(cores) < shares:
        return [()] * max(0, shares)
    each, more = divmod(len(cores), shares)
    bounds = [number * each + min(number, more) for number in range(shares + 1)]
    return [tuple(thread for core in cores[a:b] for thread in core) for a, b in pairwise(bounds)]


def parsed(text: str) -> list[int]:
    """`0-3,8` as numbers; what is none is left out."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last if last.isdecimal() else first) + 1)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
