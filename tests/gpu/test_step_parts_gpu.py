"""The parts of a step on real GPUs, against a trace of torch's profiler of the same steps: 2 points a part, 5 points for exposed
communication. The instrument divides the steps without waiting for a GPU, so the trace is the only other source.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from profiled_steps import BUSY, PARTS, SMALL, both, synthetic, table, trained, words

from orchestrator.machine.gpus import visible_gpus

GPUS = visible_gpus()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(900),
]
needs_two = pytest.mark.skipif(len(GPUS) < 2, reason="one GPU only")

POINTS, COMM_POINTS = 0.02, 0.05


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("rows"), 640, 1024)


def agree(name: str, shares: dict[str, tuple[float, float]]) -> None:
    print(table({name: shares}))
    for part in PARTS:
        own, seen = shares[part]
        assert abs(own - seen) < POINTS, part
    if "comm" in shares:
        assert abs(shares["comm"][0] - shares["comm"][1]) < COMM_POINTS


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_one_gpu(rows: Path, tmp_path: Path, compiled: bool) -> None:
    """The passes of both micro-batches count. 16 rows keep the GPU busy, also where the host is slow and has a profiler."""
    options = ["--gradient_accumulation_steps", "2", *(["--torch_compile", "True"] if compiled else [])]
    run = trained(tmp_path / "run", rows, *words(BUSY, batch=16), *options)
    worker = run.worker()
    assert (worker["clock"], worker["undivided"], worker["instrument_error"]) == ("cuda", None, None)
    later = [line["step"] for line in run.steps() if line.get("recompiled")]
    assert not later, "the marks make torch.compile compile nothing again"
    shares = both(run)
    agree("compiled" if compiled else "eager", shares)
    assert shares["idle"][0] < 0.2


def test_kernels_that_are_too_short_for_the_host(rows: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", rows, *words(SMALL, batch=1))
    shares = both(run)
    print(table({"small": shares}))
    assert shares["idle"][0] > 0.5, "the host sets the pace"
    assert shares["idle"][1] > 0.2, "and the GPU is idle for much of the time"


@needs_two
@pytest.mark.parametrize("sharded", [False, True], ids=["replicas", "shards"])
def test_two_gpus(rows: Path, tmp_path: Path, sharded: bool) -> None:
    run = trained(tmp_path / "run", rows, *words(BUSY, batch=16), processes=2, sharded=sharded)
    for rank in (0, 1):
        assert (run.worker(rank)["undivided"], run.worker(rank)["waits_unknown"]) == (None, None)
        shares = both(run, rank)
        assert "comm" in shares
        agree(f"{'shards' if sharded else 'replicas'} {rank}", shares)
