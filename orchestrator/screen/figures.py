"""The values of a screen: its figures, the GPUs and links, what is off; and the names and units of the figures. Pure.

Rates are in FLOP/s, bytes per second and loops per second, and times are in seconds. A missing figure has a reason and no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median

# The version of a stored screen.
SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """The name of a figure for people, its unit, and its direction. A shown value is the value divided by `scale`.

    `least_share` is the smallest difference that means something. `between` has the smallest and the largest value that a machine
    can have: those of `measure.metrics.limits`, and for a thread one loop per cycle.
    """

    label: str
    unit: str = "GB/s"
    scale: float = 1e9
    smaller_is_better: bool = False
    least_share: float = 0.03
    between: tuple[float, float] = (1.0, 1e15)


# Between two screens of the same idle machine, figures in which the host's time counts differed by up to 12 %.
_of_host = partial(Kind, least_share=0.15)


OF_A_GPU: Mapping[str, Kind] = {
    "matmul_flops_per_s": Kind(label="bf16 matmul", unit="TFLOP/s", scale=1e12, between=(1.0, 1e17)),
    "hbm_bytes_per_s": Kind(label="HBM copy"),
    "host_to_device_bytes_per_s": Kind(label="host to GPU"),
    "device_to_host_bytes_per_s": Kind(label="GPU to host"),
    "launch_s": _of_host(label="launch latency", unit="µs", scale=1e-6, smaller_is_better=True, between=(1e-9, 1e3)),
}
OF_ALL: Mapping[str, Kind] = {
    "all_reduce_256mib_bytes_per_s": Kind(label="all-reduce, 256 MiB"),
    "all_reduce_1mib_bytes_per_s": _of_host(label="all-reduce, 1 MiB"),
}
OF_A_PAIR: Mapping[str, Kind] = {
    "pair_256mib_bytes_per_s": Kind(label="pair, 256 MiB"),
    "pair_1mib_bytes_per_s": _of_host(label="pair, 1 MiB"),
}
CPU = "cpu_loops_per_s"
KINDS: Mapping[str, Kind] = {
    **OF_A_GPU,
    CPU: _of_host(label="CPU, one thread", unit="million loops/s", scale=1e6, between=(1.0, 1e10)),
    **OF_ALL,
    **OF_A_PAIR,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure of a GPU, of a pair of GPUs, or of the host (`gpus` is empty).

    Figures with the same name and the same `like` can be compared: the product of the GPU, and the type of link. A figure without
    samples has the reason in `missing`. `failed` means that the figure should have been measured.
    """

    name: str
    gpus: tuple[int, ...] = ()
    like: str = ""
    samples: tuple[float, ...] = ()
    missing: str | None = None
    failed: bool = False

    @property
    def value(self) -> float | None:
        return median(self.samples) if self.samples else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One GPU, its PCIe link, its active NVLinks, and other processes on it. `used_bytes` is None if the GPU was idle."""

    index: int
    uuid: str
    name: str
    pcie: str | None = None
    nvlinks: int | None = None
    used_bytes: int | None = None
    processes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """The way between two GPUs, such as NVLink."""

    gpus: tuple[int, int]
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Off:
    """A figure that is off. `share` is how much better (above 0) or worse (below 0) it is than `reference`."""

    name: str
    gpus: tuple[int, ...]
    value: float
    reference: float
    share: float
    against: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    """All figures of one machine at one time. `taken_at` is an ISO date. `software` maps names to versions.

    `earlier` is the number of earlier screens of this machine that the figures were compared with. `core_wait_share` is the
    share of time for which a process of the screen waited for a core.
    """

    host: str
    taken_at: str
    took_s: float
    cpu: str | None = None
    software: Mapping[str, str] = field(default_factory=dict)
    cards: tuple[Card, ...] = ()
    links: tuple[Link, ...] = ()
    figures: tuple[Figure, ...] = ()
    off: tuple[Off, ...] = ()
    earlier: int = 0
    core_wait_share: float | None = None
    schema_version: int = SCHEMA_VERSION
