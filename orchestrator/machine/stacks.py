"""Where the Python processes of a run that hangs stand: saved as `stacks.txt` before they are ended.

py-spy reads them from outside where it is installed and allowed; else a process that catches SIGUSR2 is asked, as the instrument
does, and what it writes to the run's stderr is copied. What it leaves out: a process that does neither, and frames below Python.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import LaunchError
from orchestrator.machine import process, process_tree
from orchestrator.records import RunFolder

if TYPE_CHECKING:
    import psutil

PY_SPY_S, ANSWER_S, QUIET_S = 20.0, 5.0, 0.5
_LONGEST = 1_000_000


def save(marker: str, folder: RunFolder) -> Path | None:
    """Writes the stacks of the tree's Python processes; None where none could be had."""
    parts = [_described(one, folder.stderr) for one in process_tree.members(marker) if _is_python(one)]
    told = [part for part in parts if part]
    if not told:
        return None
    folder.stacks.write_text("\n".join(told), encoding="utf-8")
    return folder.stacks


def _described(one: psutil.Process, stderr: Path) -> str | None:
    import psutil

    try:
        title = f"# {one.pid}: {' '.join(one.cmdline())[:300]}\n"
    except psutil.Error:
        return None
    found = _by_py_spy(one.pid) or _by_signal(one.pid, stderr)
    return None if found is None else title + found


def _is_python(one: psutil.Process) -> bool:
    import psutil

    try:
        return "python" in Path(one.exe()).name
    except (psutil.Error, OSError):
        return False


def _by_py_spy(pid: int) -> str | None:
    program = shutil.which("py-spy")
    if program is None:
        return None
    try:
        return process.capture([program, "dump", "--pid", str(pid)], PY_SPY_S)
    except LaunchError:  # not allowed to look into others, as a rule
        return None


def _by_signal(pid: int, stderr: Path) -> str | None:
    """What the process adds to the log when it is asked. Others may write there at the same time."""
    if not catches(pid, signal.SIGUSR2):
        return None
    before = stderr.stat().st_size
    try:
        os.kill(pid, signal.SIGUSR2)
    except OSError:
        return None
    deadline, size, grown_at = time.monotonic() + ANSWER_S, before, time.monotonic()
    while time.monotonic() < deadline and (size == before or time.monotonic() < grown_at + QUIET_S):
        time.sleep(0.05)
        now = stderr.stat().st_size
        if now != size:
            size, grown_at = now, time.monotonic()
    with stderr.open("rb") as file:
        file.seek(before)
        return file.read(_LONGEST).decode("utf-8", errors="replace") or None


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process handles the signal: one that does not would be ended by it."""
    return bool(_mask(pid) >> (number - 1) & 1)


def _mask(pid: int) -> int:
    try:
        lines: Iterable[str] = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)
    except (OSError, StopIteration, ValueError, IndexError):
        return 0
