"""Give GPUs and cores to concurrent runs, and choose the next run. This module starts nothing.

A GPU belongs to one run at a time. The run also gets an equal share of the physical cores of the GPU's NUMA node. So concurrent
runs share as few caches and memory channels as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.records import Gpu, Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """The GPUs and cores of one run. If `cores` is empty, the run uses all cores. `place` is its position in the pool."""

    gpus: tuple[Gpu, ...] = ()
    cores: tuple[int, ...] = ()
    place: int = 0


class Pool:
    """The free GPUs and places. `gpus` are assigned in order, the idlest first. `places` limits the number of concurrent runs.

    `cores_of` maps a GPU's UUID to its cores; `cores_of_place` has the cores of each place, for runs without a GPU.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        places: int,
        cores_of: Mapping[str, Sequence[int]] | None = None,
        cores_of_place: Sequence[Sequence[int]] = (),
    ) -> None:
        self.gpus, self.free = tuple(gpus), list(gpus)
        self.places = list(range(places))
        self.cores_of = dict(cores_of or {})
        self.cores_of_place = tuple(cores_of_place)

    def could_ever(self, num_gpus: int) -> bool:
        return num_gpus <= len(self.gpus)

    def take(self, num_gpus: int) -> Share | None:
        """Return a share with this number of neighbouring GPUs, or None if too few GPUs or places are free."""
        if not self.places or len(self.free) < num_gpus:
            return None
        place = self.places.pop(0)
        taken = _close_together(self.free, num_gpus)
        self.free = [gpu for gpu in self.free if gpu not in taken]
        cores = [core for gpu in taken for core in self.cores_of.get(gpu.uuid, ())]
        if not taken and self.cores_of_place:
            cores = list(self.cores_of_place[place])
        return Share(gpus=taken, cores=tuple(sorted(set(cores))), place=place)

    def give_back(self, share: Share) -> None:
        self.places = sorted([*self.places, share.place])
        self.free = [gpu for gpu in self.gpus if gpu in self.free or gpu in share.gpus]


def _close_together(free: Sequence[Gpu], count: int) -> tuple[Gpu, ...]:
    """Return the first GPU if `count` is 1, else `count` GPUs with close numbers, because such GPUs share links and a NUMA node."""
    if count <= 1:
        return tuple(free[:count])
    ordered = sorted(free, key=lambda gpu: gpu.index)
    windows = [tuple(ordered[start : start + count]) for start in range(len(ordered) - count + 1)]
    return min(windows, key=lambda window: window[-1].index - window[0].index)


@dataclass(kw_only=True, slots=True)
class Queue:
    """The waiting jobs, each with the number of GPUs that it needs.

    A round contains the jobs of one repeat. The largest jobs of a round start first. While a larger job waits, at most `patience`
    smaller jobs may start before it.
    """

    waiting: list[tuple[Job, int]]
    patience: int
    passed: int = field(default=0, init=False)

    def take(self, pool: Pool) -> tuple[Job, Share | None] | None:
        """Return the next job and its share. Return None if no job fits now. A job that can never fit gets no share."""
        for number, entry in enumerate(self._by_size()):
            job, num_gpus = entry
            if not pool.could_ever(num_gpus):
                self.waiting.remove(entry)
                return job, None
            share = pool.take(num_gpus)
            if share is None:
                if self.passed >= self.patience:
                    return None  # no further job may start before the waiting job
                continue
            self.passed = self.passed + 1 if number else 0
            self.waiting.remove(entry)
            return job, share
        return None

    def _by_size(self) -> list[tuple[Job, int]]:
        """Return the waiting jobs, the largest of each round first. Rounds keep their order, so repeats stay interleaved."""
        return sorted(self.waiting, key=lambda entry: (entry[0].repeat, -entry[1]))
