"""Starts single programs in sessions of their own: those that `run` watches, and those that run next to it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from orchestrator.errors import LaunchError
from orchestrator.files import writing
from orchestrator.machine import process_tree
from orchestrator.machine.child_environment import MARKER, applied, child_environment

# A companion may need some time for its last readings.
_GOODBYE_S = 30.0


def start(
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


def own_folder(otherwise: Path) -> Path:
    """Return the working folder of this process, or `otherwise` if a run removed it."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return otherwise


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
        whole, here = applied(env or {}, os.environ), own_folder(Path("/") if isinstance(log, int) else log.parent)
        output = out if isinstance(out, int) else out.fileno()
        return start(argv, env=whole, cwd=here, stdout=output, stderr=output, stdin=stdin)


def start_starter(argv: Sequence[str], *, env: Mapping[str, str], stdin: int) -> subprocess.Popen[bytes]:
    """Start a warm starter. It ends itself when the other end of `stdin`, a socket, is closed. Nothing that it writes is kept."""
    nowhere = subprocess.DEVNULL
    return start(argv, env=env, cwd=Path("/"), stdout=nowhere, stderr=nowhere, stdin=stdin)


@contextmanager
def sidecar(argv: Sequence[str], stdout: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program for a `with` block, and end it after the block.

    The file `stdout` gets all its output. Raise LaunchError if the program cannot start.
    """
    with writing.to_append(stdout) as out:
        env = child_environment({MARKER: os.environ.get(MARKER)})  # so that others can find the sidecar
        child = start(argv, env=env, cwd=own_folder(stdout.parent), stdout=out.fileno(), stderr=out.fileno())
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
