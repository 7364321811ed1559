"""Operators on one GPU: the times of the host and the device, memory, and planted slowdowns that are told as what they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from campaigns import Campaign, tunebench
from factories.cases import text

from orchestrator.machine.gpus import visible_gpus

GPUS = visible_gpus()
MIB = 2**20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(900),
]

# Each side launches the same kernels. `{cycles}` of them make the device slow, and `{delay_s}` makes the host slow.
PLANTED = """\
import time

import torch


def call(**operands):
    until = time.perf_counter() + {delay_s}
    while time.perf_counter() < until:
        pass
    torch.cuda._sleep({cycles})
    return torch.einsum("bij,jk->bik", *operands.values())
"""
QUICK, LATE_S, SLOW = 2_000, 60e-6, 400_000
SHAPES = ("2x16x16,16x16", "4x16x16,16x16", "8x16x16,16x16", "2x32x32,32x32", "2x64x64,64x64")


def _campaign(folder: Path, scenario: str, results: str, **words: str) -> Campaign:
    content = text("scenarios/operators-gpu.yaml")
    for name, value in {"FOLDER": str(folder), **words}.items():
        content = content.replace(name, value)
    (folder / "scenarios.yaml").write_text(content)
    done = tunebench(folder, "run", "scenarios.yaml", "--scenario", scenario, "--results", results)
    assert done.code == 0, done.said
    return done


def _numbers(folder: Path, results: str) -> list[dict[str, Any]]:
    """Return the operators' files of all runs, each with the arguments of its experiment."""
    found = []
    for path in sorted((folder / results).glob("experiments/*/runs/*/operators.json")):
        experiment = json.loads((path.parents[2] / "experiment.json").read_text())
        found.append({**experiment["arguments"], **json.loads(path.read_text())})
    return found


# A protocol that gives the published figures, within 1 %: the process has multiplied matrices before, forward and backward, so
# cuBLAS has its working memory in both threads. The call makes its labels, then draws its other inputs and scales them. The peak of
# the call has the numbers before and after the scaling.
PUBLISHED = """\
import torch
from liger_kernel.transformers import LigerCrossEntropyLoss, LigerFusedLinearCrossEntropyLoss
from torch.nn import functional

device, bfloat16 = "cuda", torch.bfloat16
warm = torch.randn(64, 64, device=device, dtype=bfloat16, requires_grad=True)
(warm @ warm).sum().backward()

def cross_entropy(implementation):
    labels = torch.randint(131072, (16384,), device=device)
    logits = (torch.randn(16384, 131072, device=device) * 0.5).requires_grad_()
    return LigerCrossEntropyLoss()(logits, labels) if implementation == "liger" else functional.cross_entropy(logits, labels)

def linear_cross_entropy(implementation):
    labels = torch.randint(128256, (32768,), device=device)
    x = (torch.randn(32768, 4096, device=device, dtype=bfloat16) * 0.5).requires_grad_()
    weight = (torch.randn(128256, 4096, device=device, dtype=bfloat16) * 4096**-0.5).requires_grad_()
    if implementation == "liger":
        return LigerFusedLinearCrossEntropyLoss()(weight, x, labels)
    return functional.cross_entropy(functional.linear(x, weight), labels)

for _ in range(2):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    {operator}({implementation!r}).backward()
    torch.cuda.synchronize()
print(torch.cuda.max_memory_allocated())
"""
LOSSES = {
    ("cross_entropy", "eager"): (32_768.1, 32_768.1),
    ("cross_entropy", "liger"): (8_192.3, 16_384.1),
    ("linear_cross_entropy", "eager"): (25_338.3, 25_370),
    ("linear_cross_entropy", "liger"): (2_798.9, 2_831),
}
"""Maps a cell to the MiB of one call here, and to the published figure of an H200 (torch 2.11, liger-kernel 0.8.5)."""


def test_the_memory_of_two_losses_is_that_of_the_published_protocol(tmp_path: Path) -> None:
    pytest.importorskip("liger_kernel")
    _campaign(tmp_path, "losses", "losses")
    found = {(one["operator"], one["implementation"]): one for one in _numbers(tmp_path, "losses")}
    for cell, one in found.items():
        print(cell, f"{one['peak_allocated_bytes'] / MIB:,.1f} MiB", f"{one['call_time_s'] * 1000:.1f} ms")
    for cell, (here, there) in LOSSES.items():
        assert found[cell]["peak_allocated_bytes"] / MIB == pytest.approx(here, rel=0.01), cell
        script = PUBLISHED.format(operator=cell[0], implementation=cell[1])
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=200
        )
        print(cell, f"{int(done.stdout) / MIB:,.1f} MiB by the other protocol")
        assert int(done.stdout) / MIB == pytest.approx(there, rel=0.01), cell


def test_a_small_product_is_bound_by_the_host(tmp_path: Path) -> None:
    done = _campaign(tmp_path, "small-product", "small")
    (one,) = _numbers(tmp_path, "small")
    print(
        {name: f"{one[name] * 1e6:.2f} µs" for name in ("call_time_s", "host_time_s", "device_time_s", "device_span_s")}
    )
    # The two times are measured one after the other, and the host of a virtual machine may change its speed in between.
    assert one["call_time_s"] * 0.65 < one["host_time_s"] < one["call_time_s"] * 2.5
    assert one["device_time_s"] < one["call_time_s"] / 4
    assert one["device_span_s"] < one["call_time_s"] / 2
    assert "host-bound" in done.said


@pytest.mark.parametrize("shape", SHAPES)
def test_a_planted_host_delay_and_a_planted_slow_kernel_are_told_apart(tmp_path: Path, shape: str) -> None:
    for side, (delay_s, cycles) in {"base": (0, QUICK), "late": (LATE_S, QUICK), "slow": (0, SLOW)}.items():
        (tmp_path / "planted.py").write_text(PLANTED.format(delay_s=delay_s, cycles=cycles))
        _campaign(tmp_path, "planted", side, SHAPE=shape)
    late, slow = (_verdicts(tmp_path, side) for side in ("late", "slow"))
    assert late["host_time_s"] == "regressed" and late["device_time_s"] != "regressed"
    assert slow["device_time_s"] == "regressed" and slow["host_time_s"] != "regressed"


def _verdicts(folder: Path, side: str) -> dict[str, str]:
    """Return metric → verdict of the side against `base`."""
    done = tunebench(folder, "compare", "base", side, "--all", "--format", "json")
    assert done.code == 1, done.said
    rows = json.loads(done.out)["rows"]
    for row in rows:
        print(side, row["label"], row["metric"], row["verdict"], row["base"], row["new"])
    return {row["metric"]: row["verdict"] for row in rows}
