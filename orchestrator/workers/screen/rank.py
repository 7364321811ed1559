"""Measures with one of several processes: `rank.py FOLDER RANK PROCESSES PCI_ADDRESS`. Without an address, it uses the CPU.

1. All GPUs at the same time: matrix products, and copies inside the GPU's memory. All GPUs are busy, as in a training.
2. One GPU after the other: copies from and to the host, and launches. They would disturb each other.
3. Together: all-reduce, and then each pair of GPUs.

The processes wait for each other with gloo, so a GPU that fails does not stop the others.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, List, Set

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves the script's folder out

from written_figures import Figures, in_words


def cores_near(address: str) -> Set[int]:
    """Return the cores next to a GPU with this PCI address. They are empty if the system does not say."""
    domain, _, rest = address.lower().partition(":")
    try:
        with open(f"/sys/bus/pci/devices/{domain[-4:]}:{rest}/local_cpulist", encoding="ascii") as file:
            spans = [span.split("-") for span in file.read().strip().split(",") if span]
        return {core for span in spans for core in range(int(span[0]), int(span[-1]) + 1)}
    except (OSError, ValueError):
        return set()


def stay_near(address: str) -> None:
    """Use only cores next to the GPU, so that memory for copies is not on another socket."""
    if hasattr(os, "sched_setaffinity"):
        near = cores_near(address) & os.sched_getaffinity(0)
        if near:
            os.sched_setaffinity(0, near)


def measure(figures: Figures, folder: str, rank: int, processes: int, on_gpu: bool) -> None:
    import collective
    import torch

    figures.note(torch=torch.__version__, cuda=torch.version.cuda)
    if on_gpu and not torch.cuda.is_available():
        figures.note(problem=f"torch {torch.__version__} cannot use the GPUs")
        return
    together = collective.Together(folder, rank, processes)
    works = _measure_gpu(figures, rank, processes, together.barrier) if on_gpu else True
    if processes > 1:
        collective.measure(figures, together, on_gpu=on_gpu, works=works)
    together.end()


def _measure_gpu(figures: Figures, rank: int, processes: int, barrier: Callable[[], Any]) -> bool:
    """Measure the GPU. Return whether it can be used at all."""
    import card

    barrier()
    try:
        card.begin(rank)
    except Exception as error:
        figures.note(problem=in_words(error))
    works = "problem" not in figures.found
    for name, samples in card.AT_THE_SAME_TIME.items() if works else ():
        figures.measure(name, [rank], samples)
    for turn in range(processes):
        barrier()
        for name, samples in card.IN_TURNS.items() if works and turn == rank else ():
            figures.measure(name, [rank], samples)
    barrier()
    return works


def main(words: List[str]) -> int:
    folder, rank, processes, address = words
    figures = Figures(os.path.join(folder, f"rank{rank}.json"))
    if address:
        stay_near(address)
    try:
        measure(figures, folder, int(rank), int(processes), bool(address))
    except Exception as error:
        figures.note(problem=in_words(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
