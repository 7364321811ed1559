"""Small parts of forking: how a fork ends, and what of the system it needs. A part of `warm.py`."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
import threading
from typing import Callable, NoReturn, Optional, TextIO

# Python's exit code if it could not write its last output.
LOST_OUTPUT = 120
HERE = os.path.dirname(os.path.abspath(__file__))


def in_fork(call: Callable[[], None]) -> NoReturn:
    """End this process as Python ends a program after `call`, but without taking its modules apart."""
    code = 0
    interrupted = False
    try:
        call()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(HERE):
            trace = trace.tb_next
        error.__traceback__ = trace or error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        for last in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
            with contextlib.suppress(Exception):
                last()
        code = code if all([flushed(sys.stdout), flushed(sys.stderr)]) else LOST_OUTPUT
        ctypes.CDLL(None).fflush(None)  # what extensions have written by C
        if interrupted:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        os._exit(code & 0xFF)


def flushed(stream: Optional[TextIO]) -> bool:
    """Write what a stream still holds. Return whether nothing is lost, as on a full disk."""
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except Exception:
        return False
    return True


def waitstatus(call: Callable[[], NoReturn]) -> int:
    pid = os.fork()
    if not pid:
        call()
    return os.waitpid(pid, 0)[1]


def open_files() -> set[int]:
    return {number for number in map(int, os.listdir("/proc/self/fd")) if is_open(number)}


def is_open(number: int) -> bool:
    """Return whether this descriptor is open. That of a listing of descriptors is closed after the listing."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
