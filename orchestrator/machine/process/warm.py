"""A run that a warm starter forks (`workers/warm/`). This process sends a request over a connection to the starter.

`Starter.fork` asks for the run, and returns a handle of its launcher with the methods of Popen that the wait for a run needs.
If the starter refuses or has died, it returns the reason, and the run starts cold.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.machine import process_tree
from orchestrator.machine.cgroup import MEMBERS, ControlGroup
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.records import Command

# The imports of a starter may take so long on a slow disk.
_IMPORTS_S = 300.0


def patience_s(timeout_s: float | None) -> float:
    """Return how long a run with this time limit waits for the imports of its starter, before it starts cold."""
    return _IMPORTS_S if timeout_s is None else min(_IMPORTS_S, timeout_s)


class WarmChild:
    """The launcher of a warm run. `cold` says why the launcher started its ranks cold; None if it did not.

    It waits for a last byte, so `started_at` is when it begins. The keeper, its parent, reports its end. If the keeper was killed,
    the launcher's exit code is unknown, and SIGKILL is reported.
    """

    def __init__(self, connection: socket.socket, message: Mapping[str, int], unread: bytes) -> None:
        self.connection, self.pid, self.keeper = connection, message["pid"], message["keeper"]
        self.started_at = time.time()
        self.returncode: int | None = None
        self.cold: str | None = None
        self._unread = unread

    def poll(self) -> int | None:
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            code = self._read(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if code is not None:
                return code
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a warm run", timeout or 0.0)

    def _read(self, timeout_s: float | None) -> int | None:
        """Read what has come, or what comes within this time. Return the exit code if the launcher has ended."""
        if self.returncode is None and _is_readable(self.connection, timeout_s):
            chunk = _received(self.connection)
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for message in map(json.loads, lines):
                self.cold = message.get("cold", self.cold)
                self.returncode = message.get("status", self.returncode)
            if not chunk and self.returncode is None:
                self.returncode = -signal.SIGKILL
        return self.returncode

    def close(self) -> None:
        """Forget the launcher and its keeper. Their processes must have ended."""
        process_tree.KEEPERS.pop(self.keeper, None)
        self.connection.close()


def inherited() -> socket.socket | None:
    """Return the connection to a starter that this process has got as its stdin. Return None for another stdin."""
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(0).st_mode):
            return socket.socket(fileno=os.dup(0))
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Starter:
    """A connection to a warm starter, for one run with this number of processes."""

    connection: socket.socket
    processes: int

    def fork(
        self,
        command: Command,
        *,
        env: Mapping[str, str],
        logs: tuple[int, int],
        group: ControlGroup | None,
        stop: StopSignals,
        timeout_s: float | None = None,
    ) -> WarmChild | str:
        """Return the launcher of this command, or the reason why it must start cold.

        `timeout_s` is the run's time limit. The launcher begins only when its processes can be found: it has its session, its
        marker and its control group by then.
        """
        reason = "the warm starter has ended"
        try:
            self._ask(command, env, logs, group)
            message, unread = _first_message(self.connection, stop, patience_s(timeout_s))
            if message is None:
                reason = "the warm starter did not answer"
            elif "pid" in message:
                child = WarmChild(self.connection, message, unread)
                process_tree.add_keeper(child.keeper)
                self.connection.sendall(b"\n")
                return child
            else:
                reason = str(message.get("cold", reason))
        except (OSError, ValueError, KeyError):
            pass
        self.connection.close()  # so that the starter cannot begin later
        return reason

    def _ask(self, command: Command, env: Mapping[str, str], logs: tuple[int, int], group: ControlGroup | None) -> None:
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        members = None if group is None else str(group.path / MEMBERS)
        request = {"argv": command.argv, "env": env, "cwd": str(command.cwd), "processes": self.processes}
        body = json.dumps({**request, "cores": cores, "group": members}).encode("utf-8")
        socket.send_fds(self.connection, [len(body).to_bytes(8, "big")], logs)
        self.connection.sendall(body)


def _first_message(
    connection: socket.socket, stop: StopSignals, patience: float
) -> tuple[dict[str, Any] | None, bytes]:
    """Return the first line from the starter, and what came after it. Stop waiting at a signal. Raise OSError at the end."""
    deadline, text = time.monotonic() + patience, b""
    while b"\n" not in text:
        left_s = deadline - time.monotonic()
        ready, _, _ = select.select([connection.fileno(), stop.fileno()], [], [], max(0.0, left_s))
        stop.drain()
        if stop.received is not None or left_s <= 0:
            return None, b""
        if connection.fileno() in ready:
            chunk = _received(connection)
            if not chunk:
                raise ConnectionResetError
            text += chunk
    line, _, unread = text.partition(b"\n")
    return json.loads(line), unread


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(2**16)
    except ConnectionResetError:
        return b""


def _is_readable(connection: socket.socket, timeout_s: float | None) -> bool:
    return bool(select.select([connection], [], [], timeout_s)[0])
