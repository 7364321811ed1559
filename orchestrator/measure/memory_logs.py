"""GPU memory from two kinds of log: the Trainer's own memory metrics, and readings of `nvidia-smi`.

The monitors write these logs and show the numbers; results folders of the reference system hold the same two kinds. Functions
from a log's content to numbers: nothing is sampled here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.files import reading as untrusted

Number = int | float

BEFORE, STAGES = "before_init_mem_gpu", ("init_mem_gpu", "train_mem_gpu")
_ALLOCATED = ("_alloc_delta", "")
_HEADER = "timestamp, name, index, memory.used [MiB]"
_READING = re.compile(r"[^,]+, (?P<name>.+), (?P<index>\d+), (?P<mib>\d+(?:\.\d+)?) MiB")


def memory_summary(metrics: Mapping[str, Any]) -> tuple[Number, Number] | None:
    """Peak and allocated bytes of rank 0's GPU, or None when a stage is missing: part of a sum is no number."""
    allocated = finite(metrics.get(BEFORE))
    if allocated is None:
        return None
    peak = highest = allocated
    for stage in STAGES:
        change = next((metrics[stage + end] for end in _ALLOCATED if stage + end in metrics), None)
        rise = metrics.get(f"{stage}_peaked_delta", 0)
        if (change := finite(change)) is None or (rise := finite(rise)) is None:
            return None
        allocated += change
        highest = max(highest, allocated)
        peak = max(peak, allocated + rise)
    return peak, highest


def finite(value: object) -> Number | None:
    """Return the value if it is a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSummary:
    """What a log of readings comes to. `problem` says why there is no number, `unreadable` counts lines left out."""

    peak_by_device: dict[str, float]
    device_name: str | None
    unreadable: int = 0
    problem: str | None = None

    @property
    def mean(self) -> float | None:
        """MiB above the first reading, mean over devices; None when there is no number."""
        peaks = self.peak_by_device.values()
        return sum(peaks) / len(peaks) if peaks else None


def readings(text: str) -> list[re.Match[str]]:
    """Return the lines that are whole readings, in their order."""
    return [match for line in text.splitlines() if (match := _READING.fullmatch(line.strip()))]


def read_summary(log: Path) -> LogSummary:
    """A log's numbers. With its beginning cut off it would be a mean of something else: it is read whole or not at all."""
    try:
        return log_summary(untrusted.read_text(log, limit=untrusted.LOG_BYTES))
    except FileNotFoundError:
        problem = "no GPU was watched"
    except (OSError, ValueError) as error:
        problem = untrusted.reason(error)
    return LogSummary(peak_by_device={}, device_name=None, problem=problem)


def log_summary(text: str) -> LogSummary:
    """The log's numbers. A last line that was cut off is ignored; a log without a reading is a problem, not a 0."""
    lines = [line.strip() for line in text.splitlines()]
    if not lines:
        return LogSummary(peak_by_device={}, device_name=None, problem="the log is empty")
    if lines[0] != _HEADER:
        return LogSummary(peak_by_device={}, device_name=None, problem=f"it is no log of readings: {lines[0][:200]}")
    body = lines[1:]
    if body and not text.endswith("\n") and not _READING.fullmatch(body[-1]):
        body = body[:-1]
    whole = readings("\n".join(body))
    if not whole:
        problem = "it holds no reading" + (f", but: {body[0][:200]}" if body else "")
        return LogSummary(peak_by_device={}, device_name=None, problem=problem)
    by_device: dict[str, list[float]] = {}
    for reading in whole:
        by_device.setdefault(reading["index"], []).append(float(reading["mib"]))
    return LogSummary(
        peak_by_device={index: max(values) - values[0] for index, values in by_device.items()},
        device_name=whole[-1]["name"],
        unreadable=len(body) - len(whole),
    )
