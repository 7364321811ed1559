"""The executor `slurm` on real GPUs: an array of four runs on one GPU each, and a run on two GPUs, with energy and memory by NVML.

A cluster must be up (`tests/slurm/slurm-up.sh` with SLURM_NODES=1 SLURM_GPUS=2), and its GPUs must be the real ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.machine.gpus import visible_gpus
from orchestrator.results.claims import read_claim
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.store import Store

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(visible_gpus()) < 2, reason="not two NVIDIA GPUs"),
    pytest.mark.skipif(not os.environ.get("SLURM_CONF") or not shutil.which("sbatch"), reason="no Slurm cluster is up"),
    pytest.mark.timeout(560),
]

SCENARIOS = """
data_processing: {dataset_name: "builtin:synthetic", samples: 4096}
scenarios:
- name: on-slurm
  framework_config: [baseline]
  matrix: {per_device_train_batch_size: [1, 2, 4, 8]}
  include:
  - {framework_config: ddp, num_gpus: 2, per_device_train_batch_size: 4}
  timeout_s: 240
  arguments:
    model_name_or_path: config:llama-1b
    dtype: bfloat16
    bf16: true
    max_seq_len: 1024
    max_steps: 100
    warmup_steps: 2
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredExperiment, ...]:
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    (folder / "site.yaml").write_text("node: 2xH100\npoll: 5s\ngrace: 10s\ntime: 15\n")
    words = [sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--executor", "slurm"]
    words += ["--memory", "all", "--results", "results", "--yes"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=540)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr[-2000:]
    return Store.resume(folder / "results").contents().experiments


def test_every_cell_ran_on_its_own_gpus(stored: tuple[StoredExperiment, ...]) -> None:
    gpus: dict[int, list[tuple[str, ...]]] = {1: [], 2: []}
    for one in stored:
        (record,) = one.records
        assert record.status == "ok", record.cause
        gpus[one.experiment.num_gpus].append(tuple(str(row["gpu"]) for row in record.devices))
    assert [len(used) for used in gpus[1]] == [1, 1, 1, 1]
    assert [len({*used}) for used in gpus[2]] == [2]
    print("runs on each GPU:", Counter(uuid for used in gpus[1] for uuid in used))


def test_energy_and_memory_are_measured_on_the_node(stored: tuple[StoredExperiment, ...]) -> None:
    for one in stored:
        (record,) = one.records
        values = {measurement.name: measurement.value for measurement in record.measurements}
        for name in ("tokens_per_s", "energy_j", "device_peak_used_bytes"):
            value = values.get(name)
            assert isinstance(value, (int, float)) and value > 0, (name, sorted(values))
        print(
            one.experiment.id, {name: values[name] for name in ("tokens_per_s", "energy_j", "device_peak_used_bytes")}
        )


def test_the_claim_says_which_job_carried_out_the_run(stored: tuple[StoredExperiment, ...]) -> None:
    for one in stored:
        claim = read_claim(Path(one.runs[0].job.run_dir))
        assert claim is not None and claim.executor == "slurm"
        assert claim.details["slurm"]["node"] == "n1"
        assert claim.details["slurm"]["job_id"] > 0
