"""Slurm ends runs for their memory, in both ways that it has: control groups, and its own look at the processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cluster import PARTITIONS, Campaign, Cluster

CONTROL_GROUPS = Path("/sys/fs/cgroup/memory")  # version 1; with version 2, Slurm needs systemd
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"
WAYS = {
    "control groups": "TaskPlugin=task/cgroup",
    "a look each second": """\
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill""",
}


@pytest.fixture(scope="module", params=WAYS)
def strict(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster that ends jobs with too much memory."""
    if request.param == "control groups" and not os.access(CONTROL_GROUPS / "cgroup.procs", os.W_OK):
        pytest.skip("needs control groups of version 1 that this user may write")
    folder = Path(tempfile.mkdtemp(prefix="tb", dir="/tmp"))
    (folder / "cgroup.conf").write_text(CGROUP_CONF)
    cluster = None
    try:
        cluster = Cluster.started(folder, SLURM_EXTRA=f"{PARTITIONS}\n{WAYS[request.param]}")
        yield cluster
    finally:
        Cluster(folder=folder, port=cluster.port if cluster else 0).script("slurm-down.sh")
        shutil.rmtree(folder, ignore_errors=True)
        for group in CONTROL_GROUPS.glob("slurm_n[123]"):
            with suppress(OSError):  # another cluster uses it
                group.rmdir()


def test_a_run_with_too_much_memory(campaign: Callable[..., Campaign], strict: Cluster) -> None:
    some = campaign("large1000", "quick-1", "quick-2", lines=["--mem=400M"])
    some.cluster = strict
    code, said = some.run()
    assert code == 1 and some.statuses() == ["r1-t1 failed", "r1-t1 ok", "r1-t1 ok"], said
    (record,) = [record for record in some.records().values() if record.status == "failed"]
    assert record.kind == "oom_host"
    assert "400 MiB" in str(record.cause) and "`mem_per_gpu:`, or `--mem` in `lines:`" in str(record.cause)
    assert some.run()[0] == 1 and len(some.batches()) == 1, "the second call repeats nothing"


def test_a_run_whose_own_process_is_killed_for_the_memory(campaign: Callable[..., Campaign], strict: Cluster) -> None:
    """The memory does not even suffice for Tunebench, so the kernel may choose any process."""
    some = campaign("large1000", lines=["--mem=60M"])
    some.cluster = strict
    code, said = some.run()
    ((_, record),) = some.records().items()
    assert code == 1 and (record.status, record.kind) == ("failed", "oom_host"), said
    assert "60 MiB" in str(record.cause)
