"""The clock that steps are timed by: the GPU's own where the Trainer computes on CUDA, else the host's.

A mark is a moment that may not have come yet: on CUDA an event recorded on the current stream, which is known once the GPU has
passed it. Nothing here waits but `anchor`, once in a training. What it leaves out: work on other streams that the
current one does not wait for, and how far the GPU's and the host's clocks drift apart during a training.

A part of the instrument (`instrument.py`). It imports nothing but the standard library.
"""

from __future__ import annotations

import sys
import time
from typing import Any


class HostClock:
    """Marks are readings of the host's clock."""

    name = "host"

    def mark(self) -> Any:
        return time.perf_counter()

    def ready(self, mark: Any) -> bool:
        return True

    def between(self, start: Any, end: Any) -> float:
        """Seconds from one mark to a later one, both ready."""
        return float(end - start)

    def anchor(self) -> tuple[Any, float]:
        """A mark, and when it was in seconds since the epoch."""
        return self.mark(), time.time()


def cuda_event(**how: Any) -> Any:
    """By torch's newer class: the other looks for the current stream in Python, and where a step begins the GPU waits for that."""
    torch = sys.modules["torch"]
    return torch.Event("cuda", **how) if hasattr(torch, "Event") else torch.cuda.Event(**how)


class CudaClock(HostClock):
    """Marks are events on the current stream: moments of the GPU, known once it has passed them."""

    name = "cuda"

    def mark(self) -> Any:
        event = cuda_event(enable_timing=True)
        event.record()
        return event

    def ready(self, mark: Any) -> bool:
        return bool(mark.query())

    def between(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1000

    def anchor(self) -> tuple[Any, float]:
        mark = self.mark()
        mark.synchronize()  # once in a training, before its first step
        return mark, time.time()


def clock_of(device_type: str) -> HostClock:
    return CudaClock() if device_type == "cuda" else HostClock()
