"""The kernel's log: records in the format of /dev/kmsg, from a file that grows as the device does, and from the device itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from factories.cases import document
from factories.control_groups import small_group
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.machine import kernel_log
from orchestrator.machine.kernel_log import KMSG, KernelLog, killed_for_memory
from orchestrator.records import ProcessOutcome, RunFolder
from orchestrator.run.training import out_of_memory

INVOKED = (
    "4,812,5140900122,-;python invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0\n"
)
VICTIM = (
    "6,930,5140913378,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/user.slice,task=python,pid=4242,uid=1000\n"
)
KILLED = (
    "3,931,5140913402,-;Out of memory: Killed process 4242 (python) total-vm:98304000kB, anon-rss:65011712kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:1000 pgtables:127312kB oom_score_adj:0\n"
)
REAPED = "6,932,5141302115,-;oom_reaper: reaped process 4243 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n"
OF_A_GROUP = (
    "3,990,6140913402,-;Memory cgroup out of memory: Killed process 77 (pt_data_worker) total-vm:1kB, anon-rss:1kB\n"
)
OLDER = (
    "3,12,900,-;Out of memory: Kill process 55 (python) score 901 or sacrifice child\n"
    "3,13,901,-;Killed process 56 (sh) total-vm:1kB\n"
)
WITH_KEYS = "6,940,5151000000,-;nvidia 0000:17:00.0: enabling device\n SUBSYSTEM=pci\n DEVICE=+pci:0000:17:00.0\n"


@pytest.mark.parametrize(
    ("text", "killed"),
    [
        (INVOKED + VICTIM + KILLED + REAPED, {4242, 4243}),
        (WITH_KEYS + OF_A_GROUP + WITH_KEYS, {77}),
        ("4,7,9,-,caller=T1;Out of memory (oom_kill_allocating_task): Killed process 9 (x) total-vm:1kB\n", {9}),
        (OLDER, {55, 56}),
        (INVOKED + VICTIM, set()),
        ("", set()),
    ],
)
def test_whom_the_kernel_killed(text: str, killed: set[int]) -> None:
    assert killed_for_memory(text) == killed


@pytest.mark.parametrize("line", document("kernel_log/what_the_kernel_did_not_say_counts_for_nothing"))
def test_what_the_kernel_did_not_say_counts_for_nothing(line: str) -> None:
    assert killed_for_memory(f"{line}\n") == frozenset()


@given(st.text())
def test_any_text_can_be_looked_at(text: str) -> None:
    assert 4242 in killed_for_memory(f"{text}\n{KILLED}")


def test_only_what_is_written_from_now_on_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(KILLED)
    with KernelLog(path) as log:
        assert log.read() == ""
        with path.open("a") as kernel:
            kernel.write(REAPED)
        assert killed_for_memory(log.read()) == {4243}
        assert log.read() == ""


def test_no_more_is_read_than_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.touch()
    with KernelLog(path) as log:
        os.truncate(path, 2**40)
        assert len(log.read()) == kernel_log.LARGEST_BYTES
        assert log.read() == ""


def test_nobody_is_waited_for(tmp_path: Path) -> None:
    """A pipe that a writer holds open has, like the device, nothing to say for now."""
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    try:
        with KernelLog(tmp_path / "kmsg") as log:
            began = time.monotonic()
            assert log.read() == ""
            assert time.monotonic() - began < 5
    finally:
        os.close(writer)


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    with KernelLog(tmp_path / "kmsg") as log:
        assert log.read() == ""
    with kernel_log.open_kernel_log() as log:
        log.read()


@pytest.mark.parametrize(
    ("pid", "noted", "log", "of_the_run"),
    [
        (4242, "", "", True),
        (1, "17\n4242\n", "", True),
        (1, "", "  exitcode  : -9 (pid: 4242)\n", True),
        (1, "17\n", "exitcode: -9 (pid: 42)\n", False),
        (None, "x\n-4242\n\xff\n" + "4242" * 9, "", False),
    ],
)
def test_a_kill_counts_where_it_was_one_of_the_run(
    pid: int | None, noted: str, log: str, of_the_run: bool, tmp_path: Path
) -> None:
    (tmp_path / "pids.txt").write_text(noted)
    (tmp_path / "stderr.log").write_text(log)
    outcome = ProcessOutcome(exit_code=None, signal=9, started_at=0.0, ended_at=1.0, pid=pid)
    assert out_of_memory(INVOKED + KILLED, outcome, RunFolder(tmp_path)) is of_the_run
    assert not out_of_memory(INVOKED, outcome, RunFolder(tmp_path))


def may_read_the_kernels_log() -> bool:
    try:
        os.close(os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return os.readlink("/proc/self/ns/pid") == kernel_log._KERNELS_OWN_NUMBERS


@pytest.mark.skipif(not may_read_the_kernels_log(), reason="nobody may read the kernel's log here")
def test_a_process_that_the_kernel_really_killed_is_named() -> None:
    group = small_group()
    with kernel_log.open_kernel_log() as log:
        with group.entered():
            hungry = subprocess.Popen([sys.executable, "-c", "x = [bytearray(2**20) for _ in range(512)]"])
        assert hungry.wait(timeout=60) < 0
        assert hungry.pid in killed_for_memory(log.read())
    group.remove()
