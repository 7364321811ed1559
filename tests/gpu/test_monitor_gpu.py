"""`tunebench monitor` on a real GPU: what it says of the card is so, a process of a run is found, watching costs little."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from orchestrator.campaign.gpu_monitor import readings
from orchestrator.campaign.gpu_monitor import view as monitor_view
from orchestrator.machine.gpus import all_gpus, nvml_session, visible_gpus

ROOT = Path(__file__).resolve().parents[2]
GPUS = visible_gpus()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(300),
]

HOLDER = (
    "import sys, torch; held = torch.ones(2**28, device='cuda:0'); torch.cuda.synchronize(); print(flush=True); input()"
)
HELD_BYTES = 4 * 2**28


def monitor(*words: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "monitor", "--json", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_view_says_what_the_card_is_and_what_it_draws() -> None:
    (view,) = monitor("--once", "--gpus", GPUS[0].uuid)
    (gpu,) = view["gpus"]
    assert (gpu["name"], gpu["uuid"]) == (GPUS[0].name, GPUS[0].uuid)
    assert gpu["memory_total_bytes"] == GPUS[0].memory_bytes
    assert 0 <= gpu["memory_used_bytes"] <= gpu["memory_peak_used_bytes"] <= gpu["memory_total_bytes"]
    assert 0 < gpu["power_w"] <= 1.2 * gpu["power_limit_w"]
    assert 0 <= gpu["gpu_utilization"] <= 1 and 0 < gpu["temperature_c"] < 120 and gpu["sm_clock_mhz"] > 0
    assert gpu["lost"] is None and gpu["energy_j"] is None


def test_every_gpu_has_a_row() -> None:
    (view,) = monitor("--once")
    assert {gpu.uuid for gpu in GPUS} <= {gpu["uuid"] for gpu in view["gpus"]}


def test_a_process_of_a_run_is_seen_with_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver's numbers of processes are another container's, it is said to be there, without its run."""
    folder = tmp_path / "experiments" / "some-experiment" / "runs" / "r1-t1"
    monkeypatch.setenv("TUNEBENCH_RUN_DIR", str(folder))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPUS[0].uuid)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with nvml_session() as nvml:
        watch = readings.Watch(nvml, [gpu for gpu in all_gpus(nvml) if gpu.uuid == GPUS[0].uuid])
        (before,) = watch.view().gpus
        with subprocess.Popen([sys.executable, "-c", HOLDER], **pipes) as holder:  # type: ignore[call-overload]
            holder.stdout.readline()
            time.sleep(1.0)
            (gpu,) = watch.view().gpus
            holder.communicate(b"\n", timeout=60)
        time.sleep(1.0)
        (after,) = watch.view().gpus
    assert gpu.memory_used_bytes >= before.memory_used_bytes + HELD_BYTES
    assert after.memory_used_bytes < gpu.memory_used_bytes <= after.memory_peak_used_bytes
    assert gpu.energy_j is not None and gpu.energy_j < after.energy_j
    processes = {one.pid: one for one in gpu.processes or ()}
    if holder.pid in processes and processes[holder.pid].seen is readings.Seen.HERE:
        run = processes[holder.pid].run
        assert run is not None and (run.experiment, run.repeat) == ("some-experiment", 1)
    else:
        assert all(one.run is None for one in processes.values())


def test_watching_costs_a_few_percent_of_a_core_at_most() -> None:
    with nvml_session() as nvml:
        watch = readings.Watch(nvml, all_gpus(nvml)[:1])
        views = readings.views(watch, interval_s=1.0, stopped=lambda: False)
        next(views)
        began, used = time.monotonic(), time.process_time()
        for view in islice(views, 5):
            monitor_view.as_table(view, width=160)
        share = (time.process_time() - used) / (time.monotonic() - began)
    print(f"watching one GPU cost {share:.2%} of a core")
    assert share < 0.05
