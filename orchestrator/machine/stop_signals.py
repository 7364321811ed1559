"""The signals that ask this process to stop: `interrupted_once` makes each of them a Ctrl-C, and `StopSignals` holds them back.

`StopSignals` also notes the signals, so that they never interrupt cleaning up. Code can wait for them on this object, as on a file,
without polling. The caller decides what a signal means.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_UNHANDLED = (signal.SIG_DFL, signal.default_int_handler)
_ONE_MOMENT_S = 1.0


def stopping() -> tuple[signal.Signals, ...]:
    """Return the signals that ask this process to stop. After `nohup`, HUP (the end of the terminal) is not one of them."""
    return tuple(
        number for number in STOPPING if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    )


class Interrupted(KeyboardInterrupt):
    """A signal asked this process to stop.

    If a plain KeyboardInterrupt passes through `exec`, Python ends the process by SIGINT at its exit, whatever its exit code is.
    """


@contextmanager
def interrupted_once() -> Iterator[list[int]]:
    """Raise Interrupted for a signal that asks to stop in a `with` block.

    A signal that is ignored, or that the calling code handles already, is not changed. Outside the main thread the context does
    nothing. Several signals at one moment count as one. Otherwise, the second signal would interrupt the code that ends the runs,
    before `StopSignals` starts to count signals. The yielded list has the signals that came, because a library may turn the
    exception into an error of its own.
    """
    heard, last = list[int](), -inf

    def interrupt(number: int, _frame: FrameType | None) -> None:
        nonlocal last
        heard.append(number)  # not a lock or an event: a second signal may interrupt this function
        if time.monotonic() - last > _ONE_MOMENT_S:
            last = time.monotonic()
            raise Interrupted

    in_main_thread = threading.current_thread() is threading.main_thread()
    heeded = [number for number in stopping() if in_main_thread and signal.getsignal(number) in _UNHANDLED]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[StopSignals]:
    """Hold back signals in a `with` block. If a signal came, send it to this process again after the block."""
    stop = StopSignals()
    try:
        with stop:
            yield stop
    finally:
        if stop.received is not None:
            signal.raise_signal(stop.received)


class StopSignals:
    """A context that holds back the signals that ask to stop.

    The context becomes readable, like a file, when one of these signals or SIGCHLD arrives. `received` is the first signal that
    asked to stop, and `count` is the number of such signals. A second signal asks to stop at once. Outside the main thread the
    context does nothing, because signals cannot be held back there.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.count = 0
        self._read, self._write = socket.socketpair()
        self._previous: dict[int, object] = {}
        self._wakeup = -1

    def fileno(self) -> int:
        return self._read.fileno()

    def drain(self) -> None:
        """Remove all pending bytes, so that this object is not readable until the next signal."""
        with suppress(BlockingIOError):
            while self._read.recv(4096):
                pass

    def comes_within(self, seconds: float) -> bool:
        """Return whether a signal that asks to stop has come, or comes within this time."""
        deadline = time.monotonic() + seconds
        while self.received is None and (left_s := deadline - time.monotonic()) > 0:
            select.select([self], [], [], left_s)
            self.drain()
        return self.received is not None

    def hurried(self) -> bool:
        """Return whether a second signal has arrived."""
        return self.count > 1

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.received is None:
            self.received = number

    def __enter__(self) -> StopSignals:
        self._read.setblocking(False)
        self._write.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            for number in stopping():
                self._previous[number] = signal.signal(number, self._note)
            # The end of a child wakes a waiter only if SIGCHLD has a handler in Python.
            self._previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
            self._wakeup = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        if self._previous:
            signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()
        self._read.close()
        self._write.close()
