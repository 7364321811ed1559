"""What an NVML sampler wrote, as values over time: peaks, energy and throttling of each device in a window. Pure.

A value holds from its line until the next line of the same device and kind, the last one for as long as the sampler would
have left it unsaid. Windows are pairs of seconds since the epoch. A quantity that a device does not support, that a window is
too short for, or that ends before the window does, is None.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any

from orchestrator.files.reading import MIB

Window = tuple[float, float]
Points = Sequence[tuple[float, float]]

SAMPLES, HEADER = "samples-nvml.csv", "time,gpu,what,value"
LARGEST_BYTES = 256 * MIB
"""Of a file of samples that is read: half a day on eight GPUs, which takes 3 GB of memory to read."""

SHORTEST_ENERGY_WINDOW_S = 2.0
"""The counter moves ten times a second and is read twice: over less, its steps are too large a share."""

_HOLDS_S = 1.25
"""The sampler repeats itself once a second: a line says nothing of what came later than that, and a little."""

_EDGE_S = 0.5
"""How much of a window may be unknown, if it is more than a twentieth."""

POWER_CAP = "power cap"
REASONS: Mapping[int, str] = {
    0x4: POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
"""Clock-event bits that hold clocks down. Idle (0x1) and clocks set by the user are none."""


_TEXTS = ("uuid", "processes", "lost")


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One GPU's values over time, by kind, and the processes that were seen on it: at the first reading, and ever.

    `to_the_end`: the sampler was not killed, so that the last reading is one of after the run.
    """

    uuid: str | None = None
    points: Mapping[str, Points] = field(default_factory=dict)
    processes_before: frozenset[str] = frozenset()
    processes: frozenset[str] = frozenset()
    lost: str | None = None
    to_the_end: bool = True

    def strangers(self) -> tuple[str, ...]:
        """Processes that were none of the run's: those of this machine, and any that was there before the run."""
        before = {one for one in self.processes_before if not one.startswith("own:")}
        return tuple(sorted({one for one in self.processes if one.startswith("foreign:")} | before))

    def baseline(self) -> float | None:
        """Memory in use at the first reading, which is taken before the run starts."""
        memory = self.points.get("memory", ())
        return memory[0][1] if memory else None

    def residue(self) -> float | None:
        """Memory in use at the last reading above that at the first; None where the last one came too soon."""
        memory = self.points.get("memory", ()) if self.to_the_end and self.lost is None else ()
        return max(0.0, memory[-1][1] - memory[0][1]) if memory else None

    def peak(self) -> float | None:
        """Highest memory in use, ever."""
        return max((value for _, value in self.points.get("memory", ())), default=None)

    def highest(self, what: str, window: Window) -> float | None:
        """The highest of a kind's values that held inside a window."""
        spans = self._covering(what, window)
        return max((value for _, _, value in spans), default=None)

    def held(self, what: str, window: Window | None = None) -> Iterator[tuple[float, float, float]]:
        """(from, until, value) of each value that held inside a window."""
        points = self.points.get(what, ())
        if not points:
            return
        begin, end = window or (points[0][0], points[-1][0])
        edges = [*points, (math.inf, 0.0)]
        for (start, value), (behind, _) in pairwise(edges):
            until = min(behind, start + _HOLDS_S)
            if until > begin and start <= end:
                yield max(start, begin), min(until, end), value

    def _covering(self, what: str, window: Window | None) -> list[tuple[float, float, float]]:
        """The values that held inside a window; none where too much of the window has none."""
        spans = list(self.held(what, window))
        if window is None:
            return spans
        length = window[1] - window[0]
        unknown = length - sum(until - start for start, until, _ in spans)
        return spans if unknown <= max(_EDGE_S, length / 20) else []

    def mean(self, what: str, window: Window | None) -> float | None:
        """A value's mean over time."""
        spans = self._covering(what, window)
        total = sum(until - start for start, until, _ in spans)
        return sum((until - start) * value for start, until, value in spans) / total if total > 0 else None

    def energy(self, window: Window) -> float | None:
        """Joules by the device's counter, interpolated between its readings; None where it began anew in between."""
        points = self.points.get("energy", ())
        if window[1] - window[0] < SHORTEST_ENERGY_WINDOW_S or not points:
            return None
        start, end = (_at(points, moment) for moment in window)
        if start is None or end is None:
            return None
        readings = [start, *(value for moment, value in points if window[0] < moment < window[1]), end]
        return end - start if readings == sorted(readings) else None

    def integrated_energy(self, window: Window) -> float | None:
        """Joules by adding up power over time."""
        power, length = self.mean("power", window), window[1] - window[0]
        return None if power is None or length < SHORTEST_ENERGY_WINDOW_S else power * length

    def throttled(self, window: Window) -> tuple[float, dict[str, float]] | None:
        """The share of a window in which any reason held the clocks down, and the share of each."""
        spans = self._covering("reasons", window)
        total = sum(until - start for start, until, _ in spans)
        if total <= 0:
            return None
        shares = {
            name: sum(until - start for start, until, bits in spans if int(bits) & bit) / total
            for bit, name in REASONS.items()
        }
        mask = sum(REASONS)
        share = sum(until - start for start, until, bits in spans if int(bits) & mask) / total
        return share, {name: part for name, part in shares.items() if part > 0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """All devices of a run by their place, the sampler's own cost, and why there is nothing where there is nothing."""

    devices: Mapping[int, Device] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def parse(text: str) -> Timeline:
    """The samples of a run. A last line that was cut off, and lines that are none, are left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return Timeline(problem="the sampler wrote nothing")
    if HEADER not in lines:  # its last word is why; a library's warnings may come before it
        return Timeline(problem=lines[-1][:200])
    if not text.endswith("\n"):
        lines = lines[:-1]
    by_place: dict[int, dict[str, list[tuple[float, str]]]] = {}
    for place, what, moment, value in _readings(lines):
        by_place.setdefault(place, {}).setdefault(what, []).append((moment, value))
    cost = _cost(lines)
    devices = {place: _device(found, to_the_end=bool(cost)) for place, found in sorted(by_place.items())}
    nothing = not any(device.points for device in devices.values())
    return Timeline(devices=devices, cost=cost, problem="it holds no reading" if nothing else None)


def _device(found: Mapping[str, Sequence[tuple[float, str]]], *, to_the_end: bool) -> Device:
    lists = [frozenset(value.split()) for _, value in found.get("processes", ())]
    texts = {what: found[what][-1][1] for what in ("uuid", "lost") if what in found}
    return Device(
        uuid=texts.get("uuid"),
        points={
            what: sorted(((moment, float(value)) for moment, value in points), key=itemgetter(0))  # clocks are set back
            for what, points in found.items()
            if what not in _TEXTS
        },
        processes_before=lists[0] if lists else frozenset(),
        processes=frozenset().union(*lists),
        lost=texts.get("lost"),
        to_the_end=to_the_end,
    )


def _readings(lines: Iterable[str]) -> Iterator[tuple[int, str, float, str]]:
    for line in lines:
        try:
            moment, place, what, value = line.split(",", 3)
            finite = math.isfinite(float(moment)) and (what in _TEXTS or math.isfinite(float(value)))
            reading = int(place), what, float(moment), value
        except ValueError:
            continue
        if finite:
            yield reading


def _cost(lines: Sequence[str]) -> dict[str, Any]:
    said = next((line for line in reversed(lines) if line.startswith("# {")), "# {}")
    try:
        found = json.loads(said[2:])
        return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}


def _at(points: Points, moment: float) -> float | None:
    """A counter's value at a moment between two readings; None outside of them, but for half a second."""
    after = bisect_right(points, moment, key=lambda point: point[0])
    if after == 0:
        return points[0][1] if points[0][0] - moment <= _EDGE_S else None
    if after == len(points):
        return points[-1][1] if moment - points[-1][0] <= _EDGE_S else None
    (t0, v0), (t1, v1) = points[after - 1], points[after]
    return v0 + (v1 - v0) * (moment - t0) / (t1 - t0)


def mean(values: Iterable[float | None]) -> float | None:
    """Over devices; None where one of them has none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) / len(known) if known and len(known) == len(found) else None


def highest(values: Iterable[float | None]) -> float | None:
    """Over devices; None where one of them has none, since it may be the highest."""
    found = list(values)
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def total(values: Iterable[float | None]) -> float | None:
    """Over devices; None where one of them has none."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if known and len(known) == len(found) else None
