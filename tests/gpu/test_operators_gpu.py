"""Operators on one GPU: the times of the host and the device, memory, and planted slowdowns that are told as what they are."""

from __future__ import annotations

import json
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


def _campaign(folder: Path, scenario: str, results: str) -> Campaign:
    (folder / "scenarios.yaml").write_text(text("scenarios/operators-gpu.yaml").replace("FOLDER", str(folder)))
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


def test_the_memory_of_two_losses_is_that_of_the_published_protocol(tmp_path: Path) -> None:
    """Figures of an H200, torch 2.11, liger-kernel 0.8.5: inputs made in the measured call, forward and backward into `grad`."""
    pytest.importorskip("liger_kernel")
    _campaign(tmp_path, "losses", "losses")
    found = {(one["operator"], one["implementation"]): one for one in _numbers(tmp_path, "losses")}
    for cell, one in found.items():
        print(cell, f"{one['peak_allocated_bytes'] / MIB:,.1f} MiB", f"{one['call_time_s'] * 1000:.1f} ms")
    assert {cell: one["peak_allocated_bytes"] / MIB for cell, one in found.items()} == {
        ("cross_entropy", "eager"): pytest.approx(32_768.1, rel=0.01),
        ("cross_entropy", "liger"): pytest.approx(16_384.1, rel=0.01),
        ("linear_cross_entropy", "eager"): pytest.approx(25_370, rel=0.01),
        ("linear_cross_entropy", "liger"): pytest.approx(2_831, rel=0.01),
    }


def test_a_small_product_is_bound_by_the_host(tmp_path: Path) -> None:
    done = _campaign(tmp_path, "small-product", "small")
    (one,) = _numbers(tmp_path, "small")
    print(
        {name: f"{one[name] * 1e6:.2f} µs" for name in ("call_time_s", "host_time_s", "device_time_s", "device_span_s")}
    )
    assert one["host_time_s"] == pytest.approx(one["call_time_s"], rel=0.35)
    assert one["device_time_s"] < one["call_time_s"] / 4
    assert one["device_span_s"] < one["call_time_s"] / 2
    assert "host-bound" in done.said


def test_a_planted_host_delay_and_a_planted_slow_kernel_are_told_apart(tmp_path: Path) -> None:
    """Five shapes, two runs of each on each side: ten planted slowdowns."""
    for side, (delay_s, cycles) in {"base": (0, QUICK), "late": (LATE_S, QUICK), "slow": (0, SLOW)}.items():
        (tmp_path / "planted.py").write_text(PLANTED.format(delay_s=delay_s, cycles=cycles))
        _campaign(tmp_path, "planted", side)
    told = {side: _verdicts(tmp_path, side) for side in ("late", "slow")}
    print(json.dumps(told, indent=1))
    assert [one["host_time_s"] for one in told["late"].values()] == ["regressed"] * 5
    assert "regressed" not in [one["device_time_s"] for one in told["late"].values()]
    assert [one["device_time_s"] for one in told["slow"].values()] == ["regressed"] * 5
    assert "regressed" not in [one["host_time_s"] for one in told["slow"].values()]


def _verdicts(folder: Path, side: str) -> dict[str, dict[str, str]]:
    """Return shape → metric → verdict of the side against `base`."""
    done = tunebench(folder, "compare", "base", side, "--all", "--format", "json")
    assert done.code == 1, done.said
    found: dict[str, dict[str, str]] = {}
    for row in json.loads(done.out)["rows"]:
        found.setdefault(row["label"], {})[row["metric"]] = row["verdict"]
        print(side, row["label"], row["metric"], row["verdict"], row["base"], row["new"])
    return found
