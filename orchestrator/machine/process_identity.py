"""Facts that identify a process later, when its number may belong to another process: host, boot, PID namespace, start time.

`run-one` notes the processes of its run in a file. If `run-one` is killed, another process reads these notes to find the
processes that still run.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from orchestrator.files import reading, writing
from orchestrator.machine.child_environment import checked_marker


@dataclass(frozen=True, kw_only=True, slots=True)
class Noted:
    """The notes of a run: its marker, its control group, if any, and the ids of the noted processes that still live."""

    marker: str | None = None
    group: Path | None = None
    living: frozenset[int] = frozenset()


def note(file: Path, *, marker: str, group: Path | None, pids: Iterable[int]) -> None:
    """Write the marker, the control group and the processes to `file`, unless it has the same content already.

    A full disk must not end a run, so errors are ignored.
    """
    started = sorted((pid, started) for pid in pids if (started := start_time(pid)) is not None)
    path = None if group is None else str(group)
    fields = {"boot_id": boot_id(), "pid_namespace": pid_namespace(), "marker": marker, "group": path}
    text = json.dumps({**fields, "processes": started}) + "\n"
    with suppress(OSError):
        if not _contains(file, text):
            writing.replace(file, text)


def _contains(file: Path, text: str) -> bool:
    try:
        return reading.read_text(file, limit=reading.CLAIM_BYTES) == text
    except (OSError, ValueError):
        return False


def noted(file: Path) -> Noted:
    """Return the notes in `file`. Return empty notes if the file is missing, damaged, or from another boot or container."""
    try:
        fields = reading.read_json(file, limit=reading.CLAIM_BYTES)
        if (fields["boot_id"], fields["pid_namespace"]) != (boot_id(), pid_namespace()):
            return Noted()
        processes = [(pid, started) for pid, started in fields["processes"] if type(pid) is int and 0 < pid < 2**31]
        living = frozenset(pid for pid, started in processes if start_time(pid) == started)
        marker = checked_marker(fields["marker"]) if "marker" in fields else None  # older notes have none
        return Noted(marker=marker, group=Path(fields["group"]) if fields["group"] else None, living=living)
    except (OSError, ValueError, TypeError, KeyError):
        return Noted()


@cache
def pid_namespace() -> str:
    """Return the PID namespace of this process.

    Even two containers with the same host name may use one number for different processes.
    """
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def host_name() -> str:
    """Return this machine's name. Bytes in it that are not UTF-8 are replaced, because no file of Tunebench could hold them."""
    return os.fsencode(socket.gethostname()).decode("utf-8", errors="replace")


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine. Processes of an earlier boot have ended."""
    with suppress(OSError):
        # An empty id would make another host, which has none either, look like this one.
        if text := Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip():
            return text
    import psutil

    return str(int(psutil.boot_time()))


def start_time(pid: int) -> float | None:
    """Return the start time of a process, or None if the process has ended or cannot be read.

    On Linux, setting the clock does not change this time, and the time is the same in all time namespaces.
    """
    try:
        fields = _stat(pid)
        return None if fields[0] in "ZX" else float(fields[19]) - _shift()
    except FileNotFoundError:
        pass
    except (OSError, IndexError, ValueError):
        return None
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time(), 1)
    except psutil.Error:
        return None


@cache
def _shift() -> float:
    """Return the clock ticks that the time namespace of this process adds to the start times in `/proc`."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/self/timens_offsets").read_text(encoding="ascii").splitlines()
        seconds, nanoseconds = {name: rest for name, *rest in map(str.split, lines)}["boottime"]
        return round((int(seconds) + int(nanoseconds) / 1e9) * os.sysconf("SC_CLK_TCK"))
    return 0


def is_hidden(pid: int) -> bool:
    """Return whether the process exists, but belongs to another user and cannot be read.

    This happens if `/proc` was mounted with `hidepid`.
    """
    try:
        _stat(pid)
        return False
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except PermissionError:
        return start_time(pid) is None
    except OSError:
        pass
    return False


def parents() -> dict[int, int]:
    """Return the parent of every process that this process can read.

    The functions `children` and `parents` of psutil raise an error if `/proc` hides the processes of other users.
    """
    import psutil

    found: dict[int, int] = {}
    for pid in psutil.pids():
        with suppress(OSError, IndexError, ValueError, psutil.Error):
            found[pid] = int(_stat(pid)[1]) if os.path.isdir("/proc/self") else psutil.Process(pid).ppid()
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` after the name of the process. Raise OSError if they cannot be read."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()
