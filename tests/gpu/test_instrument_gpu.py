"""The instrument on a real GPU: its clock is the GPU's, its counts are the data's, its tracker is the Trainer's.

One model of about 100 million parameters is trained twice, alike but for the memory tracker, and shared by the assertions.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import counting
import pytest
from counted_trainings import ACCUMULATED, VARIANTS, by_step, counts, steps, trained
from trainings import INSTRUMENT, SFT_FOLDER, Run, prepare, start, training

from orchestrator.machine.gpus import visible_gpus

GPUS = visible_gpus()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(600),
]

TIMED = """
import json, os, sys, time
sys.path.insert(0, sys.argv.pop(1))
import sft, torch
from transformers import TrainerCallback

def now():
    torch.cuda.synchronize()
    return time.time()

class Wall(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.times = [now()]

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == state.max_steps:
            self.times.append(now())
            json.dump(self.times, open(os.environ["TUNEBENCH_RUN_DIR"] + "/wall.json", "w"))

trainer = sft.build_trainer(sys.argv[1:])
trainer.add_callback(Wall())
trainer.train()
"""
MODEL = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 8}
STEPS = 120


def visible() -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("rows"), 200)


def timed(folder: Path, rows: Path, **env: str) -> Run:
    (folder / "timed.py").write_text(TIMED)
    sizes = [word for name, size in MODEL.items() for word in (f"--{name}", str(size))]
    options = ["--max_steps", str(STEPS), "--max_seq_len", "512", "--bf16", "True", "--skip_memory_metrics", "False"]
    words = [INSTRUMENT, "--", str(folder / "timed.py"), SFT_FOLDER, *training(rows, *options, *sizes)]
    run = start(folder / "run", words, cpu=False, CUDA_VISIBLE_DEVICES=visible(), **env)
    assert run.code == 0, run.last_line
    return run


@pytest.fixture(scope="module")
def native(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return timed(tmp_path_factory.mktemp("native"), rows)


@pytest.fixture(scope="module")
def light(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return timed(tmp_path_factory.mktemp("light"), rows, TUNEBENCH_MEMORY_TRACKER="light")


def memory_metrics(run: Run, kind: str) -> dict[str, Any]:
    return {name: value for name, value in run.worker()["metrics"].items() if f"_mem_{kind}" in name}


def test_the_light_tracker_is_the_native_one_to_the_byte(native: Run, light: Run) -> None:
    assert memory_metrics(light, "gpu") == memory_metrics(native, "gpu")
    assert memory_metrics(light, "cpu").keys() == memory_metrics(native, "cpu").keys()
    assert memory_metrics(light, "gpu")["train_mem_gpu_peaked_delta"] > 2**20
    assert (native.worker()["memory_tracker"], light.worker()["memory_tracker"]) == (None, "light")


def test_the_peaks_of_the_stages_are_the_trackers(light: Run) -> None:
    worker, gpu = light.worker(), memory_metrics(light, "gpu")
    after_load, first, steady = (worker["memory"][stage] for stage in ("after_load", "first_step", "steady"))
    in_training = max(first["peak_allocated_bytes"], steady["peak_allocated_bytes"])
    before = gpu["before_init_mem_gpu"] + gpu["init_mem_gpu_alloc_delta"]
    assert in_training == before + gpu["train_mem_gpu_alloc_delta"] + gpu["train_mem_gpu_peaked_delta"]
    assert worker["peak"]["allocated_bytes"] == max(after_load["peak_allocated_bytes"], in_training)
    assert 0 < after_load["allocated_bytes"] < first["allocated_bytes"], (
        "the optimizer's state came with the first step"
    )
    for stage in (after_load, first, steady):
        assert stage["allocated_bytes"] <= stage["peak_allocated_bytes"] <= stage["peak_reserved_bytes"]
        assert (stage["alloc_retries"], stage["ooms"]) == (0, 0)


SAVED = """
import json, os, sys
sys.path.insert(0, sys.argv.pop(1))
import sft, torch

trainer = sft.build_trainer(sys.argv[1:])
compute = type(trainer).compute_loss
own = {p.untyped_storage().data_ptr() for p in trainer.model.parameters()}
sizes = []

def counted(trainer, model, inputs, *args, **kwargs):
    known = own | {value.untyped_storage().data_ptr() for value in inputs.values()}
    found = {}

    def saved(tensor):
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes() * (tensor.is_cuda and storage.data_ptr() not in known)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor):
        loss = compute(trainer, model, inputs, *args, **kwargs)
    sizes.append(sum(found.values()))
    return loss

type(trainer).compute_loss = counted
trainer.train()
json.dump(sizes, open(os.environ["TUNEBENCH_RUN_DIR"] + "/saved.json", "w"))
"""


def test_what_the_forward_pass_saves_is_what_autograd_says(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "saved.py").write_text(SAVED)
    sizes = [word for name, size in MODEL.items() for word in (f"--{name}", str(size))]
    words = [INSTRUMENT, "--", str(tmp_path / "saved.py"), SFT_FOLDER]
    options = ["--max_steps", "3", "--packing", "True", "--max_seq_len", "512", "--dtype", "bfloat16"]
    run = start(
        tmp_path / "run", [*words, *training(rows, *options, *sizes)], cpu=False, CUDA_VISIBLE_DEVICES=visible()
    )
    assert run.code == 0, run.last_line
    by_autograd = json.loads((run.folder / "saved.json").read_text())[1]
    assert by_autograd > 2**26
    assert run.worker()["peak"]["saved_for_backward_bytes"] == pytest.approx(by_autograd, rel=0.02)


def test_beside_the_native_tracker_stages_have_no_peaks(native: Run, light: Run) -> None:
    stages = native.worker()["memory"].values()
    assert {stage["peak_allocated_bytes"] for stage in stages} == {None}
    assert native.worker()["memory"]["after_load"]["allocated_bytes"] > 0
    assert native.worker()["peak"]["allocated_bytes"] == light.worker()["peak"]["allocated_bytes"]


@pytest.mark.parametrize("which", ["light", "native"])
def test_steps_add_up_to_the_wall_clock(which: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(which)
    began, ended = json.loads((run.folder / "wall.json").read_text())
    lines = [line for line in run.steps() if "s" in line]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert sum(line["s"] for line in lines) == pytest.approx(ended - began, rel=0.02)
    assert lines[-1]["t"] == pytest.approx(ended, abs=0.02 * (ended - began))
    assert all(0 <= line["wait_s"] < line["s"] for line in lines)
    worker = run.worker()
    assert (worker["clock"], worker["instrument_error"]) == ("cuda", None)


def test_the_gpu_is_known_by_its_uuid(light: Run) -> None:
    gpu = light.worker()["gpu"]
    assert gpu["uuid"] in {one.uuid for one in GPUS}
    assert (gpu["index"], gpu["name"]) == (0, GPUS[0].name)


def test_counts_are_those_of_the_data(tmp_path: Path) -> None:
    """On as many GPUs as there are, of 1, 2 and 4; several hold shards (FSDP 2), and all end at the same step."""
    ranks = max(number for number in (1, 2, 4) if number <= len(GPUS))
    sharded = ranks > 1
    env = {"CUDA_VISIBLE_DEVICES": visible()} if ranks == 1 else {}
    long = ["--max_steps", "60", "--max_seq_len", "64"]
    measure = json.dumps({"discard_steps": 2, "at_least_steps": 4, "within": 9.0})
    few = prepare(tmp_path, 43)
    variants = {**VARIANTS, "stopped": long}
    run = trained(tmp_path, few, ranks, variants, cpu=False, sharded=sharded, TUNEBENCH_MEASURE=measure, **env)
    for variant in VARIANTS:
        for rank in range(ranks):
            found, expected = steps(run, variant, rank), by_step(run, variant, rank, ACCUMULATED[variant])
            assert counts(found) == expected[: len(found)]  # one rank alone may have seen enough at its tenth
            assert len(found) in (10, len(expected))
    how = run.settings["distributed_type"], run.settings["world_size"]
    assert how == ("FSDP" if sharded else "NO", ranks)
    stopped = [run.worker(rank)["stopped"] for rank in range(ranks)]
    assert stopped[0] is not None and stopped == [stopped[0]] * ranks
    assert [len(steps(run, "stopped", rank)) for rank in range(ranks)] == [stopped[0]["step"]] * ranks


def test_a_batch_that_came_to_the_gpu_by_another_way_is_counted_there() -> None:
    """Behind work that the GPU has still to do, and without waiting for it."""
    torch = pytest.importorskip("torch")
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]], device="cuda")
    parts = {"input_ids": mask, "attention_mask": mask, "labels": torch.where(mask == 1, 5, -100)}
    work, counter = torch.randn(8000, 8000, device="cuda"), counting.Counter()
    torch.cuda.synchronize()
    batches = []
    for _ in range(2 * counting.SLOTS + 1):
        work @ work
        batches.append(counter.count(parts))
    assert not batches[-1].ready()
    torch.cuda.synchronize()
    assert all(batch.ready() for batch in batches)
    assert {tuple(batch.read()) for batch in batches} == {(6, 4, 4, 2, 18)}
    assert len(counter.free) == 3 * counting.SLOTS


def test_a_batch_that_accelerate_sent_keeps_the_numbers_that_it_had_on_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of it is asked of the GPU, unless it was changed there."""
    torch = pytest.importorskip("torch")
    from accelerate import Accelerator, data_loader

    monkeypatch.setattr(data_loader, "send_to_device", counting.noting(data_loader.send_to_device, wanted=lambda: True))
    rows = [{"input_ids": torch.ones(3, dtype=torch.int64), "labels": torch.tensor([-100, 5, 5])}] * 4
    batches = list(Accelerator().prepare(torch.utils.data.DataLoader(rows, batch_size=2, pin_memory=True)))
    assert all(part.is_cuda for batch in batches for part in batch.values())
    assert [counting.kept(batch) for batch in batches] == [[6, 6, 4, 2, 18]] * 2
    batches[0]["labels"][:, 1] = -100
    changed = counting.Counter().count(counting.kept(batches[0]))
    torch.cuda.synchronize()
    assert changed is not None and changed.ready() and changed.read() == [6, 6, 2, 2, 18]
