"""What does our own command cost before anything trains? `--help` and `plan`, against an import of the libraries.

    python benchmarks/startup.py [--rounds 9]

Rounds are interleaved, so that a busy machine slows all rows alike; the ratio is that of the medians. Peak memory is
the child's ru_maxrss. typer, rich and pydantic load most of themselves at first use, so there are two rows for the
import: the statement `import typer, rich, pydantic, yaml`, and the same with what any command with options and any
model loads (`loaded`). Limits of the project: 1.5 times the loaded import and 80 MiB for `--help` and a plan of 124
cells; 10 s and 500 MiB for a plan of 100,000 cells.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPAT = ROOT / "tests" / "golden" / "compat" / "input"
BARE = [sys.executable, "-c", "import typer, rich, pydantic, yaml"]
LOADED = """
import typer, rich.console, rich.table, yaml
from pydantic import BaseModel, Field
app = typer.Typer()
app.command()(lambda count: None)
app(["1"], standalone_mode=False)
"""
TUNEBENCH = [sys.executable, "-m", "orchestrator"]

LARGE = """\
scenarios:
  - name: large
    num_gpus: [1, 2, 4, 8]
    matrix:
      learning_rate: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
      warmup_steps: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
      seed: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
      max_steps: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]
    arguments: {model_name_or_path: config:tiny-llama, per_device_train_batch_size: 2}
"""


def measured(command: list[str]) -> tuple[float, float]:
    """Return the wall seconds and the peak MiB of one process."""
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    plan_124 = [
        *TUNEBENCH, "plan", str(COMPAT / "scenarios.yaml"), "--defaults", str(COMPAT / "defaults.yaml"),
        "--frameworks", str(COMPAT), "--trainer", "fms_hf_tuning", "--num-gpus", "1,2", "--axis", "effective_batch_size=4,8",
    ]  # fmt: skip
    loaded = [sys.executable, "-c", LOADED]
    commands = {
        "bare import": BARE,
        "bare import, loaded": loaded,
        "--help": [*TUNEBENCH, "--help"],
        "plan, 124 cells": plan_124,
    }
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            seen[name].append(measured(command))
    bare = statistics.median(wall for wall, _ in seen["bare import, loaded"])
    print(f"{'':26}{'median s':>10}{'× loaded':>10}{'peak MiB':>10}")
    for name, runs in seen.items():
        wall = statistics.median(seconds for seconds, _ in runs)
        print(f"{name:26}{wall:10.3f}{wall / bare:10.2f}{max(peak for _, peak in runs):10.0f}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "large.yaml"
        file.write_text(LARGE)
        for option in ((), ("--json",), ("--commands",)):
            wall, peak = measured([*TUNEBENCH, "plan", str(file), *option])
            print(f"{' '.join(('plan, 100,000', *option)):26}{wall:10.3f}{'':10}{peak:10.0f}")


if __name__ == "__main__":
    main()
