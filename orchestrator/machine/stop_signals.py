"""Signals that ask us to stop, held back and noted, so that cleaning up is never interrupted by them.

A waiter blocks on the signals as on a file: nothing here polls. What a signal means is the caller's to decide.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from types import FrameType, TracebackType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Holds back SIGINT, SIGTERM and SIGHUP while entered. Readable, as a file is, once one of them or a SIGCHLD has come.

    `received` is the first one that came, `count` how many: a second one means at once. Outside the main thread, where signals
    cannot be held, it does nothing.
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
        """Makes it unreadable until the next signal."""
        with suppress(BlockingIOError):
            while self._read.recv(4096):
                pass

    def hurried(self) -> bool:
        """Whether somebody has asked again."""
        return self.count > 1

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.received is None:
            self.received = number

    def __enter__(self) -> StopSignals:
        self._read.setblocking(False)
        self._write.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                self._previous[number] = signal.signal(number, self._note)
            # A handler of Python's own is what makes a child's end wake a waiter.
            self._previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
            self._wakeup = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._previous:
            signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()
        self._read.close()
        self._write.close()
