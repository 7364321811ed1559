"""The values of an NVML sampler over time: peaks, energy and throttling of each device in a window. Pure.

`sampler_file` reads the values. A value is valid from its line until the next line of the same device and kind. The sampler
repeats an unchanged value after one second; a value without a repetition ends soon after this time. Windows are pairs of seconds
since the epoch. A quantity is None if the device does not support it, if the window is too short for it, or if its readings do not
cover the window.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Window = tuple[float, float]
Points = Sequence[tuple[float, float]]

# The energy counter changes only every 0.1 s and is read twice. In a window shorter than this, the error of the two readings is too
# large.
SHORTEST_ENERGY_WINDOW_S = 2.0
# The sampler repeats each value after one second at the latest. A line is valid for that time and a little longer.
_HOLDS_S = 1.25
# An unchanged value is repeated after one second, and the longest period is one second.
LONGEST_REPEAT_S = 2.5
# This many seconds of a window may be unknown. In a long window, a twentieth of the window may be unknown.
_EDGE_S = 0.5

POWER_CAP = "power cap"
# NVML's bits for events that limit the clocks. The bits for an idle GPU (0x1) and for clocks that the user set are left out.
REASONS: Mapping[int, str] = {
    0x4: POWER_CAP,
    0x8: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """The values of one GPU over time, by kind, and the processes on this GPU.

    `first_memory` and `last_memory` are the time and the memory of the first and the last line. They are not the ends of `points`,
    which are sorted, if the clock went back. `processes_before` are the processes at the first reading, `processes` are all
    processes that were seen. `to_the_end` is false if the sampler was killed. If `to_the_end` is true, the sampler's last reading
    was taken after the run. `until` is the latest time of any line of the sampler. `failed` has the errors of the values that
    could not be read. `node` is the name of the GPU's node, if the run has several nodes. `stretches` are the windows in which the
    clock was not set, in the order in which it passed them.
    """

    uuid: str | None = None
    points: Mapping[str, Points] = field(default_factory=dict)
    first_memory: tuple[float, float] | None = None
    last_memory: tuple[float, float] | None = None
    processes_before: frozenset[str] = frozenset()
    processes: frozenset[str] = frozenset()
    lost: str | None = None
    failed: frozenset[str] = frozenset()
    to_the_end: bool = True
    until: float = -math.inf
    node: str | None = None
    stretches: tuple[Window, ...] = ()

    def strangers(self) -> tuple[str, ...]:
        """Return the processes that did not belong to the run, including any that used the GPU before the run."""
        before = {process for process in self.processes_before if not process.startswith("own:")}
        return tuple(sorted({process for process in self.processes if process.startswith("foreign:")} | before))

    def baseline(self) -> float | None:
        """Return the memory in use at the first reading, which is taken before the run starts."""
        return self.first_memory[1] if self.first_memory else None

    def residue(self) -> float | None:
        """Return how much more memory the last reading shows than the first reading; None without a reading after the run."""
        if not (self.first_memory and self.last_memory) or not self.to_the_end or self.lost is not None:
            return None
        is_read_after = self.until - self.last_memory[0] <= LONGEST_REPEAT_S
        return max(0.0, self.last_memory[1] - self.first_memory[1]) if is_read_after else None

    def is_certain(self, window: Window) -> bool:
        """Return whether the clock tells which readings belong to a window.

        It does not if the clock was set before the window's end: the times of steps may still be those of the clock before.
        """
        moved = sum(
            abs(new[0] - old[1])
            for old, new in pairwise(self.stretches)
            if old[0] <= window[1] and new[0] <= window[1] and new[1] >= window[0]
        )
        return moved <= _may_be_unknown(window)

    def peak(self) -> float | None:
        """Return the highest memory in use at any reading."""
        return max((value for _, value in self.points.get("memory", ())), default=None)

    def share_unread(self) -> float:
        """Return the longest time between two readings of memory, as a share of the sampled time.

        The sampler's last line counts as a reading. A time in which the sampler may have repeated an unchanged value counts as 0.
        """
        moments = [moment for moment, _ in self.points.get("memory", ())] + [self.until]
        longest = max((after - before for before, after in pairwise(moments)), default=0.0)
        return longest / (moments[-1] - moments[0]) if longest > LONGEST_REPEAT_S else 0.0

    def highest(self, what: str, window: Window) -> float | None:
        """Return the highest value of a kind inside a window."""
        return max((value for _, _, value in self._covering(what, window)), default=None)

    def held(self, what: str, window: Window | None = None) -> Iterator[tuple[float, float, float]]:
        """Yield (from, until, value) for each value that was valid inside a window."""
        points = self.points.get(what, ())
        if not points:
            return
        begin, end = window or (points[0][0], points[-1][0])
        for (start, value), (following, _) in pairwise([*points, (math.inf, 0.0)]):
            until = min(following, start + _HOLDS_S)
            if until > begin and start <= end:
                yield max(start, begin), min(until, end), value

    def _covering(self, what: str, window: Window | None) -> list[tuple[float, float, float]]:
        """Return the values that were valid inside a window, or an empty list if too much of the window has no value."""
        spans = list(self.held(what, window))
        if window is None:
            return spans
        unknown = window[1] - window[0] - sum(until - start for start, until, _ in spans)
        return spans if unknown <= _may_be_unknown(window) else []

    def mean(self, what: str, window: Window | None) -> float | None:
        """Return the mean of the values of a kind, each weighted by its time."""
        spans = self._covering(what, window)
        total = sum(until - start for start, until, _ in spans)
        return sum((until - start) * value for start, until, value in spans) / total if total > 0 else None

    def energy(self, window: Window) -> float | None:
        """Return the joules in a window, interpolated between readings of the counter; None if the counter was reset."""
        points = self.points.get("energy", ())
        if window[1] - window[0] < SHORTEST_ENERGY_WINDOW_S or not points:
            return None
        start, end = (_at(points, moment) for moment in window)
        if start is None or end is None:
            return None
        readings = [start, *(value for moment, value in points if window[0] < moment < window[1]), end]
        return end - start if readings == sorted(readings) else None

    def integrated_energy(self, window: Window) -> float | None:
        """Return the joules in a window as the sum of power over time."""
        power, length = self.mean("power", window), window[1] - window[0]
        return None if power is None or length < SHORTEST_ENERGY_WINDOW_S else power * length

    def throttled(self, window: Window) -> tuple[float, dict[str, float]] | None:
        """Return two values: the share of a window in which any reason limited the clocks, and the share of each reason."""
        spans = self._covering("reasons", window)
        length = sum(until - start for start, until, _ in spans)
        if length <= 0:
            return None

        def share(mask: int) -> float:
            return sum(until - start for start, until, bits in spans if int(bits) & mask) / length

        shares = {name: share(bit) for bit, name in REASONS.items()}
        return share(sum(REASONS)), {name: part for name, part in shares.items() if part > 0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """All devices of a run by their number in the samples, and the sampler's own cost. `problem` says why there are no values."""

    devices: Mapping[int, Device] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None


def _may_be_unknown(window: Window) -> float:
    return max(_EDGE_S, (window[1] - window[0]) / 20)


def _at(points: Points, moment: float) -> float | None:
    """Return a counter's interpolated value at a moment. Return None if the readings begin or end too far from it.

    Between two readings that are far apart, the counter may have grown at different rates.
    """
    after = bisect_right(points, moment, key=lambda point: point[0])
    if after == 0:
        return points[0][1] if points[0][0] - moment <= _EDGE_S else None
    if after == len(points):
        return points[-1][1] if moment - points[-1][0] <= _EDGE_S else None
    (t0, v0), (t1, v1) = points[after - 1], points[after]
    if t1 - t0 > _HOLDS_S + _EDGE_S:
        return None
    return v0 + (v1 - v0) * (moment - t0) / (t1 - t0)


def _all_known(values: Iterable[float | None]) -> list[float]:
    """Return the values of all devices, or an empty list if a value is missing: the missing value may be the highest."""
    every = list(values)
    known = [value for value in every if value is not None]
    return known if len(known) == len(every) else []


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean over devices, or None if a device has no value."""
    known = _all_known(values)
    return sum(known) / len(known) if known else None


def highest(values: Iterable[float | None]) -> float | None:
    """Return the highest value of any device, or None if a device has no value."""
    return max(_all_known(values), default=None)


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum over devices, or None if a device has no value."""
    known = _all_known(values)
    return sum(known) if known else None
