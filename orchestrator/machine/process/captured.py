"""The output of a short program, such as `git` or `nvidia-smi`. A part of `machine/process`, which starts all other processes."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from orchestrator.errors import LaunchError, NoAnswer
from orchestrator.machine.child_environment import child_environment
from orchestrator.machine.stop_signals import held_back, interrupted_once

CAPTURED_BYTES = 16 * 2**20
_LOOK_S, _SILENCE_S = 0.2, 2.0
# The code of a question does not contain the mark itself, since a wrapper may print its command line.
_ANSWER = re.compile("^<tunebench>(.*)</tunebench>", re.MULTILINE)


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


def question(value: str, before: str = "import json") -> str:
    """Return code for `python -c`, without modules of the current folder. It prints an expression's value, a JSON value.

    `before` is code that imports modules.
    """
    path = "import sys; sys.path[:] = filter(None, sys.path)"
    return f'{path}\n{before}\nimport json; print("\\n<tune" "bench>" + json.dumps({value}) + "</tunebench>")'


def answer(output: str) -> Any:
    """Return the value that the code of a `question` printed. Raise ValueError if there is none.

    A wrapper, a `sitecustomize.py` or a library may print other text before and after it.
    """
    try:
        return json.loads(_ANSWER.findall(output)[-1])
    except (IndexError, ValueError, RecursionError) as error:
        raise ValueError(
            "the interpreter gave no answer; it must be Python, or a program that starts Python"
        ) from error


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
    """Read what a program writes until it has ended. Raise TimeoutError or LaunchError at the limits of `capture`.

    After the end, wait for a filter that still passes its output on. A process that it left behind may hold the pipes open
    for ever.
    """
    assert child.stdout is not None and child.stderr is not None
    texts = {child.stdout.fileno(): bytearray(), child.stderr.fileno(): bytearray()}
    stdout, stderr = texts.values()
    with selectors.DefaultSelector() as selector:
        for descriptor in texts:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            has_ended = child.poll() is not None  # asked before the look, which then sees all that it wrote
            left_s = deadline - time.monotonic()
            readable = selector.select(min(left_s, _SILENCE_S if has_ended else _LOOK_S))
            if has_ended and not readable:
                break
            if left_s <= 0:
                raise TimeoutError
            for key, _ in readable:
                chunk = os.read(key.fd, 2**16)
                texts[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            if len(stdout) + len(stderr) > CAPTURED_BYTES:
                raise LaunchError(f"{name}: wrote more than {CAPTURED_BYTES // 2**20} MiB")
    return bytes(stdout), bytes(stderr)
