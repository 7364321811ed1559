"""NVML's readings of GPUs as a sequence of views, for `tunebench monitor`. The module `view` shows them.

The monitor `nvml` (`monitors/nvml_sampler`) makes the readings in the same way, so both report the same values. Between two views,
memory is read every 50 ms to find its peak. It takes milliseconds to read the energy counter or the processes, so both are read at
most once per second. An event between two readings is missed. Nothing is written.

At the default interval, the monitor uses about 1 % of one CPU core for one GPU, and 5 % for eight GPUs. Both percentages are sums
of the costs of single readings. The energy counter causes most of the cost (3.4 ms per reading on H100). The monitor starts no work
on a GPU. `benchmarks/watching.py` measures the cost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from orchestrator.errors import SelectionError
from orchestrator.machine.child_environment import MARKER, RUN_DIR
from orchestrator.machine.gpus import all_gpus, find_gpu, mig_instance
from orchestrator.measure.gpu_timeline import REASONS
from orchestrator.monitors import nvml_sampler
from orchestrator.records import Gpu

# Seconds between two readings of memory. A peak that is shorter than this may be missed.
LOOK_S = 0.05

# Seconds between two readings of the energy counter and the processes. They are less than the default interval, so every view has
# new readings.
SLOW_S = 0.9

SHORTEST_S, LONGEST_S = 0.1, 60.0
_RUN_FOLDER = re.compile(r"(?:.*/)?experiments/(?P<experiment>[^/]+)/runs/r(?P<repeat>\d+)-t(?P<attempt>\d+)/?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """The run to which a process belongs, according to the process's environment."""

    folder: str | None
    experiment: str | None
    repeat: int | None
    attempt: int | None


class Seen(StrEnum):
    """The place of a process: in this container or in another container. `ENDING`: the process was just ending."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    ENDING = "ending"


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process that computes on a GPU."""

    pid: int
    seen: Seen
    name: str | None
    run: Run | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One GPU at one moment; unknown values are None. The peak and the energy are counted from the start of the watch."""

    index: int
    uuid: str | None
    name: str | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    memory_peak_used_bytes: int | None
    gpu_utilization: float | None
    power_w: float | None
    power_limit_w: float | None
    energy_j: float | None
    sm_clock_mhz: float | None
    temperature_c: float | None
    throttle_reasons: tuple[str, ...] | None
    processes: tuple[Process, ...] | None
    lost: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """All GPUs at one moment. `time` is in seconds since the epoch; `since_s` is the time since the watch began."""

    time: float
    since_s: float
    gpus: tuple[Reading, ...]


def pace(interval_s: float) -> float:
    """Return the interval between two views. Raise SelectionError if the interval is out of bounds."""
    if not SHORTEST_S <= interval_s <= LONGEST_S:
        raise SelectionError(f"--interval '{interval_s:g}' is invalid; write {SHORTEST_S:g} to {LONGEST_S:g} seconds")
    return interval_s


def chosen(nvml: Any, asked: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that `asked` names. Return all GPUs if it is None.

    `asked` may contain indices, UUIDs, beginnings of UUIDs, and UUIDs of MIG parts. Raise SelectionError if a word names no GPU.
    """
    every = all_gpus(nvml)
    if asked is None:
        return every
    found: list[Gpu] = []
    for word in map(str.strip, asked.split(",")):
        gpu = mig_instance(nvml, word) if word.startswith("MIG-") else find_gpu(word, every)
        if gpu is None:
            there = ", ".join(f"{gpu.index} ({gpu.name or 'lost'}, {gpu.uuid or 'no UUID'})" for gpu in every)
            raise SelectionError(f"--gpus {asked}: {word!r} is not a GPU. Allowed: {there}")
        found.append(gpu)
    return tuple(dict.fromkeys(found))


class Device:
    """One watched GPU: its readings, its highest memory, and its energy counter at the start of the watch."""

    def __init__(self, nvml: Any, gpu: Gpu) -> None:
        self.nvml, self.gpu = nvml, gpu
        self.lost: str | None = None
        self.peak: int | None = None
        self._silent: set[str] = set()
        self._slow: dict[str, Any] = {}
        self._slow_at: float | None = None
        self._energy_began: float | None = None
        self._handle: Any = self._ask("handle", self._open)

    def look(self) -> int | None:
        """Return the bytes in use. Update the peak if they exceed it."""
        used: int | None = self._ask("memory", lambda: nvml_sampler.memory_in_use(self.nvml, self._handle))
        if used is not None:
            self.peak = max(used, self.peak or 0)
        return used

    def read(self, now: float) -> Reading:
        """Return all readings. `now` is in seconds of the monotonic clock."""
        self._read_slow(now)
        used, bits = self.look(), self._sampled("reasons")
        limit = self._ask("limit", lambda: self.nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))
        values = {what: self._sampled(what) for what in ("utilization", "power", "sm_clock", "temperature")}
        slow = {} if self.lost else self._slow
        return Reading(
            index=self.gpu.index,
            uuid=self.gpu.uuid or None,
            name=self.gpu.name or None,
            memory_used_bytes=used,
            memory_total_bytes=self.gpu.memory_bytes,
            memory_peak_used_bytes=self.peak,
            gpu_utilization=values["utilization"],
            power_w=values["power"],
            power_limit_w=None if limit is None else limit / 1000,
            energy_j=slow.get("energy"),
            sm_clock_mhz=values["sm_clock"],
            temperature_c=values["temperature"],
            throttle_reasons=None if bits is None else tuple(name for bit, name in REASONS.items() if bits & bit),
            processes=slow.get("processes"),
            lost=self.lost,
        )

    def _open(self) -> Any:
        if self.gpu.uuid:
            return self.nvml.nvmlDeviceGetHandleByUUID(self.gpu.uuid)
        return self.nvml.nvmlDeviceGetHandleByIndex(self.gpu.index)

    def _read_slow(self, now: float) -> None:
        if self._slow_at is not None and now - self._slow_at < SLOW_S:
            return
        first, self._slow_at = self._slow_at is None, now
        counter, there = self._sampled("energy"), self._sampled("processes")
        if first:
            self._energy_began = counter
        known = counter is not None and self._energy_began is not None and counter >= self._energy_began
        self._slow = {
            "energy": round(counter - self._energy_began, 3) if known and not first else None,
            "processes": None if there is None else tuple(map(process_of, there.split())),
        }

    def _sampled(self, what: str) -> Any:
        """Return a value, read in the same way as by the monitor `nvml`."""
        _, read = nvml_sampler.READERS[what]
        return self._ask(what, lambda: read(self.nvml, self._handle))

    def _ask(self, what: str, read: Callable[[], Any]) -> Any:
        """Return a reading, or None. Request an unsupported reading only once. Request nothing more from a lost GPU."""
        if self.lost or self._silent & {what, "handle"}:
            return None
        try:
            return read()
        except AttributeError:  # the binding is too old
            self._silent.add(what)
        except self.nvml.NVMLError as error:
            if error.value == self.nvml.NVML_ERROR_GPU_IS_LOST:
                self.lost = str(error)
            elif error.value == self.nvml.NVML_ERROR_NOT_SUPPORTED or what == "handle":
                self._silent.add(what)
        return None


class Watch:
    """The watched GPUs. The watch begins when this object is made."""

    def __init__(self, nvml: Any, gpus: Sequence[Gpu]) -> None:
        self.devices = [Device(nvml, gpu) for gpu in gpus]
        self.began = time.monotonic()

    def look(self) -> None:
        """Read the memory in use on each GPU, to find the peaks."""
        for device in self.devices:
            device.look()

    def view(self) -> View:
        now = time.monotonic()
        gpus = tuple(device.read(now) for device in self.devices)
        return View(time=round(time.time(), 3), since_s=round(now - self.began, 3), gpus=gpus)


def views(watch: Watch, *, interval_s: float, stopped: Callable[[], bool]) -> Iterator[View]:
    """Yield a view now and after every interval. Between views, read memory. Stop soon after `stopped` returns true."""
    due = time.monotonic()
    while not stopped():
        yield watch.view()
        due = max(due + interval_s, time.monotonic())  # missed views are skipped
        while not stopped() and (left := due - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
            watch.look()


def process_of(text: str, proc: Path = Path("/proc")) -> Process:
    """Return the process that the sampler's text describes (`nvml_sampler.processes`), with its run."""
    kind, number, *rest = text.split(":", 2)
    seen = {"unknown": Seen.ELSEWHERE, "leaving": Seen.ENDING}.get(kind, Seen.HERE)
    name = rest[0] if rest and rest[0] != "?" else None
    run = _run_of(proc / number / "environ") if seen is Seen.HERE else None
    return Process(pid=int(number), seen=seen, name=name, run=run)


def _run_of(environ: Path) -> Run | None:
    try:
        pairs = (entry.partition("=") for entry in environ.read_bytes().decode(errors="replace").split("\0"))
    except OSError:  # the process has ended, or belongs to another user
        return None
    found = {name: value for name, _, value in pairs if name in (MARKER, RUN_DIR)}
    if not found:
        return None
    match = _RUN_FOLDER.fullmatch(found.get(RUN_DIR, ""))
    return Run(
        folder=found.get(RUN_DIR),
        experiment=match["experiment"] if match else None,
        repeat=int(match["repeat"]) if match else None,
        attempt=int(match["attempt"]) if match else None,
    )
