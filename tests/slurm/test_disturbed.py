"""Runs that are cancelled, killed, preempted, requeued or cut off, on a real Slurm."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cluster import Campaign, Cluster, waited


def begun(campaign: Campaign, count: int = 1) -> None:
    waited(lambda: len(campaign.starts()) >= count, why=f"{count} runs have begun")


def once(campaign: Campaign) -> bool:
    return set(campaign.starts().values()) == {1}


def kill(cluster: Cluster, element: str) -> None:
    for _ in range(3):  # a process may start another one meanwhile
        for pid in cluster.processes(element):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_cancelled_element_is_a_cancelled_run(campaign: Callable[..., Campaign], cluster: Cluster) -> None:
    some = campaign("sleep60", "quick")
    process = some.begin()
    begun(some, 2)
    waited(lambda: some.records() and len(cluster.listed()) == 1)
    (element,) = cluster.elements("RUNNING")
    cluster.call("scancel", element)
    code, said = some.end(process)
    assert code == 1 and some.statuses() == ["r1-t1 cancelled", "r1-t1 ok"], said
    assert "its job was cancelled in Slurm; repeat the command to run it again" in said


def test_a_cancelled_job_ends_the_call_and_the_next_call_repeats_it(
    campaign: Callable[..., Campaign], cluster: Cluster
) -> None:
    some = campaign("sleep8", "quick-1", "quick-2", throttle=1)
    process = some.begin()
    begun(some)
    waited(lambda: cluster.elements("RUNNING") and cluster.elements("PENDING"))
    cluster.call("scancel", cluster.elements("RUNNING")[0].partition("_")[0])
    code, said = some.end(process)
    assert code == 1 and "r1-t1 cancelled" in some.statuses(), said
    some.site = {}
    assert some.run()[0] == 0
    last = {name.rpartition("-t")[0]: record.status for name, record in some.records().items()}
    assert list(last.values()) == ["ok"] * 3 and once(some)


def test_a_run_ends_before_its_allocation_does(campaign: Callable[..., Campaign]) -> None:
    long = campaign("sleep100", time="1m")
    code, said = long.run()
    ((_, record),) = long.records().items()
    assert code == 1 and (record.status, record.kind) == ("timeout", "timeout"), said
    assert "shortly before the end of its allocation" in str(record.cause) and record.wall_s < 20


def test_a_killed_element_is_tried_again(campaign: Callable[..., Campaign], cluster: Cluster) -> None:
    """As the kernel kills a whole allocation whose memory ran out: nobody writes anything."""
    some = campaign("sleep6", "quick-1", "quick-2", pilot=3)
    process = some.begin()
    waited(lambda: any("sleep6" in label(some, name) for name in some.starts()))
    kill(cluster, cluster.elements("RUNNING")[0])
    code, said = some.end(process)
    assert code == 0 and some.statuses() == ["r1-t1 lost", "r1-t1 ok", "r1-t1 ok", "r1-t2 ok"], said
    assert once(some)


def label(campaign: Campaign, name: str) -> str:
    """Return the command of a run."""
    return (campaign.results / "experiments" / name.partition("/")[0] / "experiment.json").read_text()


def test_a_killed_run_one_is_lost_and_tried_again(campaign: Callable[..., Campaign], cluster: Cluster) -> None:
    some = campaign("sleep6")
    process = some.begin()
    begun(some)
    for pid in cluster.processes(cluster.elements("RUNNING")[0]):
        with suppress(OSError):
            if b"run-one" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    code, said = some.end(process)
    assert code == 0 and some.statuses() == ["r1-t1 lost", "r1-t2 ok"], said


def test_a_requeued_element_goes_on(campaign: Callable[..., Campaign], cluster: Cluster) -> None:
    some = campaign("sleep6", "quick", pilot=2)
    process = some.begin()
    begun(some)
    waited(lambda: any("sleep6" in label(some, name) for name in some.starts()))
    requeue(cluster, "requeue")
    code, said = some.end(process)
    assert code == 0 and len(some.batches()) == 1, said
    assert some.statuses() == ["r1-t1 cancelled", "r1-t1 ok", "r1-t2 ok"] and once(some), said


def requeue(cluster: Cluster, *words: str) -> None:
    """Requeue the only element, and let it begin at once."""
    (element,) = cluster.elements("RUNNING")
    cluster.call("scontrol", *words, element)
    release(cluster, element)


def release(cluster: Cluster, element: str) -> None:
    """Let a requeued element begin at once. In the second of its requeue, its node refuses it: Slurm compares whole seconds."""
    waited(lambda: element in cluster.elements("PENDING"), why="Slurm has requeued it")
    time.sleep(1.5)
    cluster.call("scontrol", "update", f"jobid={element}", "StartTime=now")


def preempt(cluster: Cluster) -> None:
    cluster.call("sbatch", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 4")


def test_a_preempted_element_goes_on(campaign: Callable[..., Campaign], cluster: Cluster) -> None:
    some = campaign("sleep6", lines=["--exclusive"], partition="main")
    process = some.begin()
    begun(some)
    (element,) = cluster.elements("RUNNING")
    preempt(cluster)
    release(cluster, element)
    code, said = some.end(process)
    assert code == 0 and some.statuses() == ["r1-t1 cancelled", "r1-t2 ok"] and once(some), said


def test_an_element_that_preemption_cancels_is_submitted_again(
    campaign: Callable[..., Campaign], cluster: Cluster
) -> None:
    some = campaign("sleep6", lines=["--exclusive"], partition="spot")
    process = some.begin()
    begun(some)
    preempt(cluster)
    code, said = some.end(process)
    assert code == 0 and len(some.batches()) == 2 and once(some), said
    assert [status.split()[0] for status in some.statuses()] == ["r1-t1", "r1-t2"]


def test_a_cut_off_node_writes_no_second_record(campaign: Callable[..., Campaign], cluster: Cluster) -> None:
    some = campaign("sleep45", "quick", pilot=2)
    process = some.begin()
    waited(lambda: any("sleep45" in label(some, name) for name in some.starts()))
    (element,) = cluster.elements("RUNNING")
    ghost, node = cluster.processes(element), cluster.call("squeue", "--noheader", "--format=%N").strip()
    cluster.kill(f"slurmd-{node}")
    release(cluster, element)
    code, said = some.end(process)
    assert code == 0 and len(some.batches()) == 1, said
    assert some.statuses() == ["r1-t1 lost", "r1-t1 ok", "r1-t2 ok"] and once(some), said
    (ok,) = [name for name, record in some.records().items() if record.status == "ok" and name.endswith("t1")]
    assert "quick" in label(some, ok), "the record of the cut-off run came second"
    before = some.records()
    waited(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in ghost), why="the cut-off processes end")
    assert some.records() == before and once(some)
    cluster.script("slurm-up.sh")  # the daemon starts again


def test_a_controller_that_forgets_a_job_and_reuses_its_number(
    campaign: Callable[..., Campaign], cluster: Cluster
) -> None:
    some = campaign("sleep3-1", "sleep3-2")
    some.fake("sbatch", '"$REAL" "$@" || exit\ntouch "$HERE/accepted"')
    process = some.begin()
    waited((some.folder / "accepted").exists)
    cluster.kill("slurmctld")
    cluster.script("slurm-up.sh")
    foreign = cluster.call(
        "sbatch", "--parsable", "--array=0-1", "--job-name=foreign", "--output=/dev/null", "--wrap=sleep 5"
    )
    code, said = some.end(process)
    assert code == 0, said
    ok = [name for name, record in some.records().items() if record.status == "ok"]
    assert len(ok) == 2 and once(some), (foreign, some.statuses())
