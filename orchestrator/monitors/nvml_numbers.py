"""The numbers of the monitor `nvml`, from the samples of a run: over the whole run, and over its steady state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.measure import gpu_timeline, throughput
from orchestrator.measure.gpu_timeline import Device, Timeline, Window, highest, mean, sampler_file, total
from orchestrator.measure.gpu_timeline.sampler_file import SAMPLES
from orchestrator.monitors.sampling import number_of_nodes, on_all_nodes
from orchestrator.records import Caveat, CaveatKind, Measurement

NOTABLE_THROTTLING = 0.05
# A longer pause of the sampler, or an error of a call that reads memory, becomes a warning. The peak is missing if the memory was
# unread for more than a share of the time.
LONGEST_PAUSE_S, LONGEST_SHARE = 1.0, 0.2

Cells = dict[str, Any]


def measurements(run_dir: Path) -> list[Measurement]:
    timeline = _timeline(run_dir)
    if timeline.problem:
        why = Caveat(detail=f"{SAMPLES}: {timeline.problem}")
        return [Measurement(name="device_peak_used_bytes", value=None, source=SAMPLES, missing=why)]
    devices = list(timeline.devices.values())
    window = _steady_window(run_dir, devices)
    no_peak = _why_no_peak(timeline)
    unseen = Caveat(detail=f"{SAMPLES}: {no_peak}") if no_peak else None
    steady = _steady(run_dir, devices, window) if window else dict.fromkeys(_STEADY)
    general = Caveat(detail=_UNSUPPORTED if window else _why_not_steady(run_dir))
    reasons = dict.fromkeys(steady, general)
    if steady["energy_j"] is not None:
        reasons["energy_per_real_token_j"] = Caveat(detail="no tokens without padding were counted in the steps")
    return [
        *(Measurement(name=name, value=value, source=SAMPLES) for name, value in _whole(timeline).items()),
        *(Measurement(name=name, value=None, source=SAMPLES, missing=unseen) for name in _peaks(devices) if unseen),
        *(
            Measurement(name=name, value=value, source=SAMPLES, missing=reasons[name] if value is None else None)
            for name, value in steady.items()
        ),
    ]


def devices(run_dir: Path) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    timeline = _timeline(run_dir)
    window = _steady_window(run_dir, timeline.devices.values())
    for place, device in timeline.devices.items():
        cells = {
            "gpu": device.uuid or str(place),
            "host": device.node,
            **_memory([device], timeline),
            **_contamination([device]),
        }
        rows.append(_without_none(cells | (_in_window([device], window) if window else {})))
    return rows


def warnings(run_dir: Path) -> list[Caveat]:
    """Return the caveats about the run's numbers: lost devices, unread memory, throttling, other processes on the GPUs."""
    timeline = _timeline(run_dir)
    devices = timeline.devices.values()
    window = _steady_window(run_dir, devices)
    notes = [f"GPU {device.uuid} was lost during the run: {device.lost}" for device in devices if device.lost]
    if devices and not timeline.cost:
        notes.append(f"{SAMPLES}: the sampler ended before the run, so nothing was measured after its last reading")
    if not _why_no_peak(timeline):
        notes += [f"{SAMPLES}: {pause}, so the peak may be higher" for pause, _ in _pauses(timeline)]
    slowed = _slowed(devices, window) if window else {}
    facts = [(CaveatKind.THROTTLED, f"{name} {share:.0%}") for name, share in slowed.items()]
    strangers = _contamination(devices)["contaminated"]
    facts += [(CaveatKind.CONTAMINATED, strangers)] if strangers else []
    return [*(Caveat(detail=note) for note in notes), *(Caveat(kind=kind, detail=detail) for kind, detail in facts)]


@lru_cache(maxsize=4)
def _timeline(run_dir: Path) -> Timeline:
    """Return the run's samples, of all its nodes. The samples are cached, since three functions read them."""
    nodes = number_of_nodes(run_dir)
    if nodes == 1:
        return _samples(run_dir / SAMPLES)
    files = on_all_nodes(run_dir, SAMPLES)
    if len(files) < nodes:
        return Timeline(problem=f"the GPUs of {nodes - len(files)} of {nodes} nodes were not watched")
    return sampler_file.joined({node: _samples(path) for node, path in files.items()})


def _samples(path: Path) -> Timeline:
    try:
        return sampler_file.parse(reading.read_text(path, limit=sampler_file.LARGEST_BYTES))
    except FileNotFoundError:
        return Timeline(problem="no GPU was watched")
    except (OSError, ValueError) as error:
        return Timeline(problem=reading.reason(error))


def _steady_window(run_dir: Path, devices: Iterable[Device]) -> Window | None:
    """Return the time of the steady state. Return None if it is unknown, or if a clock was set."""
    window = throughput.steady_window(run_dir)
    return window if window and all(device.is_certain(window) for device in devices) else None


def _why_not_steady(run_dir: Path) -> str:
    """Return why `_steady_window` returned None."""
    was_steady = throughput.steady_window(run_dir)
    return _CLOCK_SET if was_steady else "the run had no steady state, or its time is unknown"


_STEADY = (
    *("energy_j", "integrated_energy_j", "energy_per_real_token_j", "mean_power_w", "gpu_utilization"),
    *("sm_clock_mhz", "temperature_c", "throttled_share"),
)
_CLOCK_SET = "the host's clock was set, so it is not certain which readings belong to the steady state"
_UNSUPPORTED = (
    "NVML does not report it for every GPU of the run, it was not read all the time, "
    f"or the steady state was shorter than {gpu_timeline.SHORTEST_ENERGY_WINDOW_S:g} s"
)


def _whole(timeline: Timeline) -> Cells:
    """Return the known numbers of the whole run, and the cost of the sampler."""
    devices = list(timeline.devices.values())
    names = {"monitor_cpu_s": "cpu_s", "monitor_rss_bytes": "rss_bytes", "nvml_period_s": "period_s"}
    cost = {name: timeline.cost.get(key) for name, key in names.items()}
    return _without_none({**_memory(devices, timeline), **_contamination(devices), **cost})


def _without_none(cells: Cells) -> Cells:
    return {name: value for name, value in cells.items() if value is not None}


def _steady(run_dir: Path, devices: Sequence[Device], window: Window) -> Cells:
    """Return the numbers of the steady state. A number is None if a device does not report it."""
    cells = _in_window(devices, window)
    tokens = throughput.tokens_in(run_dir, window)
    energy = cells["energy_j"]
    cells["energy_per_real_token_j"] = energy / tokens if energy is not None and tokens else None
    if cells.get("throttle_reasons") is None:
        del cells["throttle_reasons"]  # without throttling there are no reasons, so no value is missing
    return cells


_PEAKS = ("device_peak_used_bytes", "device_mean_peak_used_bytes", "device_peak_imbalance")


def _peaks(devices: Sequence[Device]) -> Sequence[str]:
    return _PEAKS if len(devices) > 1 else _PEAKS[:1]


def _why_no_peak(timeline: Timeline) -> str | None:
    """Return why the readings of memory cannot show the run's peak, or None."""
    if timeline.problem:
        return timeline.problem
    if not timeline.cost:
        return "the sampler ended before the run, so the memory after its last reading is unknown"
    if unread := [device.uuid for device in timeline.devices.values() if device.peak() is None]:
        return f"the memory of GPU {unread[0]} was never read"
    return next(
        (f"{pause}, {share:.0%} of the time" for pause, share in _pauses(timeline) if share > LONGEST_SHARE), None
    )


def _pauses(timeline: Timeline) -> Iterator[tuple[str, float]]:
    """Yield each reason why memory was not read for some time, and the share of this time in the sampled time."""
    devices = timeline.devices.values()
    begin, until = min(device.points["memory"][0][0] for device in devices), max(device.until for device in devices)
    pause_s = timeline.cost.get("worst_period_s", 0.0)
    if pause_s > LONGEST_PAUSE_S:
        yield f"the sampler stood still for {pause_s:.3g} s", pause_s / max(pause_s, until - begin)
    for device in devices:
        errors = [error for error in device.failed if error.startswith("memory")]
        if errors and not device.lost:
            yield f"GPU {device.uuid} was not read all the time ({', '.join(errors)})", device.share_unread()


def _memory(devices: Sequence[Device], timeline: Timeline) -> Cells:
    """Return the numbers of memory of some of the run's devices, without the peaks if the readings cannot show them."""
    cells = _memory_read(devices)
    return {name: value for name, value in cells.items() if name not in _PEAKS} if _why_no_peak(timeline) else cells


def _memory_read(devices: Sequence[Device]) -> Cells:
    peak, average = highest(device.peak() for device in devices), mean(device.peak() for device in devices)
    cells: Cells = {
        "device_peak_used_bytes": peak,
        "device_baseline_bytes": highest(device.baseline() for device in devices),
        "device_residue_bytes": highest(device.residue() for device in devices),
    }
    if len(devices) > 1:
        cells |= {
            "device_mean_peak_used_bytes": average,
            "device_peak_imbalance": peak / average - 1 if peak is not None and average else None,
        }
    return cells


def _in_window(devices: Sequence[Device], window: Window) -> Cells:
    return {
        "energy_j": total(device.energy(window) for device in devices),
        "integrated_energy_j": total(device.integrated_energy(window) for device in devices),
        "mean_power_w": mean(device.mean("power", window) for device in devices),
        "gpu_utilization": mean(device.mean("utilization", window) for device in devices),
        "sm_clock_mhz": mean(device.mean("sm_clock", window) for device in devices),
        "temperature_c": highest(device.highest("temperature", window) for device in devices),
        **_throttling(devices, window),
    }


def _throttling(devices: Sequence[Device], window: Window) -> Cells:
    """Return two cells for the device that was throttled longest: the share of time, and the reasons."""
    throttled = [device.throttled(window) for device in devices]
    known = [pair for pair in throttled if pair is not None]
    if not known or len(known) < len(throttled):
        return {"throttled_share": None, "throttle_reasons": None}
    share, reasons = max(known, key=itemgetter(0))
    shares = sorted(reasons.items(), key=itemgetter(1), reverse=True)
    return {
        "throttled_share": share,
        "throttle_reasons": ", ".join(f"{name} {part:.0%}" for name, part in shares) or None,
    }


def _slowed(devices: Iterable[Device], window: Window) -> Mapping[str, float]:
    """Return a dict from each reason for throttling to a share of the window.

    It is the share of the device that was throttled longest for this reason. Small shares are left out. Power caps are left out,
    too, because they are normal.
    """
    slowed: dict[str, float] = {}
    for _, reasons in filter(None, (device.throttled(window) for device in devices)):
        for name, share in reasons.items():
            if name != gpu_timeline.POWER_CAP and share > NOTABLE_THROTTLING:
                slowed[name] = max(share, slowed.get(name, 0.0))
    return slowed


def _contamination(devices: Iterable[Device]) -> Cells:
    strangers = sorted({stranger for device in devices for stranger in device.strangers()})
    return {"contaminated": ", ".join(map(named, strangers)) or None}


_OTHERS = {"unknown": "of another container", "leaving": "that was ending"}


def named(seen: str) -> str:
    """Return the sampler's name of a process in plain words: `foreign:12:python` becomes "process 12 (python)"."""
    kind, pid, *rest = seen.split(":", 2)
    if kind in _OTHERS:
        return f"process {pid} {_OTHERS[kind]}"
    return f"process {pid} ({rest[0]})" if rest and rest[0] != "?" else f"process {pid}"
