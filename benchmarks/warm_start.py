"""Compares campaigns of warm runs with campaigns of cold runs, side by side on one machine.

    python benchmarks/warm_start.py [SCENARIOS.yaml] [--rounds 3] [--scenario quickstart]

In each round both kinds run once, in changing order, each into a new results folder. Prints two times, each
with the ratio warm / cold: the wall time of the whole command, and the time of a run outside its training.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="?", default=str(ROOT / "scenarios.yaml"))
    parser.add_argument("--scenario", default="quickstart")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"warm": [], "cold": []}
    for number in range(given.rounds):
        for kind in ("warm", "cold")[:: 1 if number % 2 else -1]:
            found[kind].append(campaign(given.scenarios, given.scenario, kind))
            print(kind, *(f"{seconds:.1f} s" for seconds in found[kind][-1]), flush=True)
    for place, name in enumerate(("wall time", "outside the training, per run")):
        warm, cold = (median(one[place] for one in found[kind]) for kind in ("warm", "cold"))
        print(f"{name}: warm {warm:.1f} s, cold {cold:.1f} s, {warm / cold:.0%}")


def campaign(scenarios: str, scenario: str, kind: str) -> tuple[float, float]:
    """Return the wall time of a campaign, and the median time of its runs outside their training."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", scenarios, "--scenario", scenario, f"--{kind}", "--results", f"{folder}/results", "--yes"]
        began = time.monotonic()
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", "orchestrator", *words], check=True, env=env, capture_output=True)
        took = time.monotonic() - began
        return took, median(map(outside_s, Path(folder).glob("results/experiments/*/runs/*")))


def outside_s(run: Path) -> float:
    stamps = json.loads((run / "worker-rank0.json").read_text())["stamps"]
    ended = (run / "record.json").stat().st_mtime
    return (
        ended - json.loads((run / "job.json").read_text())["claimed_at"] - stamps["train_end"] + stamps["train_begin"]
    )


if __name__ == "__main__":
    main()
