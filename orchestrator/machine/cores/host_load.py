"""The load of this machine during a run: the load average per core, stolen core time, and how long processes waited for a core.

The system's own counters are read before and after the run. They do not show who caused the load: the run's own processes add
to it. The wait for a core is read while the processes run, since the kernel forgets the wait when they end. The instrument
reads it inside its own process. For a program without the instrument, `CoreWait` reads it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from orchestrator.records import Measurement

_SOURCE = "the host's counters"
# The pauses between looks become longer with time, so that the last look at a short run is close to its end.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S, _PAUSE_SHARE = 0.25, 15.0, 0.25
_SHORTEST_TIME_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreTime:
    """Core seconds since the machine started: the total, and the part that a hypervisor gave to other guests."""

    total_s: float
    steal_s: float


def core_time() -> CoreTime | None:
    """Return the core time up to now, or None if the kernel's file cannot be read."""
    try:
        times = psutil.cpu_times()
    except (OSError, ValueError, TypeError, psutil.Error):  # psutil raises TypeError for an empty file
        return None
    # the times `guest…` are already counted in `user` and `nice`
    parts = (value for name, value in times._asdict().items() if not name.startswith("guest"))
    return CoreTime(total_s=sum(parts), steal_s=getattr(times, "steal", 0.0))


def measurements(before: CoreTime | None) -> Iterator[Measurement]:
    """Yield what is known: the load average per core now, and the share of core time that was stolen since `before`."""
    with suppress(OSError):
        load, _, _ = os.getloadavg()
        yield Measurement(name="load_per_core", value=load / (os.cpu_count() or 1), source=_SOURCE)
    now = core_time()
    if before is None or now is None:
        return
    passed_s = now.total_s - before.total_s
    if passed_s > 0:
        yield Measurement(name="steal_share", value=(now.steal_s - before.steal_s) / passed_s, source=_SOURCE)


def core_wait(share: float | None) -> Iterator[Measurement]:
    """Yield the share of time for which a process of the run waited for a core. Yield nothing if `share` is None."""
    if share is not None:
        yield Measurement(name="core_wait_share", value=share, source="the kernel's schedstat, read during the run")


def look_pause_s(passed_s: float) -> float:
    """Return the seconds until the next look at the cores, for a run that started `passed_s` seconds ago."""
    return min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, passed_s * _PAUSE_SHARE))


class CoreWait:
    """The time for which threads of the run's processes were ready to run, but had no core. Only Linux counts this time."""

    def __init__(self) -> None:
        self._processes: dict[int, _Waits] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Read the kernel's counters of these processes."""
        for pid in pids:
            threads = dict(_waits_s(pid))
            if pid in self._processes:
                self._processes[pid].update(threads)
            elif threads:
                self._processes[pid] = _Waits(first=threads, last=dict(threads))

    @property
    def share(self) -> float | None:
        """The longest wait of a process, as a share of the time in which this process was seen.

        None if every process was seen for less than a second. A process counts only if it was seen for at least half as long as the
        process that was seen longest.
        """
        longest_s = max((waits.seen_s for waits in self._processes.values()), default=0.0)
        if longest_s < _SHORTEST_TIME_S:
            return None
        return max(waits.share for waits in self._processes.values() if waits.seen_s >= longest_s / 2)


@dataclass(kw_only=True, slots=True)
class _Waits:
    """The seconds for which each thread of a process had waited, at the first look and at the last look.

    A thread that has ended keeps its last value.
    """

    first: dict[int, float]
    last: dict[int, float]
    began: float = field(default_factory=time.monotonic)
    seen_s: float = 0.0

    def update(self, threads: dict[int, float]) -> None:
        if threads:
            self.last |= threads
            self.seen_s = time.monotonic() - self.began

    @property
    def share(self) -> float:
        waited_s = sum(wait - self.first.get(thread, 0.0) for thread, wait in self.last.items())
        return max(0.0, waited_s) / self.seen_s


def _waits_s(pid: int) -> Iterator[tuple[int, float]]:
    """Yield a pair for each thread of a process: its id, and the seconds for which it has waited for a core."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return  # the process has ended
    for thread in threads:
        with suppress(OSError, ValueError, IndexError):  # the thread has ended
            text = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text(encoding="ascii")
            yield int(thread), int(text.split()[1]) / 1e9
