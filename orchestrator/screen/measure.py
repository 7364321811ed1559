"""Measure this machine with the program `workers/screen/`: one process for each GPU, or two processes on the CPU.

The program runs in a process of its own, because it imports torch. It writes a file after each figure. So the figures that were
measured before a crash or the time limit are kept, and each other figure has the reason.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.files.package import WORKERS
from orchestrator.files.printable_text import one_line
from orchestrator.machine import process, process_identity
from orchestrator.machine.gpus import (
    active_nvlinks,
    driver_versions,
    link_between,
    nvml_problem,
    nvml_session,
    pci_addresses,
    pcie_link,
    visible_gpus,
)
from orchestrator.machine.provenance import cpu_name
from orchestrator.measure.memory_logs import finite
from orchestrator.measure.rank_files import longest_core_wait
from orchestrator.monitors.occupants import Occupied, computing_here, occupied
from orchestrator.records import Command, Gpu, Limit
from orchestrator.screen import stored
from orchestrator.screen.figures import CPU, OF_A_GPU, OF_A_PAIR, OF_ALL, Card, Figure, Link, Screen
from orchestrator.screen.judge import history, off

PROGRAM = WORKERS / "screen" / "screen.py"
ON_CPU = 2
# A node with eight GPUs needs less than a minute, and torch may load slowly.
LIMIT_S = 180.0
# A driver takes seconds to free the memory of a process that ends.
ENDING_S = 5.0
_VERSIONS = ("torch", "cuda", "nccl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The files that the program wrote: of the host, and of each rank. `problem` is the reason for what they lack."""

    host: Mapping[str, Any]
    ranks: Sequence[Mapping[str, Any]]
    problem: str


def screen(python: str | None) -> Screen:
    """Measure this machine with an interpreter (None: Tunebench's own), judge the figures and store them.

    Raise KeyboardInterrupt if a signal asks to stop, and ResultsError if the figures cannot be stored.
    """
    began, gpus = time.monotonic(), visible_gpus()
    host = process_identity.host_name()
    in_use = _in_use(gpus)
    perhaps = computing_here() if any(not _is_known(one) for one in in_use) else ()
    found = _run(python, gpus)
    links = tuple(_links(gpus))
    measured = Screen(
        host=host,
        taken_at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        took_s=round(time.monotonic() - began, 1),
        cpu=cpu_name(),
        software=_software(found, gpus),
        cards=tuple(_cards(gpus, in_use, perhaps)),
        links=links,
        figures=(_figure(CPU, (), "", found.host, (), found), *_of_ranks(gpus, links, found)),
        core_wait_share=longest_core_wait((found.host, *found.ranks)),
    )
    before = history(measured, stored.read(stored.folder_of(host)))
    judged = replace(measured, off=off(measured, before), earlier=len(before.get((CPU, ""), ())))
    stored.keep(judged)
    return judged


def _run(python: str | None, gpus: Sequence[Gpu]) -> Found:
    """Run the program, and return what it wrote."""
    processes, addresses = len(gpus) or ON_CPU, pci_addresses(gpus)
    argv = [os.path.expanduser(python or sys.executable), str(PROGRAM)]
    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus)}
    with tempfile.TemporaryDirectory(prefix="tunebench-screen-") as name:
        folder, log = Path(name), Path(name) / "log"
        words = [*argv, name, "--processes", str(processes)]
        if gpus:
            words += ["--gpus", ",".join(addresses.get(gpu.uuid, "unknown") for gpu in gpus)]
        outcome = process.run(
            Command(argv=tuple(words), env=env, cwd=folder), stdout=log, stderr=log, timeout_s=LIMIT_S
        )
        if outcome.cancelled:
            raise KeyboardInterrupt
        ranks = [_read(folder / f"rank{rank}.json") for rank in range(processes)]
        last = (reading.read_tail(log, limit=64 * 1024).strip().splitlines() or ["it ended without any output"])[-1]
        problem = f"it took longer than {LIMIT_S:.0f} s" if outcome.limit is Limit.WALL else one_line(last, longest=300)
        return Found(host=_read(folder / "host.json"), ranks=ranks, problem=problem)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        written = reading.read_json(path, limit=reading.RECORD_BYTES)
    except (OSError, ValueError):
        return {}
    if not isinstance(written, dict):
        return {}
    figures = written.get("figures")
    return {**written, "figures": [one for one in figures if _has_form(one)] if isinstance(figures, list) else []}


def _has_form(figure: object) -> bool:
    """Return whether the program wrote this figure, and not another program in its place."""
    if not isinstance(figure, dict) or not isinstance(figure.get("name"), str):
        return False
    return isinstance(figure.get("ranks"), list) and isinstance(figure.get("samples", []), list)


def _software(found: Found, gpus: Sequence[Gpu]) -> dict[str, str]:
    written = {"python": found.host.get("python")}
    for rank in found.ranks:
        written |= {name: rank[name] for name in _VERSIONS if rank.get(name)}
    written["driver"] = driver_versions()["driver"] if gpus else None
    return {name: str(version) for name, version in written.items() if version}


def _in_use(gpus: Sequence[Gpu]) -> tuple[Occupied, ...]:
    """Return the GPUs that other programs use. First wait a few seconds for processes that are just ending."""
    deadline = time.monotonic() + ENDING_S
    while True:
        found = occupied(gpus)
        is_ending = any(occupant.is_ending for one in found for occupant in one.processes)
        if not is_ending or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _is_known(one: Occupied) -> bool:
    return any(occupant.is_here for occupant in one.processes)


def _cards(gpus: Sequence[Gpu], in_use: Sequence[Occupied], perhaps: Sequence[str]) -> Iterator[Card]:
    """Yield the GPUs, each with the processes on it. `perhaps` are processes that may be on a GPU whose processes have no name."""
    busy = {one.gpu.uuid: one for one in in_use}
    with nvml_session() as nvml:
        for gpu in gpus:
            one = busy.get(gpu.uuid)
            yield Card(
                index=gpu.index,
                uuid=gpu.uuid,
                name=gpu.name,
                pcie=pcie_link(nvml, gpu) if nvml else None,
                nvlinks=active_nvlinks(nvml, gpu) if nvml else None,
                used_bytes=one.used_bytes if one else None,
                processes=_words(one, perhaps) if one else (),
            )


def _words(one: Occupied, perhaps: Sequence[str]) -> tuple[str, ...]:
    known = [
        f"{occupant.words}, {occupant.memory_bytes / 2**30:.1f} GiB" if occupant.memory_bytes else occupant.words
        for occupant in one.processes
    ]
    return (*known, *(() if _is_known(one) else (f"perhaps {words}" for words in perhaps)))


def _links(gpus: Sequence[Gpu]) -> Iterator[Link]:
    with nvml_session() as nvml:
        for first, second in combinations(gpus, 2) if nvml else ():
            if kind := link_between(nvml, first, second):
                yield Link(gpus=(first.index, second.index), kind=kind)


def _of_ranks(gpus: Sequence[Gpu], links: Sequence[Link], found: Found) -> Iterator[Figure]:
    """Yield the figures of the GPUs, of all together and of each pair. Without a GPU, yield those of the processes on the CPU."""
    if not gpus:
        why = nvml_problem()
        yield from (Figure(name=name, missing=why) for name in OF_A_GPU)
    for rank, gpu in enumerate(gpus):
        for name in OF_A_GPU:
            yield _figure(name, (gpu.index,), gpu.name, found.ranks[rank], (rank,), found)
    if len(gpus) == 1:
        why = "it needs two GPUs, and one is visible"
        yield from (Figure(name=name, missing=why) for name in (*OF_ALL, *OF_A_PAIR))
        return
    ways, products = {link.gpus: link.kind for link in links}, " and ".join(sorted({gpu.name for gpu in gpus}))
    like = f"{len(gpus)} × {products}" if gpus else f"{ON_CPU} processes on the CPU"
    every, indices = tuple(range(len(gpus) or ON_CPU)), tuple(gpu.index for gpu in gpus)
    for name in OF_ALL:
        yield _figure(name, (), like, found.ranks[0], every, found)
    for first, second in combinations(every, 2):
        pair = (indices[first], indices[second]) if gpus else ()
        like_pair = f"{ways.get(pair, 'unknown link')}, {products}" if len(pair) == 2 else like
        for name in OF_A_PAIR:
            yield _figure(name, pair, like_pair, found.ranks[first], (first, second), found)


def _figure(
    name: str, gpus: tuple[int, ...], like: str, written: Mapping[str, Any], ranks: tuple[int, ...], found: Found
) -> Figure:
    """Return a figure from the file of a rank, or the reason why it is missing."""
    figures = written.get("figures", [])
    mine: Mapping[str, Any] = next((one for one in figures if one["name"] == name and tuple(one["ranks"]) == ranks), {})
    samples = tuple(sample for one in mine.get("samples", ()) if (sample := finite(one)) is not None and sample > 0)
    if samples:
        return Figure(name=name, gpus=gpus, like=like, samples=samples)
    shared = written.get("collective_problem") if name in (*OF_ALL, *OF_A_PAIR) else None
    why = mine.get("missing") or shared or written.get("problem") or found.problem
    return Figure(name=name, gpus=gpus, like=like, missing=one_line(str(why), longest=300), failed=True)
