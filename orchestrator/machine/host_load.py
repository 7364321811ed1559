"""The load of this machine during a run: the load average per core, and the time that a hypervisor gave to other guests.

The system's own counters are read before and after the run. The numbers do not show who caused the load. The run's own processes
are part of the load.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from orchestrator.records import Measurement

_SOURCE = "the host's counters"


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreTime:
    """Core seconds since the machine started: the total, and the part that a hypervisor gave to other guests."""

    total_s: float
    steal_s: float


def core_time() -> CoreTime:
    """Return the core time up to now."""
    times = psutil.cpu_times()
    # guest times are part of user and nice
    parts = (value for name, value in times._asdict().items() if not name.startswith("guest"))
    return CoreTime(total_s=sum(parts), steal_s=getattr(times, "steal", 0.0))


def measurements(before: CoreTime) -> Iterator[Measurement]:
    """Yield the load average per core now, and the share of stolen core time since `before`."""
    load, _, _ = os.getloadavg()
    yield Measurement(name="load_per_core", value=load / (os.cpu_count() or 1), source=_SOURCE)
    now = core_time()
    passed_s = now.total_s - before.total_s
    if passed_s > 0:
        yield Measurement(name="steal_share", value=(now.steal_s - before.steal_s) / passed_s, source=_SOURCE)
