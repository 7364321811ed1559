"""Makes a control group for each run, if the user may make one.

The kernel lists the processes in the group, so that each of them can be found and ended. A process stays in its control group even
if it starts a session, loses its parent or clears its environment. Both versions of control groups work. If the user may write to
neither version, there is no group, and `process_tree` finds the processes by their other signs. A group is named after the run's
marker, so another process finds the group even if its maker was killed. This module sets no limits. It moves only its own process
into a group.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.machine.child_environment import checked_marker

MEMBERS, KILL, MEMORY_EVENTS, MEMORY_CONTROL = "cgroup.procs", "cgroup.kill", "memory.events", "memory.oom_control"
# The controllers whose hierarchies are tried; "" is version 2. `memory` is first, since it also counts the processes that the
# kernel kills.
_PREFERRED = ("memory", "", "pids", "freezer", "name=systemd")
# The time in which the threads of killed processes leave their group.
_LEAVING_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlGroup:
    """The folder of a control group in its hierarchy."""

    path: Path

    def members(self) -> set[int]:
        """Return the ids of the processes in the group and in the groups inside. Zombies count until they are collected."""
        found: set[int] = set()
        for folder in (self.path, *self._inside()):
            with suppress(OSError, ValueError):
                found |= {int(line) for line in (folder / MEMBERS).read_text(encoding="ascii").split()}
        return found

    def _inside(self) -> list[Path]:
        """Return the groups inside this group, the outer ones first. A container engine in a training makes such groups."""
        return [Path(folder, name) for folder, names, _ in os.walk(self.path) for name in names]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this process a member inside a `with` block.

        The processes that this process starts in the block are members, too. A group that cannot be written is ignored.
        """
        home = next((folder for folder in _own_folders() if folder == self.path.parent), None)
        with suppress(OSError):
            (self.path / MEMBERS).write_text(str(os.getpid()), encoding="ascii")
        try:
            yield
        finally:
            if home is not None:
                with suppress(OSError):
                    (home / MEMBERS).write_text(str(os.getpid()), encoding="ascii")

    def kill(self) -> None:
        """Kill all members at once. This needs version 2 and kernel 5.14. Do nothing if this process is a member."""
        with suppress(OSError):
            if os.getpid() not in self.members() and (self.path / KILL).exists():
                (self.path / KILL).write_text("1", encoding="ascii")

    def memory_kills(self) -> int:
        """Return how many of the group's processes the kernel killed because memory ran out."""
        return _memory_kills(self.path)

    def remove(self) -> None:
        """Remove the group if it is empty, with the groups inside. A group with survivors stays, so that they can be found.

        The threads of a killed process stay in the group for a moment after the process is a zombie, while its memory is freed.
        """
        deadline = time.monotonic() + _LEAVING_S
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _is_busy(self) -> bool:
        """Remove the group. Return True if there are processes in it."""
        try:
            for folder in (*reversed(self._inside()), self.path):
                folder.rmdir()
        except OSError as error:
            return error.errno == errno.EBUSY
        return False


def create(marker: str) -> ControlGroup | None:
    """Make a group below this process's group. Return None if the user may not make one."""
    for folder in _own_folders():
        group = ControlGroup(path=folder / _name(marker))
        try:
            group.path.mkdir()
        except OSError:
            continue
        with group.entered():
            joined = os.getpid() in group.members()
        if joined and os.getpid() not in group.members():
            return group
        group.remove()
    return None


def find(marker: str, *, noted: Path | None = None) -> ControlGroup | None:
    """Return the group with that marker, or None.

    `noted` is the group's path from the notes of a run. Without it, only groups below the groups of this process are found.
    """
    name = _name(marker)
    paths = [folder / name for folder in _own_folders()]
    if noted is not None and noted.name == name and ".." not in noted.parts:  # read from a file
        with suppress(OSError):
            paths += [noted for point, _ in _mounts().values() if noted.is_relative_to(point)]
    return next((ControlGroup(path=path) for path in paths if (path / MEMBERS).exists()), None)


def _name(marker: str) -> str:
    return f"tunebench-{checked_marker(marker)}"


def memory_kills_around() -> int:
    """Return how many processes in the groups of this process were killed because memory ran out.

    A run without a group of its own needs this number.
    """
    return sum(map(_memory_kills, _own_folders()))


def _memory_kills(folder: Path) -> int:
    """Return how many processes of a group the kernel killed because memory ran out. Return 0 if this is unknown."""
    for name in (MEMORY_EVENTS, MEMORY_CONTROL):
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (folder / name).read_text(encoding="ascii").splitlines())
            counts = {words[0]: int(words[1]) for words in lines if len(words) == 2}
            if "oom_kill" in counts:
                return counts["oom_kill"]
    return 0


def _own_folders() -> list[Path]:
    """Return the folders of this process's groups, in the order of _PREFERRED. Return [] if there are no control groups."""
    try:
        lines = _lines(Path("/proc/self/cgroup"))
        mounts = _mounts()
    except OSError:
        return []
    own: dict[str, Path] = {}
    for _, controllers, path in (words for line in lines if len(words := line.split(":", 2)) == 3):
        for controller in controllers.split(","):
            if controller in mounts:
                own[controller] = _below(*mounts[controller], path)
    folders = (own[controller] for controller in _PREFERRED if controller in own)
    return [folder for folder in dict.fromkeys(folders) if (folder / MEMBERS).exists()]


def _mounts() -> dict[str, tuple[Path, str]]:
    """Return a dict from controller to two values: the mount point of its hierarchy, and the group that is mounted there.

    The key of version 2 is "".
    """
    mounts: dict[str, tuple[Path, str]] = {}
    for line in _lines(Path("/proc/self/mountinfo")):
        before, _, after = line.partition(" - ")
        root, point = (*before.split(" "), *[""] * 5)[3:5]
        kind, _, options = (*after.split(" "), "", "")[:3]
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            mounts.setdefault(name, (Path(point), root))
    return mounts


def _lines(file: Path) -> list[str]:
    """Return the lines of a file of the kernel. Names in it may have any bytes except those of a space and of a line's end."""
    return [line for line in os.fsdecode(file.read_bytes()).split("\n") if line]


def _below(mount_point: Path, root: str, path: str) -> Path:
    """Return the folder of the group `path`.

    In a container, `path` may begin at the host's root, but the mount may show only a part of the hierarchy.
    """
    inside = os.path.relpath(path, root)
    folder = mount_point / inside
    return mount_point if inside.startswith("..") or not folder.is_dir() else folder
