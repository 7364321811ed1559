"""A cluster as its site file describes it: partition, limits, and the GPUs of a node.

`plan.config.site_file` reads and checks the file. A site is not a part of the benchmark: nothing of it enters an experiment's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.records.price import Price

MAX_QUEUED = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A Slurm cluster as its site file describes it. A value of None leaves the choice to the cluster.

    `file` is the place of the site file, for messages, and `places` maps each key in it to its place. `time_s` is the time limit
    of one allocation. `lines` are further options of sbatch (`--exclusive`). `prologue` has shell lines that a job runs first.
    `node` is the machine of one node (`4xH100`).
    `throttle` is the number of elements of an array that run at once, and `max_queued` the number of elements that are in the
    queue at once. `pilot` is the number of runs in one allocation. `max_pending_s` limits the time that a job waits for a reason
    that does not go away by itself. `price` is the price of the time of a GPU or a node. `poll_s` is the time between two
    calls of squeue. A run whose job left the queue counts as lost after `grace_s`: a file server may show its record late.
    """

    file: str | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    time_s: float | None = None
    lines: tuple[str, ...] = ()
    prologue: str = ""
    node: str | None = None
    gpu_type: str | None = None
    cpus_per_gpu: int | None = None
    mem_per_gpu: str | None = None
    scratch: str | None = None
    throttle: int | None = None
    max_queued: int = MAX_QUEUED
    pilot: int | None = None
    max_pending_s: float | None = None
    price: Price | None = None
    poll_s: float = 30.0
    grace_s: float = 60.0
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
