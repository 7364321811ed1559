"""What the kernel writes into its own log while a run goes on: which processes it killed for memory.

For machines where no control group counts that. `/dev/kmsg` gives a record a read; who may not open it, and who sees other
process numbers than the kernel does (in a container), is told nothing. From its end at the beginning to its end when it is asked,
never waiting; a kernel that says more than LARGEST_BYTES meanwhile is not listened to any longer.

What it leaves out: lines that the kernel's ring has lost by the time of asking; kills by another than the kernel (a daemon such
as systemd-oomd or earlyoom, of which it writes nothing).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

KMSG: Final = Path("/dev/kmsg")
LARGEST_BYTES: Final = 16 * 2**20
_LONGEST_RECORD: Final = 8192
"""The kernel refuses a read with less room than its record takes, which is at most this."""

_KERNELS_OWN_NUMBERS: Final = "pid:[4026531836]"
"""The first namespace of process numbers has this name on every Linux."""

_KERNEL_SAYS: Final = re.compile(r"(?P<priority>\d{1,4}),\d+,\d+,[^;]*;(?P<message>.*)")
_KILLED: Final = re.compile(
    r"(?:(?:Memory cgroup out|Out) of memory[^:]*: |)Kill(?:ed)? process (?P<pid>\d+)"
    r"|oom_reaper: reaped process (?P<reaped>\d+)"
)


class KernelLog:
    """The kernel's log from now on. Closed by leaving it."""

    def __init__(self, path: Path = KMSG) -> None:
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        self._left = LARGEST_BYTES

    def __enter__(self) -> KernelLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self) -> str:
        """What was written since the last read, or since this was opened; empty where the log can't be read."""
        pieces: list[bytes] = []
        while self._descriptor is not None and self._left > 0:
            try:
                piece = os.read(self._descriptor, _LONGEST_RECORD)
            except BrokenPipeError:  # the ring went round: the next read is of the oldest record that it still has
                self._left -= _LONGEST_RECORD
                continue
            except OSError:  # nothing more for now, among others
                break
            if not piece:
                break
            pieces.append(piece)
            self._left -= len(piece)
        return b"".join(pieces).decode("utf-8", "replace")


def of_this_machine() -> KernelLog:
    """The log of the kernel that we run on; one that says nothing where its process numbers are none of ours."""
    try:
        shared = os.readlink("/proc/self/ns/pid") == _KERNELS_OWN_NUMBERS
    except OSError:
        shared = False
    return KernelLog(KMSG if shared else Path(os.devnull))


def killed_for_memory(text: str) -> frozenset[int]:
    """The numbers of the processes that the kernel says it killed for memory. What programs wrote into its log counts for nothing.

    See the kernel's Documentation/ABI/testing/dev-kmsg, and mm/oom_kill.c for the words.
    """
    found: set[int] = set()
    for line in text.split("\n"):
        record = _KERNEL_SAYS.fullmatch(line)
        if record is None or int(record["priority"]) >> 3:  # above the level stands who says it; 0 is the kernel
            continue
        killed = _KILLED.match(record["message"])
        if killed is not None:
            found.add(int(killed["pid"] or killed["reaped"]))
    return frozenset(found)
