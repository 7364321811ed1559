"""Facts that identify a process, later and for other processes: the boot, the PID namespace, the start time."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def pid_namespace() -> str:
    """Return the PID namespace. Two containers may have the same host name, and use the same number for different processes."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@cache
def boot_id() -> str:
    """Return the id of this boot of the machine. Processes of an earlier boot have ended."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        import psutil

        return str(int(psutil.boot_time()))


def start_time(pid: int) -> float | None:
    """Return the start time of a process; None if it has ended. On Linux, a change of the clock does not affect it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else float(fields[19])
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
