"""Resident memory of a process tree and the start of a process, as the system itself has them."""

from __future__ import annotations

import mmap
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import stages

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
CHILD = "import time; held = bytearray(b'x') * (48 << 20); print('ready', flush=True); time.sleep(60)"


def test_children_and_grandchildren_count() -> None:
    before = stages.tree_rss()
    shell = f"{shlex.join([sys.executable, '-c', CHILD])}; true"  # with a word behind it, bash stays between
    with subprocess.Popen(["bash", "-c", shell], stdout=subprocess.PIPE, start_new_session=True) as tree:
        assert tree.stdout is not None
        tree.stdout.readline()
        during = stages.tree_rss()
        os.killpg(tree.pid, 9)
    assert before is not None and during is not None
    assert during - before > 45 << 20


def test_a_process_started_when_the_system_says() -> None:
    assert stages.process_start() == pytest.approx(psutil.Process().create_time(), abs=1.5)
    assert stages.process_start() < time.time()


def test_a_process_that_is_gone_has_no_memory() -> None:
    assert stages.resident("VmRSS", 2**22 + 1) is None
    assert stages.stat_fields(2**22 + 1) == []


def test_the_kernels_peak_may_begin_anew_and_the_highest_is_kept() -> None:
    memory = stages.Memory()
    # Not a bytearray: in a large process, its memory may come from what the process has kept.
    with mmap.mmap(-1, 64 << 20) as held:
        held.write(b"x" * len(held))
    before = memory.high_water()
    if not memory.restart_high_water():
        pytest.skip("this kernel does not allow it")
    assert memory.high_water() < before
    assert memory.over_process()["rss_bytes"] == memory.highest_rss >= before


def test_without_cuda_there_is_no_memory_of_a_gpu() -> None:
    memory = stages.Memory()
    memory.close()
    assert set(memory.stages.values()) == {None}, "no training has begun"
    memory.begin(resets=True)
    loaded = memory.stages["after_load"]
    assert loaded is not None and loaded["rss_bytes"] > 1 << 20
    assert loaded["allocated_bytes"] is loaded["peak_reserved_bytes"] is loaded["ooms"] is None
    assert memory.stage == "first_step"
    memory.close()
    memory.close()
    assert memory.stages["steady"] is None
