"""The process tree of a run: who belongs to it, and how all of it is ended.

Four things hold a tree together, since each alone can be left: the marker in the environment (`TUNEBENCH_RUN`), the session of
the process that was started, the control group where there is one, and, in a process that adopts orphans (`run-one`), descent.
Ending it is INT, TERM and KILL, each with a bounded wait, and then a look that nobody is left. Starts nothing (`process`).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.machine import cgroup
from orchestrator.machine.child_environment import MARKER

if TYPE_CHECKING:
    import psutil  # loaded where a tree is ended: a plan needs `process.capture` alone

PATIENCE_S = ((signal.SIGINT, 3.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0))
_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 20
"""How often what was started while ending is looked for: processes can fork faster than they are listed."""

SIDECARS: set[int] = set()
"""Of this process: they carry the run's marker and outlive its tree, to see what the run gives back."""

_adopting = False


def adopt_orphans() -> None:
    """Makes this process the parent of whatever loses its own below it, so that a tree can't slip away by forking twice.

    For a process that runs one tree and nothing else: all that descends from it counts as the tree's. Linux alone can.
    """
    global _adopting
    with suppress(OSError, AttributeError):
        _adopting = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def collect_adopted(own: Iterable[int]) -> None:
    """Collects orphans that ended, by their numbers: a wait for just anybody would take away what a waiter in `own` waits for."""
    if not _adopting:
        return
    import psutil

    known = {*own, *SIDECARS}
    for child in psutil.Process().children():
        if child.pid not in known:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def members(marker: str, root: subprocess.Popen[bytes] | None = None) -> list[psutil.Process]:
    """The living processes of a tree, without this one, those above it and its sidecars."""
    import psutil

    found = {process.pid: process for process in psutil.process_iter() if _belongs(process, marker, root)}
    group = cgroup.find(marker)
    for pid in group.members() if group else ():
        with suppress(psutil.Error):
            found.setdefault(pid, psutil.Process(pid))
    with suppress(psutil.Error):
        if _adopting:
            found |= {process.pid: process for process in psutil.Process().children(recursive=True)}
        elif root is not None and root.returncode is None:
            found |= {process.pid: process for process in psutil.Process(root.pid).children(recursive=True)}
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents()), *SIDECARS}
    return [process for pid, process in found.items() if pid not in spared and not _gone(process)]


def _belongs(process: psutil.Process, marker: str, root: subprocess.Popen[bytes] | None) -> bool:
    import psutil

    try:
        if root is not None and (process.pid == root.pid or os.getsid(process.pid) == root.pid):
            return True
        return process.environ().get(MARKER) == marker
    except (psutil.Error, OSError):
        return False


def end_tree(
    marker: str,
    *,
    root: subprocess.Popen[bytes] | None = None,
    hurry: Callable[[], bool] = lambda: False,
    keep_group: bool = False,
) -> int:
    """Ends every process of the tree. Returns how many it found living.

    `hurry`: asked while waiting; once it is true what lives is killed at once. `keep_group`: the control group is still to be read.
    """
    found = members(marker, root)
    # A run that is stopped gets INT first, as by Ctrl-C; orphans of one that has ended have nobody left to tell.
    first = signal.SIGINT if root is not None and root.poll() is None else signal.SIGTERM
    end(found, root=root, first=first, hurry=hurry)
    group = cgroup.find(marker)
    if group is not None:
        group.kill()
    for _ in range(_ROUNDS):
        late = members(marker, root)
        if not late:
            break
        end(late, root=root, first=signal.SIGKILL)
    if root is not None:
        with suppress(subprocess.TimeoutExpired):  # a process stuck in the kernel outlives even KILL
            root.wait(timeout=5)
    collect_adopted([root.pid] if root is not None else [])
    if group is not None and not keep_group:
        group.remove()
    return len(found)


def survivors(marker: str, root: subprocess.Popen[bytes] | None = None) -> tuple[str, ...]:
    """Who still lives after all, as name and number: stuck in the kernel, as a rule in a driver."""
    import psutil

    found = []
    for process in members(marker, root):
        with suppress(psutil.Error):
            found.append(f"{process.name()} ({process.pid})")
    return tuple(found)


def end(
    processes: Iterable[psutil.Process],
    *,
    root: subprocess.Popen[bytes] | None,
    first: signal.Signals,
    hurry: Callable[[], bool] = lambda: False,
) -> None:
    """Sends `first` and what is stronger, in turn, until none lives; each signal has its bounded wait."""
    import psutil

    living = list(processes)
    for number, patience_s in PATIENCE_S[[step[0] for step in PATIENCE_S].index(first) :]:
        for process in living:
            with suppress(psutil.Error):
                process.send_signal(number)
        deadline = time.monotonic() + patience_s
        while living and time.monotonic() < deadline and (number is signal.SIGKILL or not hurry()):
            if root is not None:
                root.poll()
            _, living = psutil.wait_procs(living, timeout=0.05)
            living = [process for process in living if not _gone(process)]
        if not living:
            return


def _gone(process: psutil.Process) -> bool:
    """A zombie has ended; that nobody collects it (a container without an init) is not our tree's fault."""
    import psutil

    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
