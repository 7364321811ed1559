"""Measures the device memory in use once per second with `nvidia-smi --loop=1`, as the reference system does.

How: the first reading is taken before the run starts, so it shows the memory that other programs use. The value of each device
is its maximum minus its first reading. The mean over the run's devices is `mem_nvidia_mem_reserved`, in MiB.

The number is missing if the readings cannot show the run's peak: `nvidia-smi` ended before the run, a device was read at most once,
or a device was not read for a long part of the run. A shorter pause, or a line that cannot be read, becomes a warning.

The number leaves out: peaks between two readings (in a test it missed four spikes of 5 to 200 ms), and the share of each
process. The number includes CUDA contexts, communication buffers, and the memory of every other process that starts to use the
device during the run.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from orchestrator.files import reading, writing
from orchestrator.measure.memory_logs import SAMPLES, LogSummary, read_summary, readings
from orchestrator.monitors.monitor import Monitor
from orchestrator.monitors.sampling import not_sampling, number_of_nodes, on_all_nodes
from orchestrator.records import Caveat, Gpu, Measurement

COST = "cost-nvidia-smi.json"
_MEMORY = "mem_nvidia_mem_reserved"
_FIELDS = "timestamp,name,index,memory.used"
_QUARTER = timedelta(minutes=15)


# A device is read once per second. A longer time between two readings becomes a warning; the number is missing if this time is
# more than a share of the run.
LONGEST_PAUSE_S, LONGEST_SHARE = 3.0, 0.2


class NvidiaSmi(Monitor):
    """The monitor that runs `nvidia-smi`. Without `nvidia-smi`, or without GPUs, its numbers are missing."""

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        return _watching(run_dir / SAMPLES, gpus) if gpus else not_sampling(run_dir / SAMPLES)

    def measurements(self, run_dir: Path) -> list[Measurement]:
        nodes = number_of_nodes(run_dir)
        if nodes == 1:
            return self._of_folder(run_dir)
        files = on_all_nodes(run_dir, SAMPLES)
        each = [self._of_folder(path.parent) for path in files.values()]
        return _over_nodes(each, unwatched=nodes - len(each))

    def _of_folder(self, run_dir: Path) -> list[Measurement]:
        summary = read_summary(run_dir / SAMPLES)
        problem = summary.problem or _why_not_the_peak(summary, _noted(run_dir))
        why = Caveat(detail=f"{SAMPLES}: {problem}") if problem else None
        mean, no_name = None if problem else summary.mean, why if summary.problem else None
        source = SAMPLES + (f" ({summary.unreadable} unreadable line(s) left out)" if summary.unreadable else "")
        return [
            Measurement(name=_MEMORY, value=mean, source=source, missing=why),
            Measurement(name="gpu_device_name", value=summary.device_name, source=source, missing=no_name),
            *_cost(_noted(run_dir)),
        ]

    def warnings(self, run_dir: Path) -> Sequence[Caveat]:
        summary, noted = read_summary(run_dir / SAMPLES), _noted(run_dir)
        if summary.problem or _why_not_the_peak(summary, noted):
            return []
        name, pause_s = _longest_pause(summary, noted)
        notes = [f"{summary.unreadable} line(s) cannot be read and are left out"] if summary.unreadable else []
        notes += (
            [f"GPU {name} was not read for {pause_s:.3g} s, so its peak may be higher"]
            if pause_s > LONGEST_PAUSE_S
            else []
        )
        return [Caveat(detail=f"{SAMPLES}: {note}") for note in notes]


def _over_nodes(each: Sequence[Sequence[Measurement]], *, unwatched: int) -> list[Measurement]:
    """Return the first node's numbers, and the mean memory over all nodes, which have the same number of GPUs."""
    if unwatched or not each:
        why = Caveat(detail=f"{SAMPLES}: the GPUs of {unwatched} of {unwatched + len(each)} nodes were not watched")
        return [Measurement(name=_MEMORY, value=None, source=SAMPLES, missing=why)]
    memory = [number for numbers in each for number in numbers if number.name == _MEMORY]
    values = [number.value for number in memory if isinstance(number.value, (int, float))]
    unread = next((number for number in memory if number.value is None), None)
    mean = unread or replace(memory[0], value=sum(values) / len(values))
    return [mean, *(number for number in each[0] if number.name != _MEMORY)]


def _why_not_the_peak(summary: LogSummary, noted: Mapping[str, Any]) -> str | None:
    """Return why the readings cannot show the run's peak, or None. Judge nothing if the run's end was not noted."""
    if "ended_at" not in noted:
        return None
    if noted["exit_code"] is not None:
        return f"nvidia-smi ended before the run, {_end_in_words(noted['exit_code'])}"
    if (read := sum(len(times) > 1 for times in summary.times.values())) < noted["gpus"]:
        return f"{read} of the run's {noted['gpus']} GPUs have more than one reading with a time"
    name, pause_s = _longest_pause(summary, noted)
    began = datetime.fromtimestamp(noted["began_at"]) + _other_zone(summary, noted) + timedelta(seconds=1)
    if late := [name for name, times in _timed(summary).items() if times[0] > began]:
        return f"GPU {late[0]} was first read after the run had started"
    if pause_s > max(LONGEST_PAUSE_S, LONGEST_SHARE * (noted["ended_at"] - noted["began_at"])):
        return f"GPU {name} was not read for {pause_s:.3g} s of the run"
    return None


def _end_in_words(exit_code: int) -> str:
    return f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"


def _longest_pause(summary: LogSummary, noted: Mapping[str, Any]) -> tuple[str, float]:
    """Return the device that was not read for the longest time, and this time in seconds. The run's end counts as a reading."""
    if "ended_at" not in noted or not _timed(summary):
        return "", 0.0
    ended = datetime.fromtimestamp(noted["ended_at"]) + _other_zone(summary, noted)
    pauses = {
        name: max(_seconds_between(before, after) for before, after in pairwise([*times, ended]))
        for name, times in _timed(summary).items()
    }
    return max(pauses.items(), key=itemgetter(1))


def _seconds_between(before: datetime, after: datetime) -> float:
    """Return the seconds between two local times. The hour that a change to or from daylight-saving time skips does not count."""
    return min((after - before).total_seconds(), after.timestamp() - before.timestamp())


def _timed(summary: LogSummary) -> Mapping[str, Sequence[datetime]]:
    """Return the times of each device that has a reading whose time can be read."""
    return {name: times for name, times in summary.times.items() if times}


def _other_zone(summary: LogSummary, noted: Mapping[str, Any]) -> timedelta:
    """Return by how much the log's time zone differs from ours. All zones differ by quarters of an hour."""
    first = min(times[0] for times in _timed(summary).values())
    return _QUARTER * round((first - datetime.fromtimestamp(noted["began_at"])) / _QUARTER)


def _noted(run_dir: Path) -> Mapping[str, Any]:
    """Return the notes about the sampler; {} if there are none."""
    try:
        noted = reading.read_json(run_dir / COST, limit=reading.CLAIM_BYTES)
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def _cost(noted: Mapping[str, Any]) -> Iterator[Measurement]:
    for name in ("cpu_s", "rss_bytes"):
        if type(value := noted.get(name)) in (int, float):
            yield Measurement(name=f"monitor_{name}", value=value, source=COST)


@contextmanager
def _watching(path: Path, gpus: Sequence[Gpu]) -> Iterator[None]:
    from orchestrator.machine import process
    from orchestrator.monitors.sampling import sampling

    ids = ",".join(gpu.uuid or str(gpu.index) for gpu in gpus)
    argv = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv", f"--id={ids}", "--loop=1"]

    def has_read(text: str) -> bool:
        """Return whether each device was read. The run starts after this reading."""
        return len({match["index"] for match in readings(text)}) >= len(gpus)

    with sampling(lambda: argv, path, has_read=has_read) as sampler:
        began_at = time.time()
        yield
        if sampler is not None:
            noted = {"gpus": len(gpus), "began_at": began_at, "ended_at": time.time(), "exit_code": sampler.poll()}
            with suppress(OSError):  # such as a full disk: the cost is not recorded, and the readings are not judged
                writing.replace(path.parent / COST, json.dumps({**process.usage(sampler), **noted}) + "\n")
