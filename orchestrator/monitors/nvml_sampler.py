"""A light process that measures the GPUs of one run with NVML, until it receives a signal.

    python -P nvml_sampler.py PERIOD_S UUID…        (samples go to stdout)

How: the memory in use is read every PERIOD_S seconds. It excludes the driver's reserve if NVML reports the reserve separately.
Power, utilisation, temperature, SM clock and the reasons for throttling are read ten times per second. The energy counter is
read only twice per second, since a call takes milliseconds. The processes on the GPU are read once per second.

A line is `time,gpu,what,value`. The time is in seconds since the epoch. `gpu` is the GPU's position in the arguments, from 0.
The first line of each GPU contains its UUID. Values are in base units: bytes, W, J, MHz, °C, shares of 1. A value is written
when it changes, and at least once per second. So every peak that was read is written, and hours without change take little
space.

The samples leave out: everything between two readings. Power may be the device's own average over a second (see `power`). A
device writes only the values that it supports. If a device is lost during the run, a line `lost` says so, and the other devices
are still read. If a value cannot be read for another reason, a line `failed` says so, at most once per second.

With at least four cores the sampler moves itself to the last core, away from the training. The sampler needs only the standard
library and pynvml, so that it starts fast and stays small. `monitors/nvml.py` starts it.
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
# NVML's errors "not supported", "function not found" and "argument version mismatch".
OLDER_DRIVER = (3, 13, 25)
# PF_EXITING of the kernel, in the flags of a process.
EXITING = 0x4

Reader = Callable[[Any, Any], Any]


def memory_in_use(nvml: Any, handle: Any) -> int:
    """Return the bytes in use, without the driver's reserve if this NVML reports the reserve separately."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    if version is not None:
        try:
            return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=version).used)
        except nvml.NVMLError as error:  # after any other error, a value with the reserve would look like a peak
            if getattr(error, "value", None) not in OLDER_DRIVER:
                raise
    return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def power(nvml: Any, handle: Any) -> float:
    """Return the watts at this moment.

    If the device does not report them, return its own average (over a second on recent GPUs).
    """
    field = getattr(nvml, "NVML_FI_DEV_POWER_INSTANT", None)
    if field is not None:
        (reading,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
        if reading.nvmlReturn == nvml.NVML_SUCCESS:
            return float(reading.value.uiVal) / 1000
    return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000


def _reasons(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (AttributeError, nvml.NVMLError):  # bindings and drivers before 535 have the old name
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def processes(nvml: Any, handle: Any) -> str:
    """Return the processes that compute on a GPU, separated by spaces.

    `own:PID` belongs to this run. `foreign:PID:NAME` is another process on this machine. `unknown:PID` is in another PID
    namespace, such as another container. `leaving:PID` is a process that is ending. The kernel no longer shows to which run it
    belongs.
    """
    return " ".join(sorted({_named(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}))


def _named(pid: int) -> str:
    name = _owner_of(pid)
    return name if name.startswith("own:") or not _is_leaving(pid) else f"leaving:{pid}"


def _is_leaving(pid: int) -> bool:
    """Return whether the kernel is ending the process.

    The kernel first removes the environment of such a process, and frees the GPU later.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return bool(int(fields[6]) & EXITING)
    except (OSError, ValueError, IndexError):
        return False


def _owner_of(pid: int) -> str:
    try:
        if not _holds_a_gpu(pid):
            return f"unknown:{pid}"  # the number is from another namespace; in this namespace another process has it
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read().split(b"\0")
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            name = "_".join(file.read().replace(",", " ").split())
    except FileNotFoundError:
        return f"unknown:{pid}"
    except OSError:  # a process of another user
        return f"foreign:{pid}:?"
    marker = os.environ.get(MARKER)
    return f"own:{pid}" if marker and f"{MARKER}={marker}".encode() in environment else f"foreign:{pid}:{name}"


def _holds_a_gpu(pid: int) -> bool:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            if os.readlink(f"{folder}/{name}").startswith(("/dev/nvidia", "/dev/dxg")):
                return True
        except FileNotFoundError:  # the file was closed meanwhile
            continue
    return False


# Kind of value → seconds between two readings (FAST: every period), and the function that reads it.
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


class Device:
    """One GPU: the readers that it supports. Each reader has the time when it is due, and the last value that was written."""

    def __init__(self, nvml: Any, place: int, uuid: str) -> None:
        self.nvml, self.place, self.uuid = nvml, place, uuid
        self.handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        self.readers = dict(READERS)
        self.due = dict.fromkeys(READERS, 0.0)
        self.written: dict[str, tuple[Any, float]] = {}
        self.failed: dict[str, float] = {}

    def lines(self, now: float) -> Iterator[str]:
        """Yield the lines of the values that are due and new. A value that the GPU does not support is not read again."""
        for what, (every, read) in list(self.readers.items()):
            if every != FAST and now < self.due[what]:
                continue
            if not isinstance(every, str):  # so that slow calls of several devices are in different rounds
                self.due[what] = now + every * (1 if self.due[what] else 1 + self.place % 8 / 8)
            try:
                value = read(self.nvml, self.handle)
            except AttributeError:  # an older binding does not have this call
                del self.readers[what]
                continue
            except self.nvml.NVMLError as error:
                yield from self.failure(what, error, now)
                if not self.readers:  # the device is lost
                    return
                continue
            before = self.written.get(what)
            if before is None or before[0] != value or now - before[1] >= SAME:
                self.written[what] = (value, now)
                yield self.line(what, value)

    def failure(self, what: str, error: Any, now: float) -> Iterator[str]:
        """Yield a line about a value that could not be read, unless the device never supports it. Read a lost device no more."""
        code, text = getattr(error, "value", None), str(error).replace(",", ";")
        if code == getattr(self.nvml, "NVML_ERROR_GPU_IS_LOST", 15):
            self.readers = {}
            yield self.line("lost", text)
        elif code == getattr(self.nvml, "NVML_ERROR_NOT_SUPPORTED", 3):
            del self.readers[what]
        elif now - self.failed.get(what, -SAME) >= SAME:
            self.failed[what] = now
            yield self.line("failed", f"{what}: {text}")

    def line(self, what: str, value: Any) -> str:
        shown = f"{value:.6g}" if isinstance(value, float) and what != "energy" else value
        return f"{time.time():.4f},{self.place},{what},{shown}\n"


class Sampler:
    """A loop that reads all devices until `stop` is called. Deadlines are absolute: a late reading does not delay the next one."""

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
        self.out.writelines(device.line("uuid", device.uuid) for device in self.devices)
        while not self.stopped:
            now = time.monotonic()
            for device in self.devices:
                self.out.writelines(device.lines(now))
            if now >= flush_at:
                self.out.flush()
                flush_at = now + FLUSH_S
            if now >= look_at:  # stop if the process that started the sampler was killed
                self.stopped = self.stopped or os.getppid() != parent
                look_at = now + 1.0
            if now > last:
                self.gaps.append(now - last)
                self.worst = max(self.worst, now - last)
            last = now
            deadline += self.period_s
            late = time.monotonic() - deadline
            if late > 0:  # skip the readings that were missed
                deadline += self.period_s * (late // self.period_s)
            time.sleep(max(0.0, deadline - time.monotonic()))
        self.worst = max(self.worst, time.monotonic() - last)  # the process may have been stopped until now

    def cost(self) -> str:
        """Return the last line of the samples: the CPU time and the memory of the sampler, and its actual period."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        cost = {
            "cpu_s": round(used.ru_utime + used.ru_stime, 4),
            "rss_bytes": peak_rss(),
            "period_s": round(median(self.gaps), 6) if self.gaps else None,
            "worst_period_s": round(self.worst, 6),
        }
        return f"# {json.dumps(cost)}\n"


def peak_rss() -> int | None:
    """Return the peak memory of this program in bytes. `getrusage` would include the process that started this program."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return int(file.read().split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def keep_off(cores: set[int]) -> set[int]:
    """Return the cores that the sampler may use: the last core if enough cores remain for the training, else all cores."""
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
