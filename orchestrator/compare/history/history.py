"""The values of a history: campaigns in their order, a series for each experiment and metric, and its steps.

This module has no behaviour. Values are in the base units of `measure.metrics`. A change is always new ÷ old − 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.compare.comparison import Difference
from orchestrator.measure.intervals import Interval
from orchestrator.results.table.rows import Value

# The version of `history.json`.
SCHEMA_VERSION = 1


class Kind(StrEnum):
    """The meaning of a step. `CHANGED` is for a metric without a better direction, and for a change of the measured work."""

    BETTER = "better"
    WORSE = "worse"
    CHANGED = "changed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """One place that was read. `began_at` is in seconds since the epoch; None if the place has no start times.

    `environment` has the facts of its runs, such as driver and versions. If runs differ in a fact, it lists their values.
    """

    name: str
    began_at: float | None
    experiments: int
    environment: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The value of a metric in one campaign: the mean over the ok runs, with an interval if there are several runs.

    `campaign` is the index of the campaign. `changes` are the differences of environment and arguments from the previous point.
    `doubts` say how runs of the campaign were disturbed, so that the value is in doubt. `id` is the experiment's id in the
    campaign, or None, also for the mean of all experiments. `real_share` is the share of tokens without padding, if known.
    """

    campaign: int
    began_at: float | None
    value: float
    interval: Interval | None
    runs: int
    level: float | None = None
    changes: tuple[Difference, ...] = ()
    doubts: tuple[str, ...] = ()
    id: str | None = None
    real_share: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A change from one level to another. `at` is the first point on the new level. `since` is the first point on the old level.

    A drift is a slow change along a line. `since` is its first point, and `at` is its last point.
    """

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
    """A metric of an experiment over its campaigns, oldest first. `id` is the experiment's id in the last campaign, or None.

    `suspicious` has steps that noise may show too often among so many series. `without_first` means that the first run is left
    out in all campaigns, because it was the slowest in most of them.
    """

    label: str
    key: Mapping[str, Value]
    id: str | None
    metric: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...] = ()
    drifts: tuple[Step, ...] = ()
    suspicious: tuple[Step, ...] = ()
    without_first: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The result of `tunebench history`. `warnings` are sentences about places that could not be read or are left out.

    `fleet` has one series for each metric that several experiments have: the geometric mean over these experiments. `error_rate` is
    the chosen chance that a history without a change shows a step. `expected_false_steps` is how many such a history shows.
    """

    campaigns: tuple[Campaign, ...]
    series: tuple[Series, ...]
    fleet: tuple[Series, ...] = ()
    error_rate: float
    expected_false_steps: float
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
