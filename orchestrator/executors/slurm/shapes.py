"""Shapes of allocations, and how runs are put into allocations. Pure.

Runs of one shape ask Slurm for the same resources, so they are submitted as elements of one array. An element is one allocation. It
has one run or, as a pilot job, several short runs, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.executors.slurm.site import Site
from orchestrator.records import Device, Experiment, Job

# Runs that are shorter than this share an allocation, if earlier runs show it.
SHORT_S = 120.0
# Short runs are put into one allocation until it is expected to take this time.
_PILOT_S = 600.0
# Time that an allocation needs besides its runs' time limits: for the start of Python, and for the end of a run and its record.
_SPARE_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The resources of one allocation: the device, the number of processes in all, and the number of nodes."""

    device: Device
    num_gpus: int
    num_nodes: int = 1

    @property
    def per_node(self) -> int:
        """The number of processes on each node."""
        return self.num_gpus // self.num_nodes

    def __str__(self) -> str:
        gpus = f"{self.num_gpus} {'GPU' if self.device is Device.CUDA else 'CPU process'}"
        many = ("s" if self.device is Device.CUDA else "es") if self.num_gpus > 1 else ""
        return f"{gpus}{many}" + (f" on {self.num_nodes} nodes" if self.num_nodes > 1 else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A due run, its shape, its time limit in seconds (None: unlimited) and its expected seconds (None: unknown)."""

    job: Job
    shape: Shape
    limit_s: float | None = None
    expected_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Element:
    """The runs of one allocation in their order. `time_s` is its time limit; None leaves the limit to the partition."""

    work: tuple[Work, ...]
    time_s: float | None


def shape_of(experiment: Experiment) -> Shape:
    return Shape(device=experiment.device, num_gpus=experiment.num_gpus, num_nodes=experiment.num_nodes)


def work_of(job: Job, experiment: Experiment, took_s: Iterable[float]) -> Work:
    """Return a due run of the experiment. `took_s` are the seconds that its earlier runs took."""
    expected_s = max(took_s, default=None)
    return Work(job=job, shape=shape_of(experiment), limit_s=experiment.timeout_s, expected_s=expected_s)


def common_limit(elements: Iterable[Element]) -> float | None:
    """Return the time limit of an array with these elements. None leaves the limit to the partition."""
    times = [element.time_s for element in elements]
    return None if None in times else max(filter(None, times), default=None)


def elements(works: Iterable[Work], site: Site) -> dict[Shape, list[Element]]:
    """Return the elements of each shape. Runs keep their order."""
    by_shape: dict[Shape, list[Work]] = {}
    for work in works:
        by_shape.setdefault(work.shape, []).append(work)
    return {
        shape: [Element(work=packed, time_s=_time_limit(packed, site)) for packed in _packed(same, site)]
        for shape, same in by_shape.items()
    }


def _packed(works: Sequence[Work], site: Site) -> Iterator[tuple[Work, ...]]:
    """Yield the runs of each element. Without a fixed number (`pilot:`), only runs that are known to be short share an element."""
    together: list[Work] = []
    for work in works:
        if together and not _has_room(together, work, site):
            yield tuple(together)
            together = []
        together.append(work)
    if together:
        yield tuple(together)


def _has_room(together: Sequence[Work], work: Work, site: Site) -> bool:
    limits = [one.limit_s for one in (*together, work)]
    if site.time_s is not None and all(limits) and _with_spare(limits) > site.time_s:
        return False
    if site.pilot is not None:
        return len(together) < site.pilot
    times = [one.expected_s for one in (*together, work)]
    return all(time is not None and time < SHORT_S for time in times) and sum(filter(None, times)) <= _PILOT_S


def _time_limit(packed: Sequence[Work], site: Site) -> float | None:
    """Return the site's `time:`, or else the sum of the runs' time limits; None if a run has no limit."""
    if site.time_s is not None:
        return site.time_s
    limits = [work.limit_s for work in packed]
    return _with_spare(limits) if all(limits) else None


def _with_spare(limits: Sequence[float | None]) -> float:
    return sum(limit + _SPARE_S for limit in limits if limit is not None) + _SPARE_S
