"""Starts and watches process trees. No other module starts a process.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Protocol

from orchestrator.errors import LaunchError, NoAnswer
from orchestrator.files import writing
from orchestrator.machine import cgroup, process_tree
from orchestrator.machine.child_environment import MARKER, applied, checked_marker, child_environment
from orchestrator.machine.process import warm
from orchestrator.machine.stop_signals import StopSignals, held_back, interrupted_once
from orchestrator.records import Command, Limit, ProcessOutcome, Start

CAPTURED_BYTES = 16 * 2**20
# A companion may need some time for its last readings.
_GOODBYE_S = 30.0


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
            return _start(command.argv, env=env, cwd=command.cwd, stdout=stdout, stderr=stderr), cold


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


def _start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: int,
    stderr: int,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # only this process gets the terminal's Ctrl-C, and passes it on
        )
    except (OSError, ValueError) as error:
        raise LaunchError(f"{argv[0]}: cannot be started in {cwd}: {error}") from error


def _own_folder(otherwise: Path) -> Path:
    """Return the working folder of this process, or `otherwise` if a run removed it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return otherwise


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


def spawn(
    argv: Sequence[str],
    *,
    log: Path | int,
    env: Mapping[str, str | None] | None = None,
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Start a program such as `run-one` in its own session. `end_tree` ends it.

    `log` gets stdout and stderr. It is a file, or a file descriptor.
    """
    with nullcontext(log) if isinstance(log, int) else writing.to_append(log) as out:
        whole, here = applied(env or {}, os.environ), _own_folder(Path("/") if isinstance(log, int) else log.parent)
        output = out if isinstance(out, int) else out.fileno()
        return _start(argv, env=whole, cwd=here, stdout=output, stderr=output, stdin=stdin)


def start_starter(argv: Sequence[str], *, env: Mapping[str, str], stdin: int) -> subprocess.Popen[bytes]:
    """Start a warm starter. It ends itself when the other end of `stdin`, a socket, is closed. Nothing that it writes is kept."""
    nowhere = subprocess.DEVNULL
    return _start(argv, env=env, cwd=Path("/"), stdout=nowhere, stderr=nowhere, stdin=stdin)


@contextmanager
def sidecar(argv: Sequence[str], stdout: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program for a `with` block, and end it after the block.

    The file `stdout` gets all its output. Raise LaunchError if the program cannot start.
    """
    with writing.to_append(stdout) as out:
        env = child_environment({MARKER: os.environ.get(MARKER)})  # so that others can find the sidecar
        child = _start(argv, env=env, cwd=_own_folder(stdout.parent), stdout=out.fileno(), stderr=out.fileno())
    process_tree.SIDECARS.add(child.pid)
    try:
        yield child
    finally:
        import psutil

        living = [psutil.Process(child.pid)] if child.poll() is None else []
        process_tree.end(living, root=child, first=signal.SIGTERM)
        process_tree.SIDECARS.discard(child.pid)


@contextmanager
def companion(argv: Sequence[str], *, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program for a `with` block, with pipes to its stdin and from its stdout. It ends itself when its stdin ends.

    The file `log` gets its stderr. Raise LaunchError if the program cannot start.
    """
    env, pipe = child_environment({}), subprocess.PIPE
    with writing.to_append(log) as err:
        try:
            child = subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=err, start_new_session=True)
        except (OSError, ValueError) as error:
            raise LaunchError(f"{argv[0]}: cannot be started: {error}") from error
    process_tree.SIDECARS.add(child.pid)
    try:
        yield child
    finally:
        with suppress(OSError, subprocess.TimeoutExpired):
            child.communicate(timeout=_GOODBYE_S)
        if child.poll() is None:
            import psutil

            process_tree.end([psutil.Process(child.pid)], root=child, first=signal.SIGTERM)
        process_tree.SIDECARS.discard(child.pid)


def usage(child: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return the resources that a running sidecar has used: `cpu_s` and the highest `rss_bytes`. Return {} if they are unknown."""
    import psutil

    with suppress(psutil.Error, OSError, ValueError, IndexError):
        times = psutil.Process(child.pid).cpu_times()
        status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii", errors="replace")
        peak_kib = int(status.split("VmHWM:")[1].split()[0])
        return {"cpu_s": times.user + times.system, "rss_bytes": peak_kib * 1024}
    return {}


def capture(argv: Sequence[str], timeout_s: float, env: Mapping[str, str | None] | None = None) -> str:
    """Return the output of a short program. `env` changes its environment, as in `child_environment`.

    Raise NoAnswer if the program takes longer than `timeout_s`, or is killed. Raise LaunchError if it is missing, fails, or writes
    more than CAPTURED_BYTES.
    """
    try:
        done = _captured(argv, timeout_s, child_environment(env or {}))
    except (subprocess.TimeoutExpired, TimeoutError) as error:
        raise NoAnswer(f"{argv[0]}: no answer within {timeout_s:g} s") from error
    except (OSError, ValueError) as error:
        raise LaunchError(f"{argv[0]}: cannot be started: {error}") from error
    if done.returncode < 0:
        raise NoAnswer(f"{argv[0]}: it was ended by signal {-done.returncode}")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        last = [line for line in lines if not line.startswith("Try ")][-1:]  # not: Try "sbatch --help"
        raise LaunchError(f"{argv[0]}: ended with exit code {done.returncode}" + "".join(f": {line}" for line in last))
    return done.stdout.decode(errors="replace")


def _captured(argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end. Kill its process group after an error, a timeout or any signal that asks this process to stop."""
    child: subprocess.Popen[bytes] | None = None
    pipe = subprocess.PIPE
    with interrupted_once():
        try:
            with held_back():
                child = subprocess.Popen(
                    argv, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
                )
            deadline = time.monotonic() + timeout_s
            stdout, stderr = _outputs(child, deadline, argv[0])
            code = child.wait(max(0.0, deadline - time.monotonic()))
            return subprocess.CompletedProcess(argv, code, stdout, stderr)
        finally:
            if child is not None:
                if child.returncode is None:
                    # The program may be a script that started the real one, so its whole group is ended.
                    with suppress(OSError):
                        os.killpg(child.pid, signal.SIGKILL)
                child.__exit__(None, None, None)  # closes the pipes and waits


def _outputs(child: subprocess.Popen[bytes], deadline: float, name: str) -> tuple[bytes, bytes]:
    """Read stdout and stderr of a program until both end. Raise TimeoutError or LaunchError at the limits of `capture`."""
    assert child.stdout is not None and child.stderr is not None
    texts = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    stdout, stderr = texts.values()
    with selectors.DefaultSelector() as selector:
        for descriptor in texts:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left_s = deadline - time.monotonic()
            readable = selector.select(left_s) if left_s > 0 else []
            if not readable:
                raise TimeoutError
            for key, _ in readable:
                chunk = os.read(key.fd, 2**16)
                texts[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            if len(stdout) + len(stderr) > CAPTURED_BYTES:
                raise LaunchError(f"{name}: wrote more than {CAPTURED_BYTES // 2**20} MiB")
    return bytes(stdout), bytes(stderr)
