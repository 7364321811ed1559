"""On a machine with NVIDIA GPUs: what the CPU cannot show. Marked `gpu`; skipped where there is none.

One campaign on one GPU with every memory monitor, and, with two GPUs, one with DDP and FSDP, shared by all assertions.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from campaigns import tunebench

from orchestrator.machine.gpus import visible_gpus
from orchestrator.records import RunRecord
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
GPUS = visible_gpus()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS, reason="no NVIDIA GPU"),
    pytest.mark.timeout(900),
]

SCENARIOS = """\
data_processing: {dataset_name: builtin:synthetic, samples: 256}
scenarios:
- name: one
  framework_config: [baseline, torch-compile]
  arguments: &arguments
    model_name_or_path: config:tiny-llama
    effective_batch_size: 4
    dtype: bfloat16
    bf16: true
    max_seq_len: 256
    max_steps: 12
    warmup_steps: 1
    logging_steps: 4
- name: kernels
  framework_config: [liger]
  arguments: *arguments
- name: two
  framework_config: [ddp, fsdp]
  num_gpus: [2]
  arguments: *arguments
"""


def _campaign(folder: Path, scenario: str) -> dict[str, RunRecord]:
    """Framework configuration -> record of a campaign that was run by the command, as a user runs it."""
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    done = tunebench(folder, "run", "scenarios.yaml", "--scenario", scenario, "--memory", "all")
    records = {}
    for stored in Store.resume(done.results).contents().experiments:
        assert stored.experiment.framework and stored.records, done.err
        records[stored.experiment.framework.name] = stored.records[-1]
    assert done.code == 0, [(record.kind, record.cause, record.tail) for record in records.values()]
    return records


@pytest.fixture(scope="module")
def one_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    return _campaign(tmp_path_factory.mktemp("one"), "one")


@pytest.mark.skipif(importlib.util.find_spec("liger_kernel") is None, reason="liger-kernel is not installed")
def test_replaced_kernels_are_read_off_the_model(tmp_path: Path) -> None:
    assert _campaign(tmp_path, "kernels")["liger"].settings["liger"] is True


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunRecord]:
    if len(GPUS) < 2:
        pytest.skip("one GPU only")
    return _campaign(tmp_path_factory.mktemp("two"), "two")


def _numbers(record: RunRecord) -> dict[str, Any]:
    return {measurement.name: measurement.value for measurement in record.measurements}


def test_a_run_trains_on_its_gpu_and_says_so(one_gpu: dict[str, RunRecord]) -> None:
    settings = one_gpu["baseline"].settings
    assert settings["device"].startswith("cuda")
    assert settings["device_name"] == GPUS[0].name
    assert settings["mixed_precision"] == "bf16"
    assert settings["wrapper_classes"] == []


def test_compilation_is_read_off_the_model(one_gpu: dict[str, RunRecord]) -> None:
    assert one_gpu["torch-compile"].settings["torch_compile"] is True
    assert one_gpu["baseline"].settings["torch_compile"] is False


def test_the_trainers_memory_metrics_become_columns(one_gpu: dict[str, RunRecord]) -> None:
    numbers = _numbers(one_gpu["baseline"])
    weights = 2 * one_gpu["baseline"].settings["total_parameters"]
    assert numbers["before_init_mem_gpu"] >= 0
    assert numbers["mem_peak_torch_mem_alloc_in_bytes"] >= numbers["mem_torch_mem_alloc_in_bytes"] >= weights


def test_nvidia_smi_saw_the_card(one_gpu: dict[str, RunRecord]) -> None:
    numbers = _numbers(one_gpu["baseline"])
    assert numbers["gpu_device_name"] == GPUS[0].name
    # A CUDA context alone takes hundreds of MiB; the first reading, before the run, has none.
    assert numbers["mem_nvidia_mem_reserved"] > 100


def test_provenance_names_card_and_driver(one_gpu: dict[str, RunRecord]) -> None:
    text = json.dumps(dict(one_gpu["baseline"].provenance))
    assert GPUS[0].name in text
    assert "driver" in text


def test_two_gpus_are_wrapped_as_asked(two_gpus: dict[str, RunRecord]) -> None:
    ddp, fsdp = two_gpus["ddp"].settings, two_gpus["fsdp"].settings
    assert ddp["world_size"] == fsdp["world_size"] == 2
    assert ddp["distributed_type"] == "MULTI_GPU"
    assert "DistributedDataParallel" in ddp["wrapper_classes"]
    assert fsdp["distributed_type"] == "FSDP"
    assert ddp["total_parameters"] == fsdp["total_parameters"]


def test_two_gpus_learn_the_same(two_gpus: dict[str, RunRecord]) -> None:
    losses = [_numbers(two_gpus[name])["train_loss"] for name in ("ddp", "fsdp")]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
