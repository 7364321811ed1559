"""Measure what waiting costs: CPU time of the orchestrator and of `run-one` while a run trains, as shares of one core.

    python benchmarks/waiting.py [--seconds 30] [--live]

The trainer sleeps, so that only our own cost is measured. Both processes are watched from 3 s after the start of the
run. `--live` gives the orchestrator a terminal, on which it draws once per second. Each run has the limits of a
careful scenario (stall_timeout_s).
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

SETTLE_S = 3.0
TRAINER = "import sys, time; open(sys.argv[1], 'w').close(); time.sleep(float(sys.argv[2])); print('{\"train_runtime\": 1.0}')"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--live", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_scenario(folder, given.seconds + SETTLE_S + 2)
        words = [sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes"]
        terminal = pty.openpty()[1] if given.live else subprocess.DEVNULL
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        running = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=terminal, env=env)
        while not (folder / "begun").exists():
            time.sleep(0.05)
        time.sleep(SETTLE_S)
        ours = {"orchestrator": psutil.Process(running.pid), "run-one": run_one(running.pid)}
        before = {name: cpu_s(process) for name, process in ours.items()}
        began = time.monotonic()
        time.sleep(given.seconds)
        took = time.monotonic() - began
        shares = {name: (cpu_s(process) - before[name]) / took for name, process in ours.items()}
        running.wait()
    for name, share in shares.items():
        print(f"{name:14} {share:.3%} of a core")
    print(f"{'together':14} {sum(shares.values()):.3%} of a core, over {took:.0f} s")


def write_scenario(folder: Path, sleep_s: float) -> None:
    custom = {
        "command": ["{python}", "-c", TRAINER, "{scenario_dir}/begun", str(sleep_s)],
        "launcher": "none",
        "metrics": {"train_runtime": {"key": "train_runtime"}},
    }
    scenario = {"name": "sleeps", "trainer": "custom", "device": "cpu", "custom": custom, "stall_timeout_s": 600}
    (folder / "scenarios.yaml").write_text(json.dumps({"scenarios": [scenario]}))


def run_one(orchestrator: int) -> psutil.Process:
    return next(child for child in psutil.Process(orchestrator).children() if "run-one" in child.cmdline())


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
