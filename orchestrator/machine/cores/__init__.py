"""The machine's cores: the threads of each physical core, its NUMA node, and the GPUs of that node. Reads sysfs.

Cores that this process may not use are left out. If the system does not describe its cores, they count as one node, and each thread
counts as a core.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from orchestrator.records import Gpu

SYS = Path("/sys")


def physical_cores(sys: Path = SYS) -> dict[int, list[tuple[int, ...]]]:
    """Return the physical cores of each NUMA node. A core is a tuple of the threads that this process may use."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    nodes = {
        int(path.name.removeprefix("node")): parse_cpu_list(_text(path / "cpulist"))
        for path in sorted(sys.glob("devices/system/node/node[0-9]*"))
    }
    cores: dict[int, list[tuple[int, ...]]] = {}
    seen: set[int] = set()
    for node, threads in sorted(nodes.items()) or [(0, sorted(allowed))]:
        for thread in threads:
            if thread not in allowed or thread in seen:
                continue
            siblings = parse_cpu_list(_text(sys / f"devices/system/cpu/cpu{thread}/topology/thread_siblings_list"))
            core = tuple(sibling for sibling in siblings or [thread] if sibling in allowed)
            seen.update(core)
            cores.setdefault(node, []).append(core)
    return cores


def numa_nodes(gpus: Iterable[Gpu], bus_ids: Mapping[str, str], sys: Path = SYS) -> dict[str, int]:
    """Return a dict from GPU UUID to NUMA node. GPUs with an unknown node are left out. `bus_ids` maps UUIDs to PCI addresses."""
    nodes = {}
    for gpu in gpus:
        address = bus_ids.get(gpu.uuid, "").lower()
        text = _text(sys / "bus/pci/devices" / address[-12:] / "numa_node") if address else ""
        if text.strip().lstrip("-").isdecimal() and int(text) >= 0:
            nodes[gpu.uuid] = int(text)
    return nodes


def cores_of_gpus(
    gpus: Sequence[Gpu], nodes: Mapping[str, int], cores: Mapping[int, Sequence[tuple[int, ...]]]
) -> dict[str, tuple[int, ...]]:
    """Return a dict from GPU UUID to the GPU's share of its node's cores.

    If the node of any GPU is unknown, all GPUs share all cores.
    """
    every_core = [core for node in cores.values() for core in node]
    known = all(nodes.get(gpu.uuid) in cores for gpu in gpus)
    groups: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(nodes[gpu.uuid] if known else 0, []).append(gpu)
    cores_by_uuid: dict[str, tuple[int, ...]] = {}
    for node, members in groups.items():
        shares = deal(cores[node] if known else every_core, len(members))
        cores_by_uuid |= {gpu.uuid: share for gpu, share in zip(members, shares, strict=True)}
    return cores_by_uuid


def deal(cores: Sequence[Sequence[int]], shares: int) -> list[tuple[int, ...]]:
    """Divide the physical cores evenly, and return the threads of each share.

    If there are fewer cores than shares, all shares are empty.
    """
    if shares <= 0 or len(cores) < shares:
        return [()] * max(0, shares)
    each, more = divmod(len(cores), shares)
    bounds = [number * each + min(number, more) for number in range(shares + 1)]
    return [tuple(thread for core in cores[a:b] for thread in core) for a, b in pairwise(bounds)]


def parse_cpu_list(text: str) -> list[int]:
    """Return the numbers in a list such as `0-3,8`. Skip everything that is not a number."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            numbers += range(int(first), int(last if last.isdecimal() else first) + 1)
    return numbers


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def use_only(cores: Sequence[int]) -> None:
    """Restrict this process and its children to `cores`. Do nothing if `cores` is empty."""
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
