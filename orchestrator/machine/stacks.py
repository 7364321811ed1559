"""Saves the stacks of a hanging run's Python processes as `stacks.txt`, before the processes are ended.

py-spy reads the stacks if it is installed and has the permission. Otherwise this module sends SIGUSR2 to each process that
handles this signal. The instrument handles it: it writes the stacks to the run's stderr, and this module copies them. Left out:
processes for which neither way works, and frames of code that is not Python.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from orchestrator.errors import LaunchError
from orchestrator.files import reading, writing
from orchestrator.files.redaction import redact, redact_words
from orchestrator.machine import process, process_tree
from orchestrator.records import RunFolder

if TYPE_CHECKING:
    import psutil

PY_SPY_S, ANSWER_S, QUIET_S = 20.0, 5.0, 0.5
_LONGEST = 1_000_000


def save(marker: str, folder: RunFolder) -> Path | None:
    """Write the stacks of the tree's Python processes and return the file's path, or None if no stack could be read."""
    stacks = [stack for member in process_tree.members(marker) if (stack := _stack(member, folder.stderr))]
    if not stacks:
        return None
    writing.replace(folder.stacks, redact("\n".join(stacks)))
    return folder.stacks


def _stack(process: psutil.Process, stderr: Path) -> str | None:
    import psutil

    try:
        if "python" not in Path(process.exe()).name:
            return None
        title = f"# {process.pid}: {redact(' '.join(redact_words(process.cmdline())))[:300]}\n"
    except (psutil.Error, OSError):
        return None
    stack = _by_py_spy(process.pid) or by_signal(process.pid, stderr)
    return None if stack is None else title + stack


def _by_py_spy(pid: int) -> str | None:
    program = shutil.which("py-spy")
    if program is None:
        return None
    try:
        return process.capture([program, "dump", "--pid", str(pid)], PY_SPY_S)
    except LaunchError:  # usually, py-spy has no permission to read other processes
        return None


def by_signal(pid: int, stderr: Path) -> str | None:
    """Send SIGUSR2, and return the text that is added to the log afterwards. Other processes may write there at the same time."""
    if not catches(pid, signal.SIGUSR2):
        return None
    try:
        with reading.opened(stderr) as log:
            return _answer(pid, log)
    except (OSError, ValueError):  # the process has ended, or the program has replaced its log
        return None


def _answer(pid: int, log: BinaryIO) -> str | None:
    before = log.seek(0, os.SEEK_END)
    os.kill(pid, signal.SIGUSR2)
    deadline, size, grown_at = time.monotonic() + ANSWER_S, before, time.monotonic()
    while time.monotonic() < deadline and (size == before or time.monotonic() < grown_at + QUIET_S):
        time.sleep(0.05)
        now = log.seek(0, os.SEEK_END)
        if now != size:
            size, grown_at = now, time.monotonic()
    log.seek(before)
    return log.read(_LONGEST).decode("utf-8", errors="replace") or None


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether the process handles the signal. The signal would end a process that does not handle it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        mask = int(next(line for line in lines if line.startswith("SigCgt:")).split()[1], 16)
    except (OSError, StopIteration, ValueError, IndexError):
        return False
    return bool(mask >> (number - 1) & 1)
