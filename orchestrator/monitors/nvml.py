"""What is measured: each device's memory, power, energy, clocks and processes by NVML, by a light process beside the run.

How: `nvml_sampler.py` reads memory every 10 ms (TUNEBENCH_NVML_PERIOD_S sets another period) and the rest less often, from before
the run starts until its memory is given back. `timeline` reads what it wrote. Memory is over the whole run; energy, power,
clocks and throttling are over the steady state alone, by the steps' own times (`throughput.steady_window`).

What the numbers leave out: memory that is taken and given back between two readings; the host's energy. On MIG parts NVML
gives memory alone. What is missing is a dash, and its source says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator import process, throughput
from orchestrator.errors import LaunchError
from orchestrator.monitors import nvml_sampler, timeline
from orchestrator.monitors.monitor import Monitor
from orchestrator.monitors.timeline import Device, Timeline, Window, highest, mean, total
from orchestrator.records import Gpu, Measurement

SAMPLES = "samples-nvml.csv"
PERIOD_S, PERIOD_VARIABLE = 0.01, "TUNEBENCH_NVML_PERIOD_S"
NOTABLE_THROTTLING = 0.05
_FIRST_READING_S, _LAST_READINGS_S = 20.0, 0.5

Cells = dict[str, Any]


class Nvml(Monitor):
    """NVML's sampler as a sidecar; a machine without a driver, or a run without GPUs, gives dashes."""

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        return _sampling(run_dir / SAMPLES, gpus) if gpus else nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        found = _timeline(run_dir)
        if found.problem:
            return [Measurement(name="device_peak_used_bytes", value=None, source=f"{SAMPLES}: {found.problem}")]
        devices, window = list(found.devices.values()), throughput.steady_window(run_dir)
        steady = _steady(run_dir, devices, window) if window else dict.fromkeys(_STEADY)
        why = _UNSUPPORTED if window else "the run had no steady state"
        return [
            *(Measurement(name=name, value=value, source=SAMPLES) for name, value in _whole(found).items()),
            *(
                Measurement(name=name, value=value, source=SAMPLES if value is not None else why)
                for name, value in steady.items()
            ),
        ]

    def devices(self, run_dir: Path) -> list[Mapping[str, Any]]:
        window = throughput.steady_window(run_dir)
        rows: list[Mapping[str, Any]] = []
        for place, device in _timeline(run_dir).devices.items():
            cells = {"gpu": device.uuid or str(place), **_memory([device]), **_contamination([device])}
            cells |= _in_window([device], window) if window else {}
            rows.append({name: value for name, value in cells.items() if value is not None})
        return rows

    def warnings(self, run_dir: Path) -> list[str]:
        found, window = _timeline(run_dir), throughput.steady_window(run_dir)
        sentences = [
            f"GPU {one.uuid} was lost during the run: {one.lost}" for one in found.devices.values() if one.lost
        ]
        if found.devices and not found.cost:
            sentences.append(f"{SAMPLES} has no closing line: its sampler died, and saw nothing after its last reading")
        for name, share in _slowed(found.devices.values(), window).items() if window else ():
            sentences.append(f"{name} held the clocks down in {share:.0%} of the steady state")
        strangers = _contamination(found.devices.values()).get("contaminated")
        return [*sentences, *([f"others used the run's GPUs: {strangers}"] if strangers else [])]


@contextmanager
def _sampling(path: Path, gpus: Sequence[Gpu]) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            period_s = period()
            argv = [sys.executable, "-P", nvml_sampler.__file__, str(period_s), *(gpu.uuid for gpu in gpus)]
            sampler = stack.enter_context(process.sidecar(argv, path))
        except LaunchError as error:
            path.write_text(f"{error}\n", encoding="utf-8")  # the file says why it holds no sample
            yield
            return
        _wait_for_readings(path, sampler, devices=len(gpus))
        yield
        time.sleep(max(_LAST_READINGS_S, 1.5 * period_s))  # what the run gives back is seen given back


def period() -> float:
    """Seconds between two readings of memory. Raises LaunchError for a value that is none."""
    text = os.environ.get(PERIOD_VARIABLE, str(PERIOD_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.001 <= seconds <= 1:  # a sampler asleep is told to stop only when it wakes
        raise LaunchError(f"{PERIOD_VARIABLE}={text}: allowed are 0.001 to 1 seconds")
    return seconds


def _wait_for_readings(path: Path, sampler: subprocess.Popen[bytes], *, devices: int) -> None:
    """Returns when each device was read once, memory first, which is its baseline; gives up after a bounded wait."""
    deadline = time.monotonic() + _FIRST_READING_S
    while time.monotonic() < deadline and sampler.poll() is None:
        found = timeline.parse(path.read_text(encoding="utf-8", errors="replace")).devices.values()
        if len([device for device in found if device.points or device.lost]) >= devices:
            return
        time.sleep(0.05)  # before the run: it disturbs nothing


@lru_cache(maxsize=4)
def _timeline(run_dir: Path) -> Timeline:
    """The run's samples; the three readers of one run share them."""
    path = run_dir / SAMPLES
    if not path.exists():
        return Timeline(problem="no GPU was watched")
    return timeline.parse(path.read_text(encoding="utf-8", errors="replace"))


_STEADY = (
    *("energy_j", "integrated_energy_j", "energy_per_real_token_j", "mean_power_w", "gpu_utilization"),
    *("sm_clock_mhz", "temperature_c", "throttled_share"),
)
_UNSUPPORTED = (
    "NVML does not say it of every GPU of the run, "
    f"or the steady state was shorter than {timeline.SHORTEST_ENERGY_WINDOW_S:g} s"
)


def _whole(found: Timeline) -> Cells:
    """What holds for the whole run, and what watching cost; without what is not known."""
    devices = list(found.devices.values())
    cost = {
        "monitor_cpu_s": found.cost.get("cpu_s"),
        "monitor_rss_bytes": found.cost.get("rss_bytes"),
        "nvml_period_s": found.cost.get("period_s"),
    }
    cells = {**_memory(devices), **_contamination(devices), **cost}
    return {name: value for name, value in cells.items() if value is not None}


def _steady(run_dir: Path, devices: Sequence[Device], window: Window) -> Cells:
    """What holds for the steady state; None where a device does not say."""
    cells = _in_window(devices, window)
    tokens = throughput.tokens_in(run_dir, window)
    energy = cells["energy_j"]
    cells["energy_per_real_token_j"] = energy / tokens if energy is not None and tokens else None
    if cells.get("throttle_reasons") is None:
        del cells["throttle_reasons"]  # nothing held the clocks down: no dash
    return cells


def _memory(devices: Sequence[Device]) -> Cells:
    peak, average = highest(one.peak() for one in devices), mean(one.peak() for one in devices)
    cells: Cells = {
        "device_peak_used_bytes": peak,
        "device_baseline_bytes": highest(one.baseline() for one in devices),
        "device_residue_bytes": highest(one.residue() for one in devices),
    }
    if len(devices) > 1:
        cells |= {
            "device_mean_peak_used_bytes": average,
            "device_peak_imbalance": peak / average - 1 if peak is not None and average else None,
        }
    return cells


def _in_window(devices: Sequence[Device], window: Window) -> Cells:
    return {
        "energy_j": total(one.energy(window) for one in devices),
        "integrated_energy_j": total(one.integrated_energy(window) for one in devices),
        "mean_power_w": mean(one.mean("power", window) for one in devices),
        "gpu_utilization": mean(one.mean("utilization", window) for one in devices),
        "sm_clock_mhz": mean(one.mean("sm_clock", window) for one in devices),
        "temperature_c": highest(one.highest("temperature", window) for one in devices),
        **_throttling(devices, window),
    }


def _throttling(devices: Sequence[Device], window: Window) -> Cells:
    """That of the device that was held down longest."""
    found = [one.throttled(window) for one in devices]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(found):
        return {"throttled_share": None, "throttle_reasons": None}
    share, reasons = max(known, key=lambda one: one[0])
    said = ", ".join(f"{name} {part:.0%}" for name, part in sorted(reasons.items(), key=lambda one: -one[1]))
    return {"throttled_share": share, "throttle_reasons": said or None}


def _slowed(devices: Iterable[Device], window: Window) -> Mapping[str, float]:
    """Reason → longest share of a window, of those that say that something is wrong; a power cap is daily life."""
    slowed: dict[str, float] = {}
    for _, reasons in filter(None, (one.throttled(window) for one in devices)):
        for name, share in reasons.items():
            if name != timeline.POWER_CAP and share > NOTABLE_THROTTLING:
                slowed[name] = max(share, slowed.get(name, 0.0))
    return slowed


def _contamination(devices: Iterable[Device]) -> Cells:
    strangers = sorted({stranger for one in devices for stranger in one.strangers()})
    return {"contaminated": ", ".join(map(named, strangers)) or None}


_OTHERS = {"unknown": "of another container", "leaving": "that was ending"}


def named(seen: str) -> str:
    """A process as the sampler writes it, in words: `foreign:12:python` → "process 12 (python)"."""
    kind, pid, *rest = seen.split(":", 2)
    if kind in _OTHERS:
        return f"process {pid} {_OTHERS[kind]}"
    return f"process {pid} ({rest[0]})" if rest and rest[0] != "?" else f"process {pid}"
