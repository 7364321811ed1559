"""`tunebench screen` on real GPUs: two screens agree within 1 %, and a GPU that another process uses is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from orchestrator.machine.gpus import visible_gpus
from orchestrator.screen.figures import OF_A_GPU, OF_A_PAIR, OF_ALL

ROOT = Path(__file__).resolve().parents[2]
GPUS = visible_gpus()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(GPUS) < 2, reason="fewer than two NVIDIA GPUs"),
    pytest.mark.timeout(600),
]

# The host's part counts in the other figures, so they fluctuate more.
STEADY = ("matmul_flops_per_s", "hbm_bytes_per_s", "all_reduce_256mib_bytes_per_s")
PLANTED = """\
import torch
held = torch.ones(2**30, device="cuda")
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.mm(a, a)
torch.cuda.synchronize()
print(flush=True)
while True:
    for _ in range(20):
        torch.mm(a, a)
    torch.cuda.synchronize()
"""


def screen(cache: Path) -> tuple[int, dict[str, Any], float]:
    """Return the exit code, the document and the seconds of a screen."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "screen", "--json"],
        cwd=ROOT,
        env={**os.environ, "TUNEBENCH_CACHE": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout), time.monotonic() - began


def values(document: dict[str, Any]) -> dict[tuple[str, tuple[int, ...]], float]:
    return {(one["name"], tuple(one["gpus"])): median(one["samples"]) for one in document["figures"] if one["samples"]}


@contextmanager
def planted(gpu: str) -> Iterator[int]:
    """Multiply matrices on this GPU in a process of its own, and yield the process's number."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    with subprocess.Popen([sys.executable, "-c", PLANTED], env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def test_two_screens_agree_within_a_percent_and_take_a_minute_at_most(tmp_path: Path) -> None:
    (_, first, took_s), (_, second, _) = screen(tmp_path), screen(tmp_path)
    print(json.dumps({"first": first, "second": second}))
    before, after = values(first), values(second)
    assert before.keys() == after.keys() and {name for name, _ in before} >= {*OF_A_GPU, *OF_ALL, *OF_A_PAIR}
    assert not any(one["failed"] for one in first["figures"])
    apart = {key: after[key] / before[key] - 1 for key in before if key[0] in STEADY}
    assert all(abs(share) <= 0.01 for share in apart.values()), apart
    assert second["earlier"] == 1 and took_s <= 60


def test_the_figures_are_plausible(tmp_path: Path) -> None:
    _, found, _ = screen(tmp_path)
    known = values(found)
    for gpu in found["cards"]:
        assert 1e14 < known["matmul_flops_per_s", (gpu["index"],)] < 3e15
        assert 5e11 < known["hbm_bytes_per_s", (gpu["index"],)] < 1e13
        assert 1e9 < known["host_to_device_bytes_per_s", (gpu["index"],)] < 5e11
        assert 5e-7 < known["launch_s", (gpu["index"],)] < 1e-4
    assert len(found["links"]) == len(GPUS) * (len(GPUS) - 1) // 2


def test_a_second_process_is_named_with_its_gpu(tmp_path: Path) -> None:
    with planted(GPUS[1].uuid) as pid:
        code, found, _ = screen(tmp_path)
    off = {(one["name"], tuple(one["gpus"])) for one in found["off"]}
    assert code == 1 and ("matmul_flops_per_s", (GPUS[1].index,)) in off
    assert ("matmul_flops_per_s", (GPUS[0].index,)) not in off
    cards = {card["index"]: card for card in found["cards"]}
    assert cards[GPUS[1].index]["used_bytes"] and cards[GPUS[0].index]["used_bytes"] is None
    assert any(f"process {pid} (" in name for name in cards[GPUS[1].index]["processes"]), cards
