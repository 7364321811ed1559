"""Measure the cost of a call of `tunebench.steps.step`, and of a printed line for each step (`steps: stdout`).

    python benchmarks/step_call.py [CALLS]

Each way runs in five blocks, and the ways take turns. They write into a temporary folder. The table shows the fastest and the
median block.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from tunebench import steps

BLOCKS = 5


def blocks(ways: dict[str, Callable[[], None]], calls: int) -> dict[str, list[float]]:
    """Return the seconds of one call for each way and block."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(BLOCKS):
        for name, call in ways.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            found[name].append((time.perf_counter() - start) / calls)
    return found


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "stdout.log").open("w", buffering=1) as log:
        inside, outside = steps._Reporter(folder), steps._Reporter(None)

        def call() -> None:
            steps._reporter = inside
            steps.step(tokens=4096, samples=8)

        def call_outside() -> None:
            steps._reporter = outside
            steps.step(tokens=4096, samples=8)

        def printed() -> None:
            print(json.dumps({"step": 1, "time": time.perf_counter(), "tokens": 4096, "samples": 8}), file=log)

        found = blocks(
            {"step() in a run": call, "step() outside a run": call_outside, "a printed line": printed}, calls
        )
    for name, seconds in found.items():
        print(f"{name:<22} {min(seconds) * 1e6:6.1f} µs   {median(seconds) * 1e6:6.1f} µs")


if __name__ == "__main__":
    main()
