"""Control groups: names of mounts that are not UTF-8, groups inside a group, and the end of a group."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from orchestrator.machine import cgroup
from orchestrator.machine.cgroup import ControlGroup

MOUNTS = (
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
    "31 24 0:27 / /media/Ger\udce4t rw - vfat /dev/sdb1 rw",
    "32 24 0:28 / /media/by\u2028a\x85lot\x0c rw - vfat /dev/sdc1 rw",
)


def test_a_mount_with_any_name_hides_no_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mountinfo"
    file.write_bytes(os.fsencode("\n".join(MOUNTS) + "\n"))
    assert cgroup._lines(file) == [*MOUNTS]
    monkeypatch.setattr(cgroup, "_lines", lambda _: [*MOUNTS])
    assert cgroup._mounts() == {"": (Path("/sys/fs/cgroup"), "/")}


def test_lines_that_are_too_short_hide_no_control_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = {"mountinfo": ["36 35 98:0 /", *MOUNTS], "cgroup": ["x", "0::/"]}
    monkeypatch.setattr(cgroup, "_lines", lambda file: lines[file.name])
    monkeypatch.setattr(cgroup, "_PREFERRED", ("",))
    assert cgroup._mounts() == {"": (Path("/sys/fs/cgroup"), "/")}
    assert len(cgroup._own_folders()) <= 1


def test_processes_in_groups_inside_a_group_are_members(tmp_path: Path) -> None:
    for folder, members in ((tmp_path, "1\n2\n"), (tmp_path / "inner", ""), (tmp_path / "inner" / "most", "3\n")):
        folder.mkdir(exist_ok=True)
        (folder / cgroup.MEMBERS).write_text(members)
    assert ControlGroup(path=tmp_path).members() == {1, 2, 3}


def test_a_group_is_removed_with_the_empty_groups_inside(tmp_path: Path) -> None:
    (tmp_path / "group" / "inner" / "most").mkdir(parents=True)
    ControlGroup(path=tmp_path / "group").remove()
    assert not (tmp_path / "group").exists()


THREADS = """
import threading, time
memory = bytearray(300 * 2**20)  # it takes the kernel some time to free this
for _ in range(40):
    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()
print("begun", flush=True)
time.sleep(99)
"""


def test_a_group_is_removed_although_threads_of_a_killed_process_are_still_in_it() -> None:
    group = cgroup.create(uuid.uuid4().hex)
    if group is None:
        pytest.skip("this user may not create control groups")
    with group.entered():
        child = subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline()
    child.kill()
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0)
    group.remove()
    child.communicate()
    assert not group.path.exists()


def test_a_group_with_a_survivor_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    group = cgroup.create(uuid.uuid4().hex)
    if group is None:
        pytest.skip("this user may not create control groups")
    monkeypatch.setattr(cgroup, "_LEAVING_S", 0.1)
    with group.entered():
        child = subprocess.Popen(["sleep", "99"])
    group.remove()
    assert group.members() == {child.pid}
    child.kill()
    child.wait()
    group.remove()
    assert not group.path.exists()
