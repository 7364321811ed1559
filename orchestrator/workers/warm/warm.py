"""The warm starter: imports once what every training imports, and forks for each run. Its stdin is a socket of Tunebench.

A run is a small tree of forks. The first fork is the keeper. It is the parent of the run's processes, adopts their orphans, and
tells Tunebench how the launcher ended, so a run goes on if the starter dies. The launcher has its own session, the run's marker,
the run's control group and the run's environment. It executes `accelerate.commands.launch` as `python -m` would. Only its Popen
differs: for a Python script, it wakes a rank, a process that was forked before the launcher began. So accelerate itself decides
environment, ports and ranks, and the rank has nothing of the launcher's.

    stdin       a byte with a connection for each run; its end ends the starter
    connection  in: 8 bytes with a length, two descriptors (stdout, stderr), the request as JSON, then a byte to go on
                out: lines of JSON: {"pid", "keeper"} or {"cold": reason}, and {"status"} at the end of the launcher
    stdin, back a byte, as soon as the imports are made

If a file of an import was changed since, the starter refuses the run and ends with the exit code CHANGED.

What the run leaves out: it writes no warnings of imports, and all runs of a starter have the same addresses in memory and the
same hashes of strings.

The starter never uses CUDA. It refuses a run whose environment differs in a variable that an import may read. It imports nothing
of Tunebench. If it is unsure, it refuses, and the run starts cold.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves the script's folder out

from forks import in_fork, open_files, prctl
from renewal import renew
from starter import MARKER, Starter, find_marker
from waking import Rank, find_modules_in, waking

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ("about_gpus", "forks", "renewal", "starter", "waking")
LAUNCHER = "accelerate.commands.launch"
CHANGED = 3
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def keep(starter: Starter, connection: socket.socket) -> None:
    """Be the parent of a run's processes until the last of them has ended. Report the launcher's end."""
    os.setsid()  # the end of the starter's group must not end this process
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in starter.signals:
        signal.signal(number, signal.SIG_IGN)
    request, logs = received(connection)
    reason = starter.refusal or unlike_launcher(request["argv"]) or starter.differing(request["env"])
    if reason:
        return tell(connection, cold=reason)
    find_marker(request["env"][MARKER])  # whoever ends the run finds this process, too, which may have been stopped
    launcher = os.fork()
    if not launcher:
        in_fork(lambda: launch(starter, connection, request, logs))
    for log in logs:
        os.close(log)
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.wait()
            if ended == launcher:
                tell(connection, status=os.waitstatus_to_exitcode(status))


def unlike_launcher(argv: Sequence[str]) -> str | None:
    """Return the reason why this command cannot be carried out here, or None."""
    if tuple(argv[:3]) == (sys.executable, "-m", LAUNCHER):
        return None
    return f"its command does not begin with {sys.executable} -m {LAUNCHER}"


def launch(starter: Starter, connection: socket.socket, request: Mapping[str, Any], logs: Sequence[int]) -> None:
    """Become the run's launcher, and execute accelerate's as `python -m` would."""
    os.setsid()
    for number, handler in starter.signals.items():
        signal.signal(number, handler)
    if request["group"]:
        with contextlib.suppress(OSError), open(request["group"], "w", encoding="ascii") as members:
            members.write(str(os.getpid()))
    if request["cores"]:
        os.sched_setaffinity(0, request["cores"])
    for stream, log in enumerate(logs, start=1):
        os.dup2(log, stream)
        os.close(log)
    os.chdir(request["cwd"])
    tell(connection, pid=os.getpid(), keeper=os.getppid())
    if not connection.recv(1):
        os._exit(0)  # whoever asked for the run has gone
    ranks = [Rank(starter) for _ in range(request["processes"])]
    starter.put_on(request["env"])
    popen = waking(starter, ranks, lambda reason: tell(connection, cold=reason))
    subprocess.Popen = popen  # type: ignore[misc]
    popens: Any = sys.modules.get("torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler")
    if popens is not None:
        popens.Popen = popen
    renew(request["argv"])
    find_modules_in(os.getcwd())
    sys.argv = [LAUNCHER, *request["argv"][3:]]
    sys.modules.pop(LAUNCHER, None)
    runpy.run_module(LAUNCHER, run_name="__main__", alter_sys=True)


def received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the request and the descriptors of its logs. End this process if no one asks for a run."""
    head, logs, *_ = socket.recv_fds(connection, 8, 2)
    if len(head) < 8 or len(logs) < 2:
        os._exit(0)
    with connection.makefile("rb") as file:
        return json.loads(file.read(int.from_bytes(head, "big"))), list(logs)


def tell(connection: socket.socket, **message: Any) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sys.path[:] = [folder for folder in sys.path if folder != HERE]
    for part in PARTS:  # a training may have modules of these names
        del sys.modules[part]
    before = open_files()
    starter = Starter()
    starter.own = frozenset(open_files() - before)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system collects the keepers
    with contextlib.suppress(OSError):
        control.send(b"\n")
    while True:
        byte, descriptors, *_ = socket.recv_fds(control, 1, 1)
        if not byte:
            os._exit(0)
        changed = starter.changed()
        starter.refusal = starter.refusal or changed
        for connection in map(lambda number: socket.socket(fileno=number), descriptors):
            if not os.fork():
                control.close()
                try:
                    keep(starter, connection)
                finally:
                    os._exit(0)
            connection.close()
        if changed:
            os._exit(CHANGED)


if __name__ == "__main__":
    main()
