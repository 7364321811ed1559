"""The NVML sampler: a light process of its own that writes what the GPUs of one run are at, until it is told to stop.

    python -P nvml_sampler.py PERIOD_S UUID…        (samples go to stdout)

What is measured: memory in use every PERIOD_S (the driver's reserve apart, where NVML can tell them); power, utilisation,
temperature, SM clock and the reasons that hold clocks down ten times a second; the energy counter twice a second, since a
call takes milliseconds; the processes on the GPU once a second. A line is `time,gpu,what,value`, with the time in seconds
since the epoch, the GPU's place in the arguments (its first line says its UUID), and base units (bytes, W, J, MHz, °C, shares
of 1). A value is written when it changes, and once a second though it does not: a peak is never lost, and hours of sameness
cost next to nothing.

What it leaves out: what comes and goes between two readings. Power is the device's own average over the last moments. What
a device does not support is not written; a device that falls off the bus is said to be `lost`, and the others go on.

It keeps off the training's cores where there are at least four: it moves itself to the last one. It needs the standard library
and pynvml alone, so that it starts at once and stays small. `monitors/nvml.py` starts it and reads what it wrote.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any, TextIO

HEADER = "time,gpu,what,value"
MARKER = "TUNEBENCH_RUN"
FAST, SLOW, ENERGY, PROCESSES, SAME = "fast", 0.1, 0.5, 1.0, 1.0
FLUSH_S = 0.2
CORES_TO_SPARE = 4
OLDER_DRIVER = (3, 13, 25)
"""Not supported, no such function, no such version of its argument."""

EXITING = 0x4
"""PF_EXITING of the kernel, in a process's flags."""

Reader = Callable[[Any, Any], Any]


def memory_in_use(nvml: Any, handle: Any) -> int:
    """Bytes in use, without the driver's reserve where this NVML tells it apart."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    if version is not None:
        try:
            return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=version).used)
        except nvml.NVMLError as error:  # a failure of the moment must not bring the reserve in, which would be a peak
            if getattr(error, "value", None) not in OLDER_DRIVER:
                raise
    return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def power(nvml: Any, handle: Any) -> float:
    """Watts now, where the device tells them; else its own average, which is over the last second on recent parts."""
    field = getattr(nvml, "NVML_FI_DEV_POWER_INSTANT", None)
    if field is not None:
        (found,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
        if found.nvmlReturn == nvml.NVML_SUCCESS:
            return float(found.value.uiVal) / 1000
    return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000


def _reasons(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (AttributeError, nvml.NVMLError):  # a binding, or a driver before 535, that knows it by its old name
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def processes(nvml: Any, handle: Any) -> str:
    """The processes that compute on a GPU, with spaces between: `own:PID` is of this run, `foreign:PID:NAME` of this machine but
    not of the run, `unknown:PID` of another namespace, as where containers see the host's numbers, `leaving:PID` one that is at
    its end: whose it was can no longer be seen."""
    return " ".join(sorted({_named(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}))


def _named(pid: int) -> str:
    seen = _seen(pid)
    return seen if seen.startswith("own:") or not _is_leaving(pid) else f"leaving:{pid}"


def _is_leaving(pid: int) -> bool:
    """Whether the kernel is taking the process down. Giving its GPU back takes a while, and its environment goes first."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return bool(int(fields[6]) & EXITING)
    except (OSError, ValueError, IndexError):
        return False


def _seen(pid: int) -> str:
    try:
        if not _holds_a_gpu(pid):
            return f"unknown:{pid}"  # a number of another namespace, which is somebody else's in this one
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read().split(b"\0")
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = "_".join(file.read().replace(",", " ").split())
    except FileNotFoundError:
        return f"unknown:{pid}"
    except OSError:  # somebody else's, who does not let us look
        return f"foreign:{pid}:?"
    marker = os.environ.get(MARKER)
    return f"own:{pid}" if marker and f"{MARKER}={marker}".encode() in environment else f"foreign:{pid}:{name}"


def _holds_a_gpu(pid: int) -> bool:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            if os.readlink(f"{folder}/{name}").startswith(("/dev/nvidia", "/dev/dxg")):
                return True
        except FileNotFoundError:  # closed while we looked
            continue
    return False


READERS: dict[str, tuple[float | str, Reader]] = {
    "memory": (FAST, memory_in_use),
    "power": (SLOW, power),
    "utilization": (SLOW, lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
    "temperature": (SLOW, lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
    "sm_clock": (SLOW, lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
    "reasons": (SLOW, _reasons),
    "energy": (ENERGY, lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000),
    "processes": (PROCESSES, processes),
}
"""What is read, how often in seconds (FAST: every period), and how."""


class Device:
    """One GPU: what of it can be read, when it is due, what was written last."""

    def __init__(self, nvml: Any, place: int, uuid: str) -> None:
        self.nvml, self.place, self.uuid = nvml, place, uuid
        self.handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        self.readers = dict(READERS)
        self.due = dict.fromkeys(READERS, 0.0)
        self.written: dict[str, tuple[Any, float]] = {}

    def first_line(self) -> str:
        return self.line("uuid", self.uuid)

    def lines(self, now: float) -> Iterator[str]:
        """The lines of what is due and new. What is not supported is not asked for again."""
        for what, (every, read) in list(self.readers.items()):
            if every != FAST and now < self.due[what]:
                continue
            if not isinstance(every, str):  # slow calls of several devices fall into different rounds
                self.due[what] = now + every * (1 if self.due[what] else 1 + self.place % 8 / 8)
            try:
                value = read(self.nvml, self.handle)
            except AttributeError:  # an older binding has no such call
                del self.readers[what]
                continue
            except self.nvml.NVMLError as error:
                if getattr(error, "value", None) == getattr(self.nvml, "NVML_ERROR_GPU_IS_LOST", 15):
                    self.readers = {}
                    yield self.line("lost", str(error).replace(",", ";"))
                    return
                if getattr(error, "value", None) == getattr(self.nvml, "NVML_ERROR_NOT_SUPPORTED", 3):
                    del self.readers[what]
                continue
            before = self.written.get(what)
            if before is None or before[0] != value or now - before[1] >= SAME:
                self.written[what] = (value, now)
                yield self.line(what, value)

    def line(self, what: str, value: Any) -> str:
        shown = f"{value:.6g}" if isinstance(value, float) and what != "energy" else value
        return f"{time.time():.4f},{self.place},{what},{shown}\n"


class Sampler:
    """Reads until `stop`, on absolute deadlines: a late reading does not make the next one late."""

    def __init__(self, nvml: Any, uuids: Sequence[str], *, period_s: float, out: TextIO) -> None:
        self.period_s, self.out = period_s, out
        self.devices = [Device(nvml, place, uuid) for place, uuid in enumerate(uuids)]
        self.gaps: deque[float] = deque(maxlen=20_000)
        self.worst = 0.0
        self.stopped = False

    def stop(self, *_: Any) -> None:
        self.stopped = True

    def run(self) -> None:
        parent = os.getppid()
        deadline = last = time.monotonic()
        flush_at = look_at = deadline
        self.out.writelines(device.first_line() for device in self.devices)
        while not self.stopped:
            now = time.monotonic()
            for device in self.devices:
                self.out.writelines(device.lines(now))
            if now >= flush_at:
                self.out.flush()
                flush_at = now + FLUSH_S
            if now >= look_at:  # whoever started this may have been killed
                self.stopped = self.stopped or os.getppid() != parent
                look_at = now + 1.0
            if now > last:
                self.gaps.append(now - last)
                self.worst = max(self.worst, now - last)
            last = now
            deadline += self.period_s
            late = time.monotonic() - deadline
            if late > 0:  # readings that were missed are not made up for
                deadline += self.period_s * (late // self.period_s)
            time.sleep(max(0.0, deadline - time.monotonic()))

    def cost(self) -> str:
        """The last line: what sampling took, and how often it really read."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        said = {
            "cpu_s": round(used.ru_utime + used.ru_stime, 4),
            "rss_bytes": peak_rss(),
            "period_s": round(median(self.gaps), 6) if self.gaps else None,
            "worst_period_s": round(self.worst, 6),
        }
        return f"# {json.dumps(said)}\n"


def peak_rss() -> int | None:
    """Bytes, since this program began: what `getrusage` says goes back to the process that started it."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return int(file.read().split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def keep_off(cores: set[int]) -> set[int]:
    """The cores to run on: the last one where there are enough for the training without it, else all."""
    return {max(cores)} if len(cores) >= CORES_TO_SPARE else cores


def main() -> None:
    period_s, uuids = float(sys.argv[1]), sys.argv[2:]
    out = sys.stdout
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # the library or the driver is missing, or they do not match
        out.write(f"NVML cannot be used: {error}\n")
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, keep_off(os.sched_getaffinity(0)))
    try:
        sampler = Sampler(pynvml, uuids, period_s=period_s, out=out)
    except pynvml.NVMLError as error:
        out.write(f"NVML does not know the GPUs {' '.join(uuids)}: {error}\n")
        return
    signal.signal(signal.SIGTERM, sampler.stop)
    signal.signal(signal.SIGINT, sampler.stop)
    out.write(HEADER + "\n")
    sampler.run()
    out.write(sampler.cost())
    out.flush()
    pynvml.nvmlShutdown()


if __name__ == "__main__":
    main()
