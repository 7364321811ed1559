"""On NVIDIA GPUs: what goes wrong gives the GPU's memory back, and is told rightly.

A real CUDA out-of-memory and the largest batch that fits, a rank of an NCCL job that hangs, one that is killed, Ctrl-C in
mid-training, and several runs at once. Marked `gpu`; what needs two GPUs is skipped with one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from campaigns import ROOT, begun, ended, tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.plan.forecast.memory_fit import Estimate, estimate
from orchestrator.plan.forecast.memory_fit.verdict import ESTIMATE_ERROR
from orchestrator.records import RunRecord
from orchestrator.results.store import Store
from orchestrator.run.gpu_access import RESIDUE_BYTES, memory_taken

GPUS = visible_gpus()
RUN = ("run", "scenarios.yaml", "--yes")
TINY = {
    "model_name_or_path": "config:tiny-llama",
    "dtype": "bfloat16",
    "bf16": True,
    "max_seq_len": 256,
    "max_steps": 2000,
}
LARGE = {
    "model_name_or_path": "config:llama-1b", "dtype": "bfloat16", "bf16": True, "max_seq_len": 2048, "max_steps": 6,
    "num_hidden_layers": 6, "per_device_train_batch_size": 4,
}  # fmt: skip
IN_RANK_1 = """\
import ctypes, os, signal, threading, time

def in_mid_step():
    steps = os.path.join(os.environ.get("TUNEBENCH_RUN_DIR", ""), "steps-rank1.jsonl")
    while not os.path.exists(steps) or open(steps).read().count('"s"') < 3:
        time.sleep(0.01)
    {what}

if os.environ.get("RANK") == "1":
    threading.Thread(target=in_mid_step, daemon=True).start()
"""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(600),
]
needs_two = pytest.mark.skipif(len(GPUS) < 2, reason="one GPU only")


@pytest.fixture(autouse=True)
def given_back() -> object:
    """The memory of every GPU is what it was, once a driver has had its seconds."""
    before = memory_taken(GPUS)
    yield
    deadline = time.monotonic() + 20
    while any(now > before[uuid] + RESIDUE_BYTES for uuid, now in memory_taken(GPUS).items()):
        assert time.monotonic() < deadline, (before, memory_taken(GPUS))
        time.sleep(0.5)


def write(folder: Path, arguments: dict[str, object], **more: object) -> None:
    scenario = {"name": "s", "arguments": arguments, **more}
    data = {"dataset_name": "builtin:synthetic", "samples": 256}
    (folder / "scenarios.yaml").write_text(json.dumps({"data_processing": data, "scenarios": [scenario]}))


def records(folder: Path) -> list[RunRecord]:
    return [one for stored in Store.resume(folder / "results").contents().experiments for one in stored.records]


def test_the_largest_batch_is_found_and_a_larger_one_says_what_it_needed(tmp_path: Path) -> None:
    """Rows of 8192 tokens: the largest batch is small, so the search is short."""
    write(tmp_path, {**LARGE, "max_seq_len": 8192, "per_device_train_batch_size": 8})
    done = tunebench(tmp_path, *RUN, "--find", "per_device_train_batch_size")
    assert done.code == 0, done.err
    batches = Store.resume(tmp_path / "results" / "searches").contents().experiments
    probed = {int(one.experiment.arguments["per_device_train_batch_size"]): one for one in batches}
    largest = max(batch for batch, one in probed.items() if one.records[0].status == "ok")
    assert f"per_device_train_batch_size {largest} fits" in done.out
    measured = {one.name: one.value for one in probed[largest].records[0].measurements}
    assert measured["peak_reserved_bytes"] > 0.85 * GPUS[0].memory_bytes, "what was too large was no neighbour's fault"
    estimated = estimate(probed[largest].experiment)
    assert isinstance(estimated, Estimate)
    assert estimated.peak_allocated_bytes == pytest.approx(measured["peak_allocated_bytes"], rel=ESTIMATE_ERROR)
    (record,) = probed[largest + 1].records
    cause, hint = record.cause or "", record.hint or ""
    assert (record.status, record.kind) == ("failed", "oom_cuda")
    assert "rank 0" in cause and "OutOfMemoryError" in cause
    assert f"batch {largest + 1} needed at least" in hint and f"{(largest + 1) // 2}, or gradient" in hint, hint
    assert not [one for one in record.warnings if "than before it" in one.detail]


def test_a_second_ctrl_c_in_mid_training(tmp_path: Path) -> None:
    write(tmp_path, TINY)
    running = begun(tmp_path, *RUN)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("results/experiments/*/runs/*/steps-rank0.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    for _ in range(2):
        running.send_signal(signal.SIGINT)
        time.sleep(0.2)
    done = ended(tmp_path, running)
    assert done.code == 130, done.err
    assert [one.status for one in records(tmp_path)] == ["cancelled"]


@needs_two
@pytest.mark.parametrize(
    ("what", "status", "kind"),
    [
        pytest.param("ctypes.PyDLL(None).sleep(600)", "stalled", "stalled", id="hangs"),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "failed", "killed", id="killed"),
    ],
)
def test_a_rank_that_hangs_or_is_killed_under_ddp(tmp_path: Path, what: str, status: str, kind: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(IN_RANK_1.replace("{what}", what))
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    limits = {"stall_timeout_s": 10, "startup_timeout_s": 200}
    write(tmp_path, TINY, num_gpus=2, framework_config=["ddp"], env={"PYTHONPATH": path}, **limits)
    done = tunebench(tmp_path, *RUN)
    (record,) = records(tmp_path)
    assert (record.status, record.kind) == (status, kind), (record, done.err)
    assert not [one for one in record.warnings if "than before it" in one.detail or "could not be ended" in one.detail]
    if kind == "killed":
        assert "rank 1" in (record.cause or "") and record.signal == signal.SIGKILL
    else:
        assert list(tmp_path.glob("results/experiments/*/runs/*/stacks.txt"))


@needs_two
def test_runs_at_once_have_gpus_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, {**TINY, "max_steps": 400}, matrix={"learning_rate": ["1e-4", "2e-4"]})
    done = tunebench(tmp_path, *RUN, "--parallel", "2")
    assert done.code == 0, done.err
    first, second = records(tmp_path)
    assert first.beside and second.beside
    assert first.started_at < second.started_at + second.wall_s and second.started_at < first.started_at + first.wall_s
    uuids = [one.provenance["gpus"][0]["uuid"] for one in (first, second)]
    assert uuids[0] != uuids[1], "two at once on one GPU"
