"""Measures the figures of one machine: `screen.py FOLDER --processes 2 [--gpus]`. The files of FOLDER are the result.

`host.json` has the figure of the CPU. It is measured first, while nothing else of this program runs. Then a process for each GPU
starts (`rank.py`), or processes on the CPU, and each writes `rank<R>.json`. A process that fails does not end the others.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from typing import List

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves the script's folder out

from written_figures import SAMPLES, Figures

# The loop takes about 50 ms per pass on a core of 2024.
LOOPS = 1_000_000
PASSES = 3


def loop_rates() -> List[float]:
    """Return five rates of a fixed loop of Python, in loops per second. Each is the fastest of three passes.

    Another process on the core only makes a pass slower, so the fastest pass says most about the core.
    """
    _seconds_of_loop()
    return [LOOPS / min(_seconds_of_loop() for _ in range(PASSES)) for _ in range(SAMPLES)]


def _seconds_of_loop() -> float:
    value, began = 1, time.perf_counter()
    for _ in range(LOOPS):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return time.perf_counter() - began


def main(words: List[str]) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("folder")
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--gpus", default="", help="PCI addresses, separated by commas; empty: processes on the CPU")
    given = parser.parse_args(words)
    figures = Figures(os.path.join(given.folder, "host.json"))
    figures.note(python=platform.python_version())
    figures.measure("cpu_loops_per_s", [], loop_rates)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank.py")
    addresses = given.gpus.split(",") if given.gpus else [""] * given.processes
    ranks = [
        subprocess.Popen([sys.executable, program, given.folder, str(rank), str(given.processes), address])
        for rank, address in enumerate(addresses)
    ]
    return max(abs(rank.wait()) for rank in ranks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
