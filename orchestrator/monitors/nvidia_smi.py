"""What is measured: device memory in use, by `nvidia-smi --loop=1` beside the run, as the reference system does it.

How: the first reading is taken before the run starts and stands for what the device held already (calibration). Each
device's maximum less its first reading, averaged over the run's devices, is `mem_nvidia_mem_reserved`, in MiB.

What the number leaves out: peaks between two readings (four spikes of 5 to 200 ms went unseen), and which process used
the memory: whatever else comes to the device during the run is in. CUDA contexts and communication buffers are in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from orchestrator import process, untrusted
from orchestrator.monitors.monitor import Monitor
from orchestrator.monitors.sampling import sampling
from orchestrator.records import Gpu, Measurement

SAMPLES, COST = "samples-nvidia-smi.csv", "cost-nvidia-smi.json"
_FIELDS = "timestamp,name,index,memory.used"
_HEADER = "timestamp, name, index, memory.used [MiB]"
_READING = re.compile(r"[^,]+, (?P<name>.+), (?P<index>\d+), (?P<mib>\d+(?:\.\d+)?) MiB")


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


class NvidiaSmi(Monitor):
    """`nvidia-smi` as a sidecar; a machine without it, or a run without GPUs, gives a dash."""

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        return _watching(run_dir / SAMPLES, gpus) if gpus else nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        summary = read_summary(run_dir / SAMPLES)
        source = f"{SAMPLES}: {summary.problem}" if summary.problem else SAMPLES
        if summary.unreadable:
            source += f" ({summary.unreadable} unreadable line(s) left out)"
        return [
            Measurement(name="mem_nvidia_mem_reserved", value=summary.mean, source=source),
            Measurement(name="gpu_device_name", value=summary.device_name, source=source),
            *_cost(run_dir / COST),
        ]


def _cost(path: Path) -> Iterator[Measurement]:
    try:
        used = untrusted.read_json(path, limit=untrusted.CLAIM_BYTES)
    except (OSError, ValueError):
        return
    for name in ("cpu_s", "rss_bytes"):
        value = used.get(name) if isinstance(used, dict) else None
        if type(value) in (int, float):
            yield Measurement(name=f"monitor_{name}", value=value, source=COST)


@contextmanager
def _watching(path: Path, gpus: Sequence[Gpu]) -> Iterator[None]:
    ids = ",".join(gpu.uuid or str(gpu.index) for gpu in gpus)
    argv = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv", f"--id={ids}", "--loop=1"]
    # Each device once, so that calibration precedes the run.
    with sampling(lambda: argv, path, has_read=lambda text: len(_readings(text)) >= len(gpus)) as sampler:
        yield
        if sampler is not None:
            (path.parent / COST).write_text(json.dumps(process.usage(sampler)) + "\n", encoding="utf-8")


def _readings(text: str) -> list[re.Match[str]]:
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
    readings = _readings("\n".join(body))
    if not readings:
        problem = "it holds no reading" + (f", but: {body[0][:200]}" if body else "")
        return LogSummary(peak_by_device={}, device_name=None, problem=problem)
    by_device: dict[str, list[float]] = {}
    for reading in readings:
        by_device.setdefault(reading["index"], []).append(float(reading["mib"]))
    return LogSummary(
        peak_by_device={index: max(values) - values[0] for index, values in by_device.items()},
        device_name=readings[-1]["name"],
        unreadable=len(body) - len(readings),
    )
