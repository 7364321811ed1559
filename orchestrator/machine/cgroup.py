"""A control group for one run, where the user may make one: the kernel's own list of who belongs to it, and a way to end all.

Nothing leaves a control group by starting a session, losing its parent or cleaning its environment. Version 2 and version 1
alike; where neither can be written there is none, and a run is held together by the rest (`tree`). A group is named by the run's
marker, so that it is found again when its maker was killed. What it does not: set limits, or move anybody but this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MEMBERS, KILL, MEMORY_EVENTS, MEMORY_CONTROL = "cgroup.procs", "cgroup.kill", "memory.events", "memory.oom_control"
_PREFERRED = ("memory", "", "pids", "freezer", "name=systemd")
"""Hierarchies of version 1 by controller, "" for version 2: the memory's first, since it also counts the kernel's kills."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlGroup:
    """The folder of a control group in its hierarchy."""

    path: Path

    def members(self) -> set[int]:
        """Who is in it now, by process number; zombies count until they are collected."""
        try:
            return {int(line) for line in (self.path / MEMBERS).read_text(encoding="ascii").split()}
        except (OSError, ValueError):
            return set()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """While entered this process is a member, and so is whatever it starts. What cannot be done is left undone."""
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
        """Kills every member at once, where the kernel can (5.14, version 2); this process must not be one."""
        with suppress(OSError):
            if os.getpid() not in self.members() and (self.path / KILL).exists():
                (self.path / KILL).write_text("1", encoding="ascii")

    def memory_kills(self) -> int:
        """How many of its processes the kernel has killed for memory; 0 where it does not say."""
        return memory_kills(self.path)

    def remove(self) -> None:
        """Only an empty one can be removed; one that is not stays, for whoever looks for survivors."""
        with suppress(OSError):
            self.path.rmdir()


def create(marker: str) -> ControlGroup | None:
    """A group below this process's own; None where the user may not have one."""
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


def find(marker: str) -> ControlGroup | None:
    """The group of that marker, made by this process or by one that was where this one is."""
    groups = (ControlGroup(path=folder / f"tunebench-{marker}") for folder in _own_folders())
    return next((group for group in groups if group.path.is_dir()), None)


def memory_kills(folder: Path) -> int:
    """Processes that the kernel killed for memory in a group's folder; 0 where it does not say."""
    for name in (MEMORY_EVENTS, MEMORY_CONTROL):
        with suppress(OSError, ValueError):
            lines = (line.split() for line in (folder / name).read_text(encoding="ascii").splitlines())
            counts = {words[0]: int(words[1]) for words in lines if len(words) == 2}
            if "oom_kill" in counts:
                return counts["oom_kill"]
    return 0


def memory_kills_around() -> int:
    """The same, over the groups that this process is in: for a run that has no group of its own."""
    return sum(memory_kills(folder) for folder in _own_folders())


def _own_folders() -> list[Path]:
    """The folders of this process's groups, the preferred hierarchy first; empty where there are no control groups."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        mounts = _mounts()
    except OSError:
        return []
    found: dict[str, Path] = {}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            mount = mounts.get(controller)
            if mount is not None:
                found[controller] = _below(mount, path)
    folders = (found[controller] for controller in _PREFERRED if controller in found)
    return [folder for folder in dict.fromkeys(folders) if (folder / MEMBERS).exists()]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Mount:
    """Where a hierarchy is seen, and which of its groups stands there."""

    point: Path
    root: str


def _mounts() -> dict[str, _Mount]:
    """Controller ("" for version 2) → its mount."""
    found: dict[str, _Mount] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, options = (*after.split(), "", "")[:3]
        names = [""] if kind == "cgroup2" else options.split(",") if kind == "cgroup" else []
        for name in names:
            found.setdefault(name, _Mount(point=Path(point), root=root))
    return found


def _below(mount: _Mount, path: str) -> Path:
    """The group's folder. In a container the path may be the host's, of which the mount shows only the end."""
    inside = os.path.relpath(path, mount.root)
    seen = mount.point / inside
    return mount.point if inside.startswith("..") or not seen.is_dir() else seen
