"""The values of a history: campaigns in their order, a series for each experiment and metric, and the steps in it.

Nothing here does anything. Values are in the base units of `metrics`; a change is new ÷ old − 1, whatever the direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.compare.values import Difference
from orchestrator.rows import Value
from orchestrator.statistics import Interval

# Of `history.json`.
SCHEMA_VERSION = 1


class Kind(StrEnum):
    """What a step is to whoever reads it. `CHANGED`: of a metric that is neither better high nor low, or that should not move."""

    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """One place that was read. `began_at` in seconds since the epoch, None where nothing in it says when it ran."""

    name: str
    began_at: float | None
    experiments: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """What one campaign says of a metric of an experiment: the mean over its ok runs, and its interval where there are several.

    `campaign` is its place among the campaigns, `changes` what of environment and arguments is not as it was at the point before.
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
    """From one level to another: `at` is the first point on the new one. `since` is the point from which on the old level held."""

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
    """A metric of an experiment over the campaigns that have it, oldest first. `id` is the last one's, None where it has none."""

    label: str
    key: Mapping[str, Value]
    id: str | None
    metric: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What `tunebench history` found. `warnings` are sentences about what could not be read or is left out."""

    campaigns: tuple[Campaign, ...]
    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
