"""GPU memory from two kinds of log: the Trainer's memory metrics, and readings of `nvidia-smi`.

The monitors write these logs. Results folders of the reference system contain the same two kinds of log. The functions turn a log's
content into numbers, and mask secrets in it; nothing is sampled here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.files import reading, writing
from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import redactor

Number = int | float

SAMPLES = "samples-nvidia-smi.csv"
BEFORE, STAGES = "before_init_mem_gpu", ("init_mem_gpu", "train_mem_gpu")
_ALLOCATED = ("_alloc_delta", "")
_HEADER = "timestamp, name, index, memory.used [MiB]"
_TIME = "%Y/%m/%d %H:%M:%S.%f"
_READING = re.compile(r"(?P<time>[^,]+), (?P<name>.+), (?P<index>\d+), (?P<mib>\d+(?:\.\d+)?) MiB")


def memory_summary(metrics: Mapping[str, Any]) -> tuple[Number, Number] | None:
    """Return the peak and the allocated bytes of rank 0's GPU. Both are sums over stages: return None if a stage is missing."""
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
    """Return the value if it is a finite number, and not too large for a float; else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
        return None
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSummary:
    """The numbers of a log of readings. `problem` says why there is no number; `unreadable` counts skipped lines.

    `times` are the local times of each device's readings, as far as they can be read.
    """

    peak_by_device: dict[str, float]
    device_name: str | None
    times: Mapping[str, Sequence[datetime]] = field(default_factory=dict)
    unreadable: int = 0
    problem: str | None = None

    @property
    def mean(self) -> float | None:
        """The memory above the first reading in MiB, as the mean over devices; None without readings."""
        peaks = self.peak_by_device.values()
        return sum(peaks) / len(peaks) if peaks else None


def readings(text: str) -> list[re.Match[str]]:
    """Return the lines that are complete readings, in order."""
    return [match for line in text.splitlines() if (match := _READING.fullmatch(line.strip()))]


def mask_texts(log: Path) -> None:
    """Mask the secrets in a log of readings: in names of devices, and in lines that are not readings. Other cells are numbers."""
    masked = redactor()
    with suppress(OSError, ValueError):
        text = reading.read_text(log, limit=reading.LOG_BYTES)
        lines = text.splitlines(keepends=True)
        for at, line in enumerate(lines):
            match = _READING.fullmatch(line.strip())
            words = match["name"] if match else line
            if (hidden := masked(words)) != words:
                lines[at] = line.replace(words, hidden)
        if (safe := "".join(lines)) != text:
            writing.replace(log, safe)


def read_summary(log: Path) -> LogSummary:
    """Return the numbers of a log. Do not read the end of a log that is too large: the log's first reading is the baseline."""
    try:
        return log_summary(reading.read_text(log, limit=reading.LOG_BYTES))
    except FileNotFoundError:
        return _without_numbers("no GPU was watched")
    except (OSError, ValueError) as error:
        return _without_numbers(reading.reason(error))


def _without_numbers(problem: str) -> LogSummary:
    return LogSummary(peak_by_device={}, device_name=None, problem=problem)


def log_summary(text: str) -> LogSummary:
    """Return the numbers of a log's text. Ignore an incomplete last line. Report a log without readings as a problem, not as 0."""
    lines = [line.strip() for line in text.splitlines()]
    if not lines:
        return _without_numbers("the log is empty")
    if lines[0] != _HEADER:
        return _without_numbers(f"it is not a log of readings: {one_line(lines[0], longest=200)}")
    body = lines[1:]
    if body and not text.endswith("\n") and not _READING.fullmatch(body[-1]):
        body = body[:-1]
    whole = readings("\n".join(body))
    if not whole:
        return _without_numbers("it has no reading" + (f", but: {one_line(body[0], longest=200)}" if body else ""))
    by_device: dict[str, list[float]] = {}
    times: dict[str, list[datetime]] = {}
    for match in whole:
        by_device.setdefault(match["index"], []).append(float(match["mib"]))
        with suppress(ValueError):
            times.setdefault(match["index"], []).append(datetime.strptime(match["time"], _TIME))
    return LogSummary(
        peak_by_device={index: max(values) - values[0] for index, values in by_device.items()},
        device_name=whole[-1]["name"],
        times=times,
        unreadable=len(body) - len(whole),
    )
