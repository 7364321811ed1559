"""Measure the cost of our own command before anything trains: `--help` and `plan`, against an import of the libraries below it.

    python benchmarks/startup.py [--rounds 5]

Every round runs every row once, so that a busy machine slows all rows alike. The output shows the median of each row, its ratio to
the loaded import, the bound of that ratio, and the largest peak memory of a child (ru_maxrss). typer, rich and pydantic load most
of themselves at first use. So two rows run without our code: the statement `import typer, rich, pydantic, yaml` only, and the same
with what any command with options and any model loads (`loaded`). All rows run from bytecode, as an installed package does: every
row runs once before the first round and writes it to a temporary folder. Exit code 1: a row is over its bound.
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
LOADED_ROW = "bare import, loaded"
MOST_MIB = 170
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


def with_bytecode(folder: Path) -> dict[str, str]:
    """Return this environment with a folder for Python's bytecode. The shell may forbid bytecode, or the checkout may have none."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder)}


def measured(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Return the wall seconds and the peak MiB of one process."""
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=env)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def rows(large: Path) -> dict[str, tuple[list[str], float | None]]:
    """Return the command of each row, and the bound of its ratio to the loaded import."""
    plan_124 = [
        *TUNEBENCH, "plan", str(COMPAT / "scenarios.yaml"), "--defaults", str(COMPAT / "defaults.yaml"),
        "--frameworks", str(COMPAT), "--trainer", "fms_hf_tuning", "--num-gpus", "1,2", "--axis", "effective_batch_size=4,8",
    ]  # fmt: skip
    plan_large = [*TUNEBENCH, "plan", str(large)]
    return {
        "bare import": (BARE, None),
        LOADED_ROW: ([sys.executable, "-c", LOADED], None),
        "--help": ([*TUNEBENCH, "--help"], 0.6),
        "plan, 124 cells": (plan_124, 1.6),
        "plan, 100,000": (plan_large, 20.0),
        "plan, 100,000 --json": ([*plan_large, "--json"], 40.0),
        "plan, 100,000 --commands": ([*plan_large, "--commands"], None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "large.yaml"
        file.write_text(LARGE)
        table, env = rows(file), with_bytecode(Path(folder) / "bytecode")
        for command, _ in table.values():
            measured(command, env)
        seen: dict[str, list[tuple[float, float]]] = {name: [] for name in table}
        for _ in range(rounds):
            for name, (command, _) in table.items():
                seen[name].append(measured(command, env))
    walls = {name: statistics.median(wall for wall, _ in runs) for name, runs in seen.items()}
    over = False
    print(f"{'':26}{'median s':>10}{'× loaded':>10}{'bound':>8}{'peak MiB':>10}")
    for name, (_, bound) in table.items():
        ratio, peak = walls[name] / walls[LOADED_ROW], max(peak for _, peak in seen[name])
        over = over or (bound is not None and (ratio > bound or peak > MOST_MIB))
        print(f"{name:26}{walls[name]:10.3f}{ratio:10.2f}{bound or '':>8}{peak:10.0f}")
    raise SystemExit(1 if over else 0)


if __name__ == "__main__":
    main()
