"""The published values of `published.yaml`, with their sources and tolerances; and Tunebench's numbers to compare with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("published.yaml")
EXACT = "exact"
# Metrics that need no run.
COUNTED = ("trainable_parameters", "total_parameters", "model_flops_per_token")
UNITS: Mapping[str, float] = {"": 1, "×": 1, "GFLOP": 1e9, "GB": 1e9, "GiB": 2**30, "MiB": 2**20}

Cell = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The publication of a value: who published it, where and when, and what it was measured with and how.

    `gpu_gib` is the memory of a GPU that can repeat the measurement; 0 if no measurement is needed.
    """

    name: str
    where: str
    date: str
    hardware: str
    software: str
    protocol: str
    gpu_gib: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A published value, the metric that Tunebench has for it, and the experiment of examples/verify.yaml with this metric.

    `published` and `expected` are in `unit`, a key of UNITS. `cell` has arguments of the experiment; None means that the experiment
    does not have this argument. `minus` and `over` are a second experiment of the same scenario. `tolerance` is `exact`, a share
    such as `10%`, or a number in the unit. `because` is the reason why `expected` differs from `published`.
    `difference` is what is known about a number that is not met.
    """

    source: Source
    name: str
    scenario: str
    metric: str
    published: float
    tolerance: str
    unit: str = ""
    cell: Cell = field(default_factory=dict)
    minus: Cell | None = None
    over: Cell | None = None
    expected: float | None = None
    because: str = ""
    difference: str = ""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all experiments that the value needs."""
        return (self.cell, *(cell for cell in (self.minus, self.over) if cell is not None))

    def combined(self, numbers: tuple[float, ...]) -> float:
        """Return Tunebench's number in the value's unit. `numbers` has the metric of each of `cells`, in base units."""
        first, *others = numbers
        if self.minus is not None:
            first -= others[0]
        if self.over is not None:
            first = first / others[0] if others[0] else math.nan
        return first / UNITS[self.unit]

    def is_near(self, ours: float, reference: float) -> bool:
        """Return whether Tunebench's number is within the tolerance of `reference`. Both are in the value's unit."""
        return abs(ours - reference) <= self.allowed(reference)

    def allowed(self, reference: float) -> float:
        """Return the largest allowed distance from `reference`."""
        if self.tolerance == EXACT:
            return 0.0
        if self.tolerance.endswith("%"):
            return abs(reference) * float(self.tolerance[:-1]) / 100
        return float(self.tolerance)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Tunebench's numbers for an experiment, in base units. If there are none, `problem` is the reason. `software` has versions."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""
    software: str = ""


def read(file: Path = FILE) -> tuple[Value, ...]:
    """Return the values of a file in the file's order."""
    import yaml

    groups = yaml.safe_load(file.read_text(encoding="utf-8"))
    return tuple(_value(_source(group), one) for group in groups for one in group["values"])


def _source(group: Mapping[str, Any]) -> Source:
    texts = {name: str(group[name]) for name in ("where", "date", "hardware", "software", "protocol")}
    return Source(name=group["source"], gpu_gib=group.get("gpu_gib", 0), **texts)


def _value(source: Source, one: Mapping[str, Any]) -> Value:
    return Value(**{**one, "tolerance": str(one["tolerance"]), "source": source})
