"""The numbers of what NVML's sampler wrote, over the whole run and over its steady state: what `nvml` says of a run.

Apart from the monitor itself, which a plan names and needs no numbers of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.measure import gpu_timeline, throughput
from orchestrator.measure.gpu_timeline import SAMPLES, Device, Timeline, Window, highest, mean, total
from orchestrator.records import Caveat, CaveatKind, Measurement

NOTABLE_THROTTLING = 0.05

Cells = dict[str, Any]


def measurements(run_dir: Path) -> list[Measurement]:
    found = _timeline(run_dir)
    if found.problem:
        why = Caveat(detail=f"{SAMPLES}: {found.problem}")
        return [Measurement(name="device_peak_used_bytes", value=None, source=SAMPLES, missing=why)]
    devices, window = list(found.devices.values()), throughput.steady_window(run_dir)
    steady = _steady(run_dir, devices, window) if window else dict.fromkeys(_STEADY)
    why = Caveat(detail=_UNSUPPORTED if window else "the run had no steady state")
    return [
        *(Measurement(name=name, value=value, source=SAMPLES) for name, value in _whole(found).items()),
        *(
            Measurement(name=name, value=value, source=SAMPLES, missing=why if value is None else None)
            for name, value in steady.items()
        ),
    ]


def devices(run_dir: Path) -> list[Mapping[str, Any]]:
    window = throughput.steady_window(run_dir)
    rows: list[Mapping[str, Any]] = []
    for place, device in _timeline(run_dir).devices.items():
        cells = {"gpu": device.uuid or str(place), **_memory([device]), **_contamination([device])}
        cells |= _in_window([device], window) if window else {}
        rows.append({name: value for name, value in cells.items() if value is not None})
    return rows


def warnings(run_dir: Path) -> list[Caveat]:
    """Return what NVML saw that speaks against the run's numbers."""
    found, window = _timeline(run_dir), throughput.steady_window(run_dir)
    devices = found.devices.values()
    notes = [f"GPU {device.uuid} was lost during the run: {device.lost}" for device in devices if device.lost]
    if devices and not found.cost:
        notes.append(f"{SAMPLES} has no closing line: its sampler died, and saw nothing after its last reading")
    slowed = _slowed(devices, window) if window else {}
    facts = [(CaveatKind.THROTTLED, f"{name} {share:.0%}") for name, share in slowed.items()]
    strangers = _contamination(devices)["contaminated"]
    facts += [(CaveatKind.CONTAMINATED, strangers)] if strangers else []
    return [*(Caveat(detail=note) for note in notes), *(Caveat(kind=kind, detail=detail) for kind, detail in facts)]


@lru_cache(maxsize=4)
def _timeline(run_dir: Path) -> Timeline:
    """The run's samples; the three readers of one run share them."""
    try:
        return gpu_timeline.parse(reading.read_text(run_dir / SAMPLES, limit=gpu_timeline.LARGEST_BYTES))
    except FileNotFoundError:
        return Timeline(problem="no GPU was watched")
    except (OSError, ValueError) as error:
        return Timeline(problem=reading.reason(error))


_STEADY = (
    *("energy_j", "integrated_energy_j", "energy_per_real_token_j", "mean_power_w", "gpu_utilization"),
    *("sm_clock_mhz", "temperature_c", "throttled_share"),
)
_UNSUPPORTED = (
    "NVML does not say it of every GPU of the run, "
    f"or the steady state was shorter than {gpu_timeline.SHORTEST_ENERGY_WINDOW_S:g} s"
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
            if name != gpu_timeline.POWER_CAP and share > NOTABLE_THROTTLING:
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
