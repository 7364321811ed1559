"""The standard streams of the command. An output that cannot be written never stops a campaign.

After the first error of a stream, its output is dropped, and `finish` reports the error. A reader that leaves early (`| head`) does
not count as an error. A stream that was closed (`>&-`) becomes the null device. Otherwise the next opened file would get the
stream's number, and a library that writes to stderr would write into that file.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Outlet(io.RawIOBase):
    """The unbuffered end of a stream. After an error, output is dropped, and `error` has the reason."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def write(self, data: ReadableBuffer) -> int:
        while self.error is None:
            try:
                return os.write(self.descriptor, data)
            except BlockingIOError:  # another program made the pipe non-blocking
                select.select([], [self.descriptor], [])
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes


_outlets: dict[str, _Outlet] = {}


def prepare() -> None:
    """Replace stdout and stderr by streams that remember an error.

    If the encoding of a stream does not have a character, the number of the character is written instead.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, "r" if name == "stdin" else "w", encoding="utf-8"))
        elif name != "stdin" and getattr(sys, name) is getattr(sys, f"__{name}__"):
            setattr(sys, name, _patient(name, getattr(sys, name)))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _patient(name: str, stream: io.TextIOWrapper) -> io.TextIOWrapper:
    _outlets[name] = _Outlet(stream.fileno())
    return io.TextIOWrapper(
        io.BufferedWriter(_outlets[name]),
        encoding=stream.encoding,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def is_lost() -> bool:
    """Return whether stdout can no longer be written. Then no one sees the output."""
    return "stdout" in _outlets and _outlets["stdout"].error is not None


def finish() -> str | None:
    """Write the output that is still in memory. Return a sentence if an error made stdout incomplete.

    A reader that leaves early does not count as an error.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    error = _outlets["stdout"].error if is_lost() else None
    if error is None or isinstance(error, BrokenPipeError):
        return None
    return f"stdout cannot be written: {error.strerror}; the output is incomplete; make room, or redirect it to another place"
