"""Saves the stacks of a hanging run's Python processes as `stacks.txt`, before the processes are ended.

py-spy reads the stacks if it is installed and has the permission. Otherwise this module sends SIGUSR2 to each process that
handles this signal. The instrument handles it: it writes the stacks to the run's stderr, and this module copies them. Left out:
processes for which neither way works, and frames of code that is not Python.

The stacks of a run's other nodes come from there (`run.nodes`). Their processes also write into the log of this node.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A Python process of a run: its heading, and its stack; None if py-spy cannot read the stack, and a signal may show it."""

    pid: int
    heading: str
    text: str | None


def save(marker: str, folder: RunFolder, elsewhere: Iterable[str] = ()) -> Path | None:
    """Write the stacks of the tree's Python processes and return the file's path, or None if no stack could be read.

    `elsewhere` has the stacks of other nodes.
    """
    found = []
    for stack in on_this_node(marker):
        text = by_signal(stack.pid, folder.stderr) if stack.text is None else stack.text
        found += [] if text is None else [stack.heading + text]
    found += elsewhere
    if not found:
        return None
    writing.replace(folder.stacks, redact("\n".join(found)))
    return folder.stacks


def on_this_node(marker: str) -> Iterator[Stack]:
    """Yield the Python processes of the tree on this node."""
    for member in process_tree.members(marker):
        heading = _heading(member)
        if heading is not None:
            yield Stack(pid=member.pid, heading=heading, text=_by_py_spy(member.pid))


def _heading(process: psutil.Process) -> str | None:
    """Return the first line of a process's stack; None if it is not Python."""
    import psutil

    try:
        if "python" not in Path(process.exe()).name:
            return None
        command = redact(" ".join(redact_words(process.cmdline())))[:300]
    except (psutil.Error, OSError):
        return None
    node = os.environ.get(process_tree.NODE)
    return f"# {f'node {node}, ' if node else ''}{process.pid}: {command}\n"


def _by_py_spy(pid: int) -> str | None:
    program = shutil.which("py-spy")
    if program is None:
        return None
    try:
        return process.capture([program, "dump", "--pid", str(pid)], PY_SPY_S)
    except LaunchError:  # usually, py-spy has no permission to read other processes
        return None


def by_signal(pid: int, stderr: Path) -> str | None:
    """Send SIGUSR2, and return the stack that the process writes; None if it does not handle the signal."""
    if not catches(pid, signal.SIGUSR2):
        return None
    return written_after(lambda: os.kill(pid, signal.SIGUSR2), stderr)


def written_after(ask: Callable[[], object], stderr: Path) -> str | None:
    """Call `ask`, and return the text that is added to the log afterwards. Other processes may write there at the same time."""
    try:
        with reading.opened(stderr) as log:
            return _answer(ask, log)
    except (OSError, ValueError):  # the process has ended, or the program has replaced its log
        return None


def _answer(ask: Callable[[], object], log: BinaryIO) -> str | None:
    before = log.seek(0, os.SEEK_END)
    ask()
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
