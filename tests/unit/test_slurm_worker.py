"""What an element on a node learns from Slurm's variables."""

from __future__ import annotations

import pytest

from orchestrator.executors.slurm.worker import _allocation


@pytest.mark.parametrize(
    "variables, memory_mb",
    [
        ({"SLURM_MEM_PER_NODE": "400"}, 400),
        ({"SLURM_MEM_PER_CPU": "200", "SLURM_CPUS_ON_NODE": "3"}, 600),
        ({"SLURM_MEM_PER_GPU": "300", "SLURM_GPUS_ON_NODE": "2", "SLURM_CPUS_ON_NODE": "1"}, 600),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_GPUS_ON_NODE": "4"}, None),
    ],
)
def test_the_memory_of_the_allocation(variables: dict[str, str], memory_mb: int | None) -> None:
    slurm = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_JOB_END_TIME": "1790000000"}
    own = _allocation("tb-0.0001", 0, {**slurm, **variables})
    assert own.memory_mb == memory_mb == own.details()["slurm"].get("memory_mb")
