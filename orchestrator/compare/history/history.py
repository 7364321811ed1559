"""The values of a history: campaigns in their order, a series for each experiment and metric, and its steps.

This module has no behaviour. Values are in the base units of `metrics`; a change is new ÷ old − 1, whatever the direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.compare.comparison import Difference
from orchestrator.measure.intervals import Interval
from orchestrator.results.table.rows import Value

# Of `history.json`.
SCHEMA_VERSION = 1


class Kind(StrEnum):
    """What a step means to a reader. `CHANGED`: of a metric without a better direction, or one that should not move."""

    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """One place that was read. `began_at` is in seconds since the epoch, None if the place does not say when it ran."""

    name: str
    began_at: float | None
    experiments: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One campaign's value of a metric of an experiment: the mean over its ok runs, with an interval if there are several.

    `campaign` is its place among the campaigns. `changes` are differences of environment and arguments from the point before.
    """

    campaign: int
    began_at: float | None
    value: float
    interval: Interval | None
    runs: int
    level: float | None = None
    changes: tuple[Difference, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A change from one level to another: `at` is the first point on the new level, `since` the first on the old one."""

    at: int
    since: int
    before: float
    after: float
    kind: Kind

    @property
    def change(self) -> float:
        return self.after / self.before - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A metric of an experiment over the campaigns that have it, oldest first. `id` is that of the last campaign, or None."""

    label: str
    key: Mapping[str, Value]
    id: str | None
    metric: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The result of `tunebench history`. `warnings` are sentences about what could not be read or is left out."""

    campaigns: tuple[Campaign, ...]
    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
