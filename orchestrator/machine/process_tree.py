"""Finds the processes of a run's tree and ends them. The module `process` starts them.

A process can lose a sign, so there are four signs. A process belongs to the tree if it has at least one of them:

- the marker in its environment (`TUNEBENCH_RUN`),
- the session of the process that was started,
- the control group, if there is one,
- its descent from this process, if this process adopts orphans, as `run-one` does. A warm run descends from a keeper instead.

If `run-one` was killed, another process ends its tree. That process does not know the session or the descent. It reads the
notes of `run-one` instead, and looks for processes that have the run's logs open for writing.

To end a tree, this module sends INT, TERM and KILL, and waits a bounded time after each. Then it searches for members again.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.machine import cgroup, process_identity
from orchestrator.machine.child_environment import MARKER, checked_marker
from orchestrator.records import RunFolder

if TYPE_CHECKING:
    import psutil  # loaded only when a tree is ended; a plan needs only `process.capture`

PATIENCE_S = ((signal.SIGINT, 3.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0))
_PR_SET_CHILD_SUBREAPER = 36
# Slurm's name of the node of a process. Several nodes of a test cluster are one machine.
NODE = "SLURMD_NODENAME"
# The number of searches for late processes. Processes can fork faster than they are listed.
_ROUNDS = 20

# The ids of this process's sidecars. Sidecars have the run's marker, but live longer than the run's tree, to measure the memory
# that the tree frees.
SIDECARS: set[int] = set()

# The keepers of this process's warm runs (`workers/warm/`), with the times when they started. Each adopts the orphans of its
# run, and ends after the last of them.
KEEPERS: dict[int, float | None] = {}

_adopting = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The outcome of ending a tree: how many processes ended, and the name and the id of each process that still lives.

    Such a process is usually stuck in a driver, or belongs to another user.
    """

    count: int
    survivors: tuple[str, ...] = ()


class Child(Protocol):
    """A process that this process started, or a warm starter for it: what is needed of Popen."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


def add_keeper(pid: int) -> None:
    """Count all processes below the keeper `pid` as members of this process's tree."""
    KEEPERS[pid] = process_identity.start_time(pid)


def adopt_orphans() -> None:
    """Let this process adopt each descendant whose parent ends, so that no process leaves the tree by forking twice.

    Call this function only in a process that runs one tree and nothing else: all descendants of this process count as members
    of the tree. Only Linux supports it.
    """
    global _adopting
    with suppress(OSError, AttributeError):
        _adopting = ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def collect_adopted(own: Iterable[int]) -> None:
    """Collect each ended orphan by its id.

    A call that waits for any child would also collect the children in `own`. Other code waits for those children.
    """
    if not _adopting:
        return
    known = {*own, *SIDECARS}
    parents = process_identity.parents()
    for pid in (pid for pid, parent in parents.items() if parent == os.getpid() and pid not in known):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def descendants() -> set[int]:
    """Return the ids of this process's descendants without its sidecars. In `run-one` these are the processes of the run."""
    parents = process_identity.parents()
    return (_descendants(os.getpid(), parents) | _kept(parents)) - _sidecars(parents)


def _kept(parents: Mapping[int, int]) -> set[int]:
    """Return the ids of the processes below the keepers. The id of an ended keeper may belong to another process."""
    living = [pid for pid, began in KEEPERS.items() if began is not None and process_identity.start_time(pid) == began]
    return set[int]().union(*(_descendants(pid, parents) for pid in living))


def _sidecars(parents: Mapping[int, int]) -> set[int]:
    return SIDECARS.union(*(_descendants(pid, parents) for pid in SIDECARS))


def _descendants(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Return the ids of all processes below the process `pid`."""
    children: dict[int, list[int]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found - {pid}
        found |= new
        waiting += new
    return found


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    """Return the ids of all processes above the process `pid`."""
    found: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in found:
        found.add(pid)
    return found


def note(folder: RunFolder, marker: str, group: cgroup.ControlGroup | None) -> None:
    """Write the marker, the control group and the descendants of this process to a file in the run's folder.

    Another process reads this file in `end_tree`.
    """
    process_identity.note(folder.processes, marker=marker, group=group.path if group else None, pids=descendants())


def _left_behind(folder: RunFolder) -> set[int]:
    """Return the ids of processes that a killed `run-one` left.

    These are the noted processes, all processes in their sessions, and all that write to the run's logs.
    """
    import psutil

    living = process_identity.noted(folder.processes).living
    sessions = {session for pid in living if (session := _session(pid)) is not None}
    logs = {os.path.realpath(log) for log in (folder.stdout, folder.stderr)}
    return {pid for pid in psutil.pids() if pid in living or _session(pid) in sessions or _writes(pid, logs)}


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _writes(pid: int, files: set[str]) -> bool:
    """Return whether the process has one of these files open for writing.

    A process that only reads, such as `tail -f`, does not belong to the run.
    """
    with suppress(OSError, ValueError, IndexError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{name}") in files:
                with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
                    flags = int(file.read().partition("flags:")[2].split()[0], 8)
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False


def members(marker: str, root: Child | None = None, *, folder: RunFolder | None = None) -> list[psutil.Process]:
    """Return the living processes of a tree, without this process, its ancestors and its sidecars.

    Give the run's `folder` only if its `run-one` was killed. Raise ValueError for a marker that no run can have.
    """
    import psutil

    checked_marker(marker)
    parents = process_identity.parents()
    ids = {pid for pid in psutil.pids() if _belongs(pid, marker, root)}
    group = cgroup.find(marker, noted=process_identity.noted(folder.processes).group if folder else None)
    ids |= group.members() if group else set()
    ids |= _left_behind(folder) if folder else set()
    ids |= _kept(parents)
    if _adopting:
        ids |= _descendants(os.getpid(), parents)
    elif root is not None and root.returncode is None:
        ids |= _descendants(root.pid, parents)
    ids -= {os.getpid(), *_ancestors(os.getpid(), parents), *_sidecars(parents)}
    tree = []
    for pid in sorted(ids):
        with suppress(psutil.Error):
            tree.append(psutil.Process(pid))
    return [process for process in tree if not _gone(process)]


def _belongs(pid: int, marker: str, root: Child | None) -> bool:
    import psutil

    try:
        if root is not None and (pid == root.pid or os.getsid(pid) == root.pid):
            return True
        variables = psutil.Process(pid).environ()
        here, there = os.environ.get(NODE), variables.get(NODE)
        return variables.get(MARKER) == marker and (here is None or there in (None, here))
    except (psutil.Error, OSError):
        return False


def end_tree(
    marker: str,
    *,
    root: Child | None = None,
    hurry: Callable[[], bool] = lambda: False,
    keep_group: bool = False,
    folder: RunFolder | None = None,
) -> Ended:
    """End every process of the tree.

    `hurry` is called while waiting. Once `hurry` returns True, all processes are killed at once. With `keep_group`, the control
    group is not removed, so that the caller can still read it. `folder` has the same meaning as in `members`.
    """
    living = members(marker, root, folder=folder)
    # A run that is stopped gets INT first, as from Ctrl-C. Orphans of a run that has ended get TERM first.
    first = signal.SIGINT if root is not None and root.poll() is None else signal.SIGTERM
    end(living, root=root, first=first, hurry=hurry)
    group = cgroup.find(marker, noted=process_identity.noted(folder.processes).group if folder else None)
    if group is not None:
        group.kill()
    tried = set(living)  # a process that outlived KILL once is not killed again
    for _ in range(_ROUNDS):
        late = set(members(marker, root, folder=folder)) - tried
        if not late:
            break
        end(late, root=root, first=signal.SIGKILL)
        tried |= late
    if root is not None:
        with suppress(subprocess.TimeoutExpired):  # a process stuck in the kernel outlives even KILL
            root.wait(timeout=5)
    collect_adopted([root.pid] if root is not None else [])
    if group is not None and not keep_group:
        group.remove()
    left = [process for process in tried if not _gone(process)]
    return Ended(count=len(tried) - len(left), survivors=tuple(sorted(map(_name, left))))


def _name(process: psutil.Process) -> str:
    """Return the name and the id of a process, and its user if this is another one."""
    import psutil

    name, user = "unknown", None
    with suppress(psutil.Error):
        name = process.name()
        user = None if os.geteuid() in process.uids() else process.username()
    return f"{name} ({process.pid})" if user is None else f"{name} ({process.pid}, of the user {user})"


def end(
    processes: Iterable[psutil.Process],
    *,
    root: Child | None,
    first: signal.Signals,
    hurry: Callable[[], bool] = lambda: False,
) -> None:
    """Send the signal `first`, then stronger signals, until no process lives. Wait a bounded time after each signal.

    Do not wait for processes that this user may not end.
    """
    import psutil

    living = list(processes)
    for number, patience_s in PATIENCE_S[[step[0] for step in PATIENCE_S].index(first) :]:
        for process in tuple(living):
            try:
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)  # a stopped process handles the signal only after SIGCONT
            except psutil.AccessDenied:
                living.remove(process)
            except psutil.Error:
                pass
        deadline = time.monotonic() + patience_s
        while living and time.monotonic() < deadline and (number is signal.SIGKILL or not hurry()):
            # Only its Popen may collect the root: after another wait, the root's exit code would be lost, and shown as 0.
            others = [process for process in living if root is None or process.pid != root.pid]
            psutil.wait_procs(others, timeout=0.05)
            if root is not None:
                with suppress(subprocess.TimeoutExpired):
                    root.wait(timeout=0 if others else 0.05)
            living = [process for process in living if not _gone(process)]
        if not living:
            return


def _gone(process: psutil.Process) -> bool:
    """Return whether a process has ended. A zombie counts as ended: in a container without an init, no process collects it."""
    import psutil

    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:  # a process of another user, whose state is hidden
        return False
