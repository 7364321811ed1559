"""Starts, watches and ends process trees; the only module that starts processes.

A training tree gets its own session and a marker in its environment (`TUNEBENCH_RUN`), by which every descendant is
found again, also one that started a session of its own or lost its parent. Waiting blocks: beside a measurement nothing
here polls. The tree is ended with INT, TERM and KILL, each with a bounded wait, however `run` is left.

Does not know what a run means: it sees argv, variables and files. `script` writes a command down as a script.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from orchestrator.environment import MARKER, applied, child_environment
from orchestrator.errors import LaunchError
from orchestrator.records import Command, ProcessOutcome
from orchestrator.script import command_script

__all__ = [
    "StopSignals",
    "capture",
    "child_environment",
    "command_script",
    "end_tree",
    "run",
    "sidecar",
    "spawn",
    "usage",
]

if TYPE_CHECKING:
    import psutil  # loaded where a tree is ended: a plan needs this module's `capture` alone

_ENDING = ((signal.SIGINT, 3.0), (signal.SIGTERM, 3.0), (signal.SIGKILL, 10.0))
_EXITED = 0
_SIDECARS: set[int] = set()
"""Of this process: they carry the run's marker and outlive its tree, to see what the run gives back."""


class StopSignals:
    """Holds back SIGINT, SIGTERM and SIGHUP while entered: they are noted, so that cleaning up is never interrupted.

    `received` is the first one that came. Outside the main thread, where signals cannot be held, it does nothing.
    """

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.received: int | None = None
        self._previous: dict[int, object] = {}

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
        self.events.put(number)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()


def run(
    command: Command, *, stdout: Path, stderr: Path, timeout_s: float | None, stop: StopSignals | None = None
) -> ProcessOutcome:
    """Runs the command to its end, at most `timeout_s` seconds, and ends what it leaves behind.

    SIGINT or SIGTERM to this process ends the tree and gives a cancelled outcome; a caller that holds signals for
    longer passes its own `stop`. The command's files must lie in place already. Raises LaunchError when it cannot be
    started.
    """
    if stop is None:
        with StopSignals() as own:
            return run(command, stdout=stdout, stderr=stderr, timeout_s=timeout_s, stop=own)
    marker = command.env.get(MARKER) or uuid.uuid4().hex
    started_at = time.time()
    if stop.received is not None:
        return ProcessOutcome(exit_code=None, signal=None, started_at=started_at, ended_at=started_at, cancelled=True)
    with stdout.open("ab") as out, stderr.open("ab") as err:
        env = child_environment({**command.env, MARKER: marker})
        child = _start(command.argv, env=env, cwd=command.cwd, stdout=out.fileno(), stderr=err.fileno())
    try:
        event = _wait(child, stop.events, timeout_s)
        ended_at = time.time()
    finally:
        end_tree(marker, root=child)
    code = -signal.SIGKILL if child.returncode is None else child.returncode
    return ProcessOutcome(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        started_at=started_at,
        ended_at=ended_at,
        timed_out=event is None,
        cancelled=event is not None and event != _EXITED,
    )


def _start(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdout: int, stderr: int
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,  # the terminal's Ctrl-C is ours to pass on
        )
    except (OSError, ValueError) as error:
        raise LaunchError(f"{argv[0]}: cannot be started in {cwd}: {error}") from error


def _wait(child: subprocess.Popen[bytes], events: queue.SimpleQueue[int], timeout_s: float | None) -> int | None:
    """`_EXITED`, the number of a signal to this process, or None when the time is up. Blocks, using no CPU."""

    def report_exit() -> None:
        child.wait()
        events.put(_EXITED)

    threading.Thread(target=report_exit, name="waits for the run", daemon=True).start()
    try:
        return events.get(timeout=timeout_s)
    except queue.Empty:
        return None


def spawn(argv: Sequence[str], *, log: Path, env: Mapping[str, str | None] | None = None) -> subprocess.Popen[bytes]:
    """Starts a program of ours (`run-one`) in its own session with both outputs in `log`; end it with `end_tree`."""
    with log.open("ab") as out:
        whole = applied(env or {}, os.environ)
        return _start(argv, env=whole, cwd=Path.cwd(), stdout=out.fileno(), stderr=out.fileno())


@contextmanager
def sidecar(argv: Sequence[str], stdout: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program beside a measurement, its output in a file; always ended. Raises LaunchError when it can't start."""
    with stdout.open("ab") as out:
        env = child_environment({MARKER: os.environ.get(MARKER)})  # found again should we be killed
        child = _start(argv, env=env, cwd=Path.cwd(), stdout=out.fileno(), stderr=out.fileno())
    _SIDECARS.add(child.pid)
    try:
        yield child
    finally:
        import psutil

        _SIDECARS.discard(child.pid)
        _end([psutil.Process(child.pid)] if child.poll() is None else [], child, first=signal.SIGTERM)


def usage(child: subprocess.Popen[bytes]) -> dict[str, float]:
    """What a living sidecar took so far: `cpu_s` and its highest `rss_bytes`; empty where that is not known."""
    import psutil

    with suppress(psutil.Error, OSError, ValueError, IndexError):
        times = psutil.Process(child.pid).cpu_times()
        status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii", errors="replace")
        peak_kib = int(status.split("VmHWM:")[1].split()[0])
        return {"cpu_s": times.user + times.system, "rss_bytes": peak_kib * 1024}
    return {}


def capture(argv: Sequence[str], timeout_s: float) -> str:
    """What a short program prints. Raises LaunchError when it is not there, fails, or takes longer."""
    try:
        done = subprocess.run(
            argv,
            env=child_environment({}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{argv[0]}: no answer within {timeout_s:g} s") from error
    except (OSError, ValueError) as error:
        raise LaunchError(f"{argv[0]}: cannot be started: {error}") from error
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise LaunchError(f"{argv[0]}: ended with exit code {done.returncode}" + "".join(f": {line}" for line in last))
    return done.stdout.decode(errors="replace")


def end_tree(marker: str, *, root: subprocess.Popen[bytes] | None = None) -> int:
    """Ends every process that carries `marker`, and `root` with its descendants. Returns how many it found living."""
    found = _tree(marker, root)
    # A run that is stopped gets INT first, as by Ctrl-C; orphans of one that has ended have nobody left to tell.
    _end(found, root, first=signal.SIGINT if root is not None and root.poll() is None else signal.SIGTERM)
    for _ in range(20):  # what was started while we were ending: processes can fork faster than they are listed
        late = _tree(marker, root)
        if not late:
            break
        _end(late, root, first=signal.SIGKILL)
    if root is not None:
        with suppress(subprocess.TimeoutExpired):  # a process stuck in the kernel outlives even KILL
            root.wait(timeout=5)
    return len(found)


def _tree(marker: str, root: subprocess.Popen[bytes] | None) -> list[psutil.Process]:
    import psutil

    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents()), *_SIDECARS}
    found = {process.pid: process for process in psutil.process_iter() if _belongs(process, marker, root)}
    if root is not None and root.returncode is None:
        with suppress(psutil.Error):
            found |= {process.pid: process for process in psutil.Process(root.pid).children(recursive=True)}
    return [process for pid, process in found.items() if pid not in ours and not _gone(process)]


def _belongs(process: psutil.Process, marker: str, root: subprocess.Popen[bytes] | None) -> bool:
    import psutil

    try:
        if root is not None and (process.pid == root.pid or os.getsid(process.pid) == root.pid):
            return True
        return process.environ().get(MARKER) == marker
    except (psutil.Error, OSError):
        return False


def _end(processes: Iterable[psutil.Process], root: subprocess.Popen[bytes] | None, *, first: signal.Signals) -> None:
    """Sends `first` and what is stronger, in turn, until none lives; each signal has its bounded wait."""
    import psutil

    living = list(processes)
    for number, patience_s in _ENDING[[step[0] for step in _ENDING].index(first) :]:
        for process in living:
            try:
                process.send_signal(number)
            except psutil.Error:
                continue
        deadline = time.monotonic() + patience_s
        while living and time.monotonic() < deadline:
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
