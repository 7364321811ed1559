"""Makes a control group for each run, if the user may make one.

The kernel lists the processes in the group, and all of them can be ended. A process stays in its control group even if it
starts a session, loses its parent or clears its environment. Version 1 and version 2 both work. If the user may write neither
version, there is no group, and `process_tree` finds the processes by their other signs. A group is named after the run's
marker. So another process can find the group if the process that made it was killed. This module sets no limits and moves only
this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MEMBERS, KILL, MEMORY_EVENTS, MEMORY_CONTROL = "cgroup.procs", "cgroup.kill", "memory.events", "memory.oom_control"
# Hierarchies of version 1 by their controller; "" is version 2. Memory is first, since it also counts the kernel's kills.
_PREFERRED = ("memory", "", "pids", "freezer", "name=systemd")


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlGroup:
    """The folder of a control group in its hierarchy."""

    path: Path

    def members(self) -> set[int]:
        """Return the ids of the processes in the group. Zombies count until they are collected."""
        try:
            return {int(line) for line in (self.path / MEMBERS).read_text(encoding="ascii").split()}
        except (OSError, ValueError):
            return set()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this process, and every process that it starts meanwhile, a member. A group that cannot be written is ignored."""
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
        """Kill all members at once, if the kernel can (from 5.14, version 2) and this process is not a member."""
        with suppress(OSError):
            if os.getpid() not in self.members() and (self.path / KILL).exists():
                (self.path / KILL).write_text("1", encoding="ascii")

    def memory_kills(self) -> int:
        """Return the number of the group's processes that the kernel killed for memory."""
        return _memory_kills(self.path)

    def remove(self) -> None:
        """Remove the group if it is empty. A group with survivors stays, so that they can be found."""
        with suppress(OSError):
            self.path.rmdir()


def create(marker: str) -> ControlGroup | None:
    """Make a group below this process's group. Return None if the user may not make one."""
    for folder in _own_folders():
        group = ControlGroup(path=folder / f"tunebench-{marker}")
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

    Without the `noted` path, a group is found only if a process in the same group as this process made it.
    """
    name = f"tunebench-{marker}"
    paths = [folder / name for folder in _own_folders()]
    if noted is not None and noted.name == name and ".." not in noted.parts:  # the path is from a file
        with suppress(OSError):
            paths += [noted for point, _ in _mounts().values() if noted.is_relative_to(point)]
    return next((ControlGroup(path=path) for path in paths if (path / MEMBERS).exists()), None)


def memory_kills_around() -> int:
    """Return the number of memory kills in this process's groups, for a run that has no group of its own."""
    return sum(map(_memory_kills, _own_folders()))


def _memory_kills(folder: Path) -> int:
    """Return the number of processes that the kernel killed for memory in a group's folder; 0 if it is unknown."""
    for name in (MEMORY_EVENTS, MEMORY_CONTROL):
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (folder / name).read_text(encoding="ascii").splitlines())
            counts = {words[0]: int(words[1]) for words in lines if len(words) == 2}
            if "oom_kill" in counts:
                return counts["oom_kill"]
    return 0


def _own_folders() -> list[Path]:
    """Return the folders of this process's groups, the preferred hierarchy first; empty without control groups."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = _mounts()
    except OSError:
        return []
    own: dict[str, Path] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in mounts:
                own[controller] = _below(*mounts[controller], path)
    folders = (own[controller] for controller in _PREFERRED if controller in own)
    return [folder for folder in dict.fromkeys(folders) if (folder / MEMBERS).exists()]


def _mounts() -> dict[str, tuple[Path, str]]:
    """Return the mount point of each controller's hierarchy, and the group mounted there. The key of version 2 is ""."""
    mounts: dict[str, tuple[Path, str]] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = (*after.split(), "", "")[:3]
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            mounts.setdefault(name, (Path(point), root))
    return mounts


def _below(mount_point: Path, root: str, path: str) -> Path:
    """Return a group's folder. In a container, `path` may be the host's path, while the mount shows only a part of this path."""
    inside = os.path.relpath(path, root)
    folder = mount_point / inside
    return mount_point if inside.startswith("..") or not folder.is_dir() else folder
