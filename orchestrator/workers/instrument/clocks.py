"""The clock that times steps: the GPU's own clock if the Trainer computes on CUDA, else the host's clock.

A mark is a moment whose time may not be known yet. On CUDA a mark is an event on the current stream, and its time is known once
the GPU has passed the event. Only `anchor` waits, once in a training. What the times leave out: work on other streams, unless the
current stream waits for it; and the drift between the clocks of GPU and host.

`waited_s` reads from the kernel how long this process's threads were ready to run but had no core.

This is a part of the instrument (`instrument.py`). It imports only the standard library.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Optional


class HostClock:
    """A clock whose marks are readings of the host's clock."""

    name = "host"

    def mark(self, stream: Any = None) -> Any:
        return time.perf_counter()

    def ready(self, mark: Any) -> bool:
        return True

    def between(self, start: Any, end: Any) -> float:
        """Return the seconds between two marks that are ready."""
        return float(end - start)

    def anchor(self) -> tuple[Any, float]:
        """Return a mark and its time in seconds since the epoch."""
        return self.mark(), time.time()


def cuda_event(**how: Any) -> Any:
    """Return a CUDA event, of torch's newer class if possible. The older class is slow: it looks up the stream in Python."""
    torch = sys.modules["torch"]
    return torch.Event("cuda", **how) if hasattr(torch, "Event") else torch.cuda.Event(**how)


class CudaClock(HostClock):
    """A clock whose marks are events on the current stream. The time of an event is known once the GPU has passed the event."""

    name = "cuda"

    def mark(self, stream: Any = None) -> Any:
        """Return a mark on the current stream, or on the given stream."""
        event = cuda_event(enable_timing=True)
        event.record() if stream is None else event.record(stream)
        return event

    def ready(self, mark: Any) -> bool:
        return bool(mark.query())

    def between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1000

    def anchor(self) -> tuple[Any, float]:
        mark = self.mark()
        mark.synchronize()  # once in a training, before its first step
        return mark, time.time()


def waited_s() -> Optional[float]:
    """Return the seconds that the threads of this process waited for a core; None if the system does not report them.

    Threads that have ended do not count.
    """
    total = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9


def clock_of(device_type: str) -> HostClock:
    return CudaClock() if device_type == "cuda" else HostClock()
