"""Starts and watches process trees. Only this package starts processes: `starts` and `captured` do it.

A training tree gets its own session, a marker in its environment (`TUNEBENCH_RUN`) and, if the user may make one, a control
group. `process_tree` finds every descendant by these signs. `run` waits for the child and for signals without polling, so that
it does not disturb a measurement. It always ends the tree, even after an error: it sends INT, TERM and KILL, and waits a
bounded time after each.

This module handles only argv, variables and files. It does not know their meaning.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Protocol

from orchestrator.files import writing
from orchestrator.machine import cgroup, process_tree
from orchestrator.machine.child_environment import MARKER, checked_marker, child_environment
from orchestrator.machine.process import warm
from orchestrator.machine.process.captured import answer as answer
from orchestrator.machine.process.captured import capture as capture
from orchestrator.machine.process.captured import question as question
from orchestrator.machine.process.starts import companion as companion
from orchestrator.machine.process.starts import sidecar as sidecar
from orchestrator.machine.process.starts import spawn as spawn
from orchestrator.machine.process.starts import start
from orchestrator.machine.process.starts import start_starter as start_starter
from orchestrator.machine.process.starts import usage as usage
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.records import Command, Limit, ProcessOutcome, Start


class Watch(Protocol):
    """A check of a running process tree. `look` returns the limit that the run has reached, or None (see `run.watchdog`)."""

    def next_look_s(self) -> float | None: ...

    def look(self) -> Limit | None: ...


def run(
    command: Command,
    *,
    stdout: Path,
    stderr: Path,
    timeout_s: float | None = None,
    watch: Watch | None = None,
    before_ending: Callable[[Limit], None] = lambda limit: None,
    group: cgroup.ControlGroup | None = None,
    stop: StopSignals | None = None,
    starter: warm.Starter | None = None,
) -> ProcessOutcome:
    """Run the command until it ends or reaches a limit (`timeout_s`, `watch`), and end every process that it leaves behind.

    If this process gets SIGINT or SIGTERM, it ends the tree, and the outcome is `cancelled`. A second signal kills the tree. A
    caller that must hold back signals before and after this call passes its own `stop`. A `starter` forks the command's processes
    if it can, else they start cold. If the tree reaches a limit, `before_ending` is called while the tree still lives. The
    command's files must exist already. Raise LaunchError if the command cannot be started.
    """
    marker = checked_marker(command.env.get(MARKER, uuid.uuid4().hex))
    with StopSignals() if stop is None else nullcontext(stop) as held:
        started_at, child, cold = time.time(), None, None
        if held.received is None:
            logs = (stdout, stderr)
            child, cold = _start_tree(
                command, marker, logs=logs, group=group, starter=starter, stop=held, timeout_s=timeout_s
            )
        if child is None:
            return ProcessOutcome(
                exit_code=None, signal=None, started_at=started_at, ended_at=started_at, cancelled=True
            )
        began = time.monotonic()
        if isinstance(child, warm.WarmChild):
            started_at = child.started_at  # the imports of a starter may have taken long
        try:
            limit = _wait(child, held, timeout_s=timeout_s, watch=watch)
            took_s = time.monotonic() - began
            cancelled = limit is None and child.returncode is None
            if limit is not None:
                before_ending(limit)
        finally:
            memory_kills, survivors = _end(child, marker, hurry=held.hurried, group=group)
    cold_because = child.cold if isinstance(child, warm.WarmChild) else cold
    code = -signal.SIGKILL if child.returncode is None else child.returncode
    return ProcessOutcome(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        started_at=started_at,
        ended_at=started_at + took_s,
        gone_at=started_at + time.monotonic() - began,
        pid=child.pid,
        limit=limit,
        cancelled=cancelled,
        survivors=survivors,
        memory_kills=memory_kills,
        start=Start.COLD if cold_because or not isinstance(child, warm.WarmChild) else Start.WARM,
        cold_because=cold_because,
    )


def _start_tree(
    command: Command,
    marker: str,
    *,
    logs: tuple[Path, Path],
    group: cgroup.ControlGroup | None,
    starter: warm.Starter | None,
    stop: StopSignals,
    timeout_s: float | None,
) -> tuple[process_tree.Child | None, str | None]:
    """Return two values: the tree's first process, and the reason why it started cold although there is a starter.

    The first value is None if a signal came before the starter's answer.
    """
    env, cold = child_environment({**command.env, MARKER: marker}), None
    with writing.to_append(logs[0]) as out, writing.to_append(logs[1]) as err:
        stdout, stderr = out.fileno(), err.fileno()
        if starter is not None:
            child = starter.fork(command, env=env, logs=(stdout, stderr), group=group, stop=stop, timeout_s=timeout_s)
            if isinstance(child, warm.WarmChild):
                return child, None
            cold = child
            if stop.received is not None:
                return None, cold
        with group.entered() if group else nullcontext():
            return start(command.argv, env=env, cwd=command.cwd, stdout=stdout, stderr=stderr), cold


def _end(
    child: process_tree.Child, marker: str, *, hurry: Callable[[], bool], group: cgroup.ControlGroup | None
) -> tuple[int, tuple[str, ...]]:
    """End the tree.

    Return two values: how many processes the kernel killed because memory ran out, and the processes that survived.
    """
    ended = process_tree.end_tree(marker, root=child, hurry=hurry, keep_group=True)
    if isinstance(child, warm.WarmChild):
        child.close()
    memory_kills = group.memory_kills() if group else 0
    if group:
        group.remove()
    return memory_kills, ended.survivors


def _wait(
    child: process_tree.Child, stop: StopSignals, *, timeout_s: float | None, watch: Watch | None
) -> Limit | None:
    """Block until a limit is reached, and return it. Return None if the child ended or this process got a signal."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with open(end_descriptor(child), "rb", buffering=0) as ended, selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(stop, selectors.EVENT_READ)
        while True:
            pauses = [watch.next_look_s()] if watch else []
            pauses += [] if deadline is None else [max(0.0, deadline - time.monotonic())]
            selector.select(min((pause for pause in pauses if pause is not None), default=None))
            stop.drain()
            late = deadline is not None and time.monotonic() >= deadline
            if child.poll() is not None or stop.received is not None:
                # This process may have been stopped (SIGSTOP) for longer than the limit. The child may have ended at any time.
                return Limit.WALL if late and child.returncode == 0 and stop.received is None else None
            process_tree.collect_adopted([child.pid])
            if late:
                return Limit.WALL
            limit = watch.look() if watch else None
            if limit is not None:
                return limit


def end_descriptor(child: process_tree.Child) -> int:
    """Return a file descriptor that becomes readable when the child ends. The caller closes it."""
    if isinstance(child, warm.WarmChild):
        return os.dup(child.connection.fileno())
    with suppress(AttributeError, OSError):  # some systems, kernels and sandboxes have no such descriptors
        return os.pidfd_open(child.pid)
    ended, ending = os.pipe()

    def report() -> None:
        child.wait()
        os.close(ending)

    threading.Thread(target=report, name="waits for the run", daemon=True).start()
    return ended


def is_stopped(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a child is stopped (SIGSTOP). A child in a debugger does not count, since the debugger will continue it."""
    with suppress(AttributeError, OSError):  # not every system has this call, and the child may have ended
        return os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    return False
