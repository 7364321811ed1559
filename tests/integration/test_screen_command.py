"""`tunebench screen` for real, on a CPU: two processes over gloo. And `run --screen`, whose figures `compare` reads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from campaigns import ROOT, tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.measure.rank_files import LONG_CORE_WAIT
from orchestrator.screen.figures import OF_A_GPU, OF_A_PAIR, OF_ALL

PROGRAM = ROOT / "orchestrator" / "workers" / "screen" / "screen.py"
SCENARIO = """\
scenarios:
  - name: short
    trainer: custom
    custom: {command: [sh, -c, "echo '{\\"train_runtime\\": 1.0}'"], launcher: none, metrics: {train_runtime: {}}}
    device: cpu
    arguments: {model_name_or_path: none}
"""

on_a_cpu = pytest.mark.skipif(bool(visible_gpus()), reason="this machine has GPUs")


@on_a_cpu
def test_a_machine_is_measured_and_a_campaign_keeps_the_figures_that_compare_reads(tmp_path: Path) -> None:
    said = tunebench(tmp_path, "screen", "--json")
    first = json.loads(said.out)
    figures = {one["name"]: one for one in first["figures"]}
    assert said.code == 0, said.said
    assert all(len(figures[name]["samples"]) == 5 for name in ("cpu_loops_per_s", *OF_ALL, *OF_A_PAIR))
    assert all(figures[name]["samples"] == [] and figures[name]["missing"] for name in OF_A_GPU)
    assert not any(one["failed"] for one in first["figures"])
    (stored,) = (tmp_path / "cache" / "screens").glob("*/*.json")
    assert json.loads(stored.read_text()) == first

    (tmp_path / "scenarios.yaml").write_text(SCENARIO)
    ran = tunebench(tmp_path, "run", "scenarios.yaml", "--screen")
    assert ran.code == 0, ran.said
    (kept,) = (ran.results / "screens").iterdir()
    second = json.loads(kept.read_text())
    was_busy = (first["core_wait_share"] or 0) > LONG_CORE_WAIT  # then it is not a reference
    assert second["earlier"] == (0 if was_busy else 1) and second["host"] == first["host"]
    assert len([*stored.parent.iterdir()]) == 2

    shutil.copytree(ran.results, tmp_path / "slower")
    (cpu,) = (one for one in second["figures"] if one["name"] == "cpu_loops_per_s")
    cpu["samples"] = [sample / 10 for sample in cpu["samples"]]
    (tmp_path / "slower" / "screens" / kept.name).write_text(json.dumps(second))
    compared = tunebench(tmp_path, "compare", "results", "slower")
    assert f"the CPU, one thread of {first['host']} is 90.0% slower than it was in base" in compared.out


def test_a_gpu_that_torch_cannot_use_has_a_reason_and_the_cpu_a_figure(tmp_path: Path) -> None:
    """As with a torch for CPUs on a machine with GPUs."""
    words = [sys.executable, str(PROGRAM), str(tmp_path), "--processes", "2", "--gpus", "00000000:18:00.0,unknown"]
    subprocess.run(words, env={"CUDA_VISIBLE_DEVICES": ""}, timeout=120, check=True)
    assert len(json.loads((tmp_path / "host.json").read_text())["figures"][0]["samples"]) == 5
    for rank in (0, 1):
        written = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert written["figures"] == [] and "cannot use the GPUs" in written["problem"]


LOOPS = """
import sys
sys.path.insert(0, {folder!r})
import screen, written_figures
written_figures.Figures({file!r}).measure("cpu_loops_per_s", [], screen.loop_rates)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux counts the wait for a core")
def test_the_wait_for_a_core_that_another_process_uses_is_measured(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    pin = f"import os; os.sched_setaffinity(0, {{{core}}})\n"
    file = tmp_path / "host.json"
    busy = subprocess.Popen([sys.executable, "-c", f"{pin}while True: pass"])
    try:
        code = pin + LOOPS.format(folder=str(PROGRAM.parent), file=str(file))
        subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
    finally:
        busy.kill()
        busy.wait()
    wait = json.loads(file.read_text())["core_wait"]
    assert 0.2 < wait["waited_s"] / wait["wall_s"] < 1


def test_an_interpreter_without_torch_leaves_the_figure_of_the_cpu(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    said = tunebench(tmp_path, "screen", "--python", "bare/bin/python")  # from the current folder
    assert said.code == 1, said.said
    assert "CPU, one thread" in said.out and "ModuleNotFoundError: No module named 'torch'" in said.out


@pytest.mark.parametrize("executor", ["slurm"])
def test_a_campaign_on_other_machines_cannot_be_screened_here(tmp_path: Path, executor: str) -> None:
    (tmp_path / "scenarios.yaml").write_text(SCENARIO)
    said = tunebench(tmp_path, "run", "scenarios.yaml", "--screen", "--executor", executor)
    assert said.code == 2 and "--screen measures this machine" in said.err
    assert not said.results.exists()


@pytest.mark.parametrize("python", ["/nowhere/python", ""])
def test_an_interpreter_that_does_not_start_is_a_mistake(tmp_path: Path, python: str) -> None:
    said = tunebench(tmp_path, "screen", "--python", python)
    assert said.code == 2 and said.err.splitlines()[-1].startswith("error: ") and "Traceback" not in said.said
