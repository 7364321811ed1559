"""On NVIDIA GPUs: what goes wrong gives the GPU's memory back, and is told rightly.

A real CUDA out-of-memory, a rank of an NCCL job that hangs, one that is killed, Ctrl-C in mid-training; several runs at once, and
what fits. Marked `gpu`; what needs two GPUs is skipped with one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from campaigns import Campaign, begun, ended, tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.plan.memory_fit import Estimate, estimate
from orchestrator.plan.memory_fit.verdict import ESTIMATE_ERROR
from orchestrator.records import RunRecord
from orchestrator.results.store import Store
from orchestrator.run.gpu_access import RESIDUE_BYTES, memory_taken

ROOT = Path(__file__).resolve().parents[2]
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


def records(folder: Path, inner: str = "") -> list[RunRecord]:
    return [one for stored in Store.resume(folder / "results" / inner).contents().experiments for one in stored.records]


def carried_out(folder: Path, *words: str) -> Campaign:
    return tunebench(folder, *RUN, *words)


def test_a_real_out_of_memory_is_told_with_what_it_needed(tmp_path: Path) -> None:
    write(tmp_path, {**LARGE, "per_device_train_batch_size": 128, "max_steps": 2})
    done = carried_out(tmp_path)
    (record,) = records(tmp_path)
    assert (record.status, record.kind) == ("failed", "oom_cuda"), done.err
    assert "rank 0" in (record.cause or "") and "OutOfMemoryError" in (record.cause or "")
    assert "batch 128 needed at least" in (record.hint or "") and "64, or gradient" in (record.hint or ""), record.hint
    assert not [one for one in record.warnings if "more in use" in one.detail]


def test_what_does_not_fit_is_marked_by_a_probe(tmp_path: Path) -> None:
    write(tmp_path, {**LARGE, "per_device_train_batch_size": 128}, repeats=2)
    carried_out(tmp_path, "--probe")
    assert [(one.status, one.kind) for one in records(tmp_path)] == [("failed", "oom_cuda")] * 2
    assert len(records(tmp_path, "probes")) == 1


def test_the_largest_batch_is_found(tmp_path: Path) -> None:
    write(tmp_path, {**LARGE, "per_device_train_batch_size": 32})
    done = carried_out(tmp_path, "--find-batch")
    assert done.code == 0, done.err
    batches = Store.resume(tmp_path / "results" / "batches").contents().experiments
    probed = {int(one.experiment.arguments["per_device_train_batch_size"]): one for one in batches}
    largest = max(batch for batch, one in probed.items() if one.records[0].status == "ok")
    assert probed[largest + 1].records[0].kind == "oom_cuda"
    assert f"per_device_train_batch_size {largest} fits" in done.out
    measured = {one.name: one.value for one in probed[largest].records[0].measurements}
    assert measured["peak_reserved_bytes"] > 0.85 * GPUS[0].memory_bytes, "what was too large was no neighbour's fault"
    found = estimate(probed[largest].experiment)
    assert isinstance(found, Estimate)
    assert found.peak_allocated_bytes == pytest.approx(measured["peak_allocated_bytes"], rel=ESTIMATE_ERROR)


def test_the_estimate_is_within_a_tenth_of_the_measured_peak(tmp_path: Path) -> None:
    write(tmp_path, LARGE)
    carried_out(tmp_path)
    (stored,) = Store.resume(tmp_path / "results").contents().experiments
    measured = {one.name: one.value for one in stored.records[0].measurements}["peak_allocated_bytes"]
    found = estimate(stored.experiment)
    assert isinstance(found, Estimate) and found.peak_allocated_bytes == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_mid_training(tmp_path: Path, times: int) -> None:
    write(tmp_path, TINY)
    running = begun(tmp_path, *RUN)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("results/experiments/*/runs/*/steps-rank0.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.0)
    for _ in range(times):
        running.send_signal(signal.SIGINT)
        time.sleep(0.2)
    done = ended(tmp_path, running)
    assert done.code == 130, done.err
    assert [one.status for one in records(tmp_path)] == ["cancelled"]


@needs_two
@pytest.mark.parametrize(
    ("what", "status", "kind"),
    [
        ("ctypes.PyDLL(None).sleep(600)", "stalled", "stalled"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "failed", "killed"),
    ],
)
def test_a_rank_that_hangs_or_is_killed_under_ddp(tmp_path: Path, what: str, status: str, kind: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(IN_RANK_1.replace("{what}", what))
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    limits = {"stall_timeout_s": 10, "startup_timeout_s": 200}
    write(tmp_path, TINY, num_gpus=2, framework_config=["ddp"], env={"PYTHONPATH": path}, **limits)
    done = carried_out(tmp_path)
    (record,) = records(tmp_path)
    assert (record.status, record.kind) == (status, kind), (record, done.err)
    assert not [one for one in record.warnings if "more in use" in one.detail or "could not be ended" in one.detail]
    if kind == "killed":
        assert "rank 1" in (record.cause or "") and record.signal == signal.SIGKILL
    else:
        assert list(tmp_path.glob("results/experiments/*/runs/*/stacks.txt"))


@needs_two
def test_runs_at_once_have_gpus_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, {**TINY, "max_steps": 200}, matrix={"learning_rate": ["1e-4", "2e-4", "3e-4", "4e-4"]})
    done = carried_out(tmp_path, "--parallel", "2")
    assert done.code == 0, done.err
    found = records(tmp_path)
    assert len(found) == 4 and any(one.beside for one in found)
    spans = [(one.started_at, one.started_at + one.wall_s, one.provenance["gpus"][0]["uuid"]) for one in found]
    for first in spans:
        for second in spans:
            if first is not second and first[0] < second[1] and second[0] < first[1]:
                assert first[2] != second[2], "two at once on one GPU"
