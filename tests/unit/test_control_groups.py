"""Control groups: names of mounts that are not UTF-8, and groups inside a group."""

from __future__ import annotations

import os
from pathlib import Path

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


def test_processes_in_groups_inside_a_group_are_members(tmp_path: Path) -> None:
    for folder, members in ((tmp_path, "1\n2\n"), (tmp_path / "inner", ""), (tmp_path / "inner" / "most", "3\n")):
        folder.mkdir(exist_ok=True)
        (folder / cgroup.MEMBERS).write_text(members)
    assert ControlGroup(path=tmp_path).members() == {1, 2, 3}


def test_a_group_is_removed_with_the_empty_groups_inside(tmp_path: Path) -> None:
    (tmp_path / "group" / "inner" / "most").mkdir(parents=True)
    ControlGroup(path=tmp_path / "group").remove()
    assert not (tmp_path / "group").exists()
