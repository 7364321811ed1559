"""Finds, in the kernel's log, the processes that the kernel killed during a run because memory ran out.

This module is for machines on which no control group counts these processes. It reads the lines that `/dev/kmsg` gets during
the run, up to LARGEST_BYTES, and never waits for a line. The log counts as empty if the user may not open it. It also counts as
empty in a container whose process ids differ from the kernel's.

Left out: lines that the kernel's ring buffer dropped before they were read, and processes that a daemon such as systemd-oomd or
earlyoom killed. The kernel does not log what a daemon kills.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

KMSG: Final = Path("/dev/kmsg")
LARGEST_BYTES: Final = 16 * 2**20
# The size of the kernel's longest record. A read with a smaller buffer may fail.
_LONGEST_RECORD: Final = 8192
# On every Linux, the first namespace of process ids has this name.
_KERNELS_OWN_NUMBERS: Final = "pid:[4026531836]"
_KERNEL_SAYS: Final = re.compile(r"(?P<priority>\d{1,4}),\d+,\d+,[^;]*;(?P<message>.*)")
_KILLED: Final = re.compile(
    r"(?:(?:Memory cgroup out|Out) of memory[^:]*: |)Kill(?:ed)? process (?P<pid>\d+)"
    r"|oom_reaper: reaped process (?P<reaped>\d+)"
)


class KernelLog:
    """The lines that the kernel's log gets from now on. The end of a `with` block closes the log."""

    def __init__(self, path: Path = KMSG) -> None:
        self._descriptor: int | None = None
        with suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        self._left = LARGEST_BYTES

    def __enter__(self) -> KernelLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def read(self) -> str:
        """Return the lines since the last read, or since the log was opened. Return "" if the log cannot be read."""
        pieces: list[bytes] = []
        while self._descriptor is not None and self._left > 0:
            try:
                piece = os.read(self._descriptor, _LONGEST_RECORD)
            except (
                BrokenPipeError
            ):  # the ring buffer lost records: the next read returns the oldest record that is left
                self._left -= _LONGEST_RECORD
                continue
            except OSError:  # usually, there are no further records yet
                break
            if not piece:
                break
            pieces.append(piece)
            self._left -= len(piece)
        return b"".join(pieces).decode("utf-8", "replace")


def open_kernel_log() -> KernelLog:
    """Return the log of this machine's kernel, or an empty log if the kernel's process ids differ from ours."""
    try:
        shared = os.readlink("/proc/self/ns/pid") == _KERNELS_OWN_NUMBERS
    except OSError:
        shared = False
    return KernelLog(KMSG if shared else Path(os.devnull))


def killed_for_memory(text: str) -> frozenset[int]:
    """Return the ids of the processes that the kernel killed because memory ran out.

    Lines that programs wrote into the kernel's log do not count. The format is in the kernel's
    Documentation/ABI/testing/dev-kmsg, and the words are in mm/oom_kill.c.
    """
    records = filter(None, map(_KERNEL_SAYS.fullmatch, text.split("\n")))
    # The upper bits of the priority name the writer; 0 is the kernel.
    messages = (record["message"] for record in records if not int(record["priority"]) >> 3)
    kills = filter(None, map(_KILLED.match, messages))
    return frozenset(int(kill["pid"] or kill["reaped"]) for kill in kills)
