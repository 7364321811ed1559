"""The values of a comparison: entries on a side, pairs of entries, and verdicts on pairs.

Side + Side → Pair… → Comparison. `sides` reads the sides and pairs their entries, `verdicts` judges the pairs, and `view`
writes the result. This module has no behaviour. Rates, times and bytes are in the base units of `measure.metrics`. A ratio is
always new ÷ base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.measure.intervals import Ratio
from orchestrator.results.table.rows import Value
from orchestrator.screen.figures import Screen

# The version of `comparison.json`, which `tunebench rerun --from` reads.
SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """The verdict on one metric of one pair, or of all pairs together. A pair without comparable numbers has a verdict, too."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    NEW = "new"
    FAILED = "failed"
    NOT_COMPARABLE = "not_comparable"
    UNTESTED = "untested"
    UNKNOWN = "unknown"


class FirstRuns(StrEnum):
    """The treatment of the first runs of both sides. COLD means that slow first runs count, because a side has too few runs."""

    COUNTED = "counted"
    LEFT_OUT = "left_out"
    COLD = "cold"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One ok run. `numbers` maps metrics to values. `started_at` is in seconds since the epoch, or None if it is unknown.

    `ended_early` is true if `measure:` ended the run before its last planned step. `never_steady` is true if no steady state was
    found in the run, so that it has no speed. `doubt` says how the run was disturbed, so that its speed is in doubt. Without
    that, the run may have been faster by the factor `slowed` at most; None if this is unknown. `logged_losses` is a text in the
    format of `measure.losses`.
    """

    repeat: int
    numbers: Mapping[str, float]
    started_at: float | None = None
    ended_early: bool = False
    never_steady: bool = False
    doubt: str = ""
    slowed: float | None = None
    logged_losses: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One experiment on one side. `key` (name → value) decides which entry of the other side it is compared with. `label` is the
    key as text.

    `arguments` has the arguments that are not in the key. `environment` has the GPU, driver, versions, data, clocks and neighbours.
    `status` is `ok` if at least one run is ok, else `failed`, or `unreadable` if no record of a run can be read. `failed_runs`
    counts the failed repeats; `failure` is the kind and cause of the last failed repeat, and `failed_at` is the start of the first,
    in seconds since the epoch. `unreadable_runs` counts the repeats whose records cannot be read: it is unknown how they ended. An
    experiment of a Tunebench results folder has `id` and `folder`, so that it can run again. An experiment of a CSV file may have
    only the id. `whole` means that the source is complete: if the entry lacks a name, this name was not set.
    """

    key: Mapping[str, Value]
    label: str
    status: str
    runs: tuple[Run, ...] = ()
    failed_runs: int = 0
    unreadable_runs: int = 0
    arguments: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, Value] = field(default_factory=dict)
    failure: str | None = None
    failed_at: float | None = None
    id: str | None = None
    folder: str | None = None
    whole: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """All entries of one side. `warnings` are sentences about entries that could not be read or were left out.

    `screens` has the figures of its machines, if its campaigns measured them.
    """

    name: str
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()
    screens: tuple[Screen, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A name whose values differ between the sides. A value is None if it is unknown or not set."""

    name: str
    base: Value
    new: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """An experiment on both sides, or on only one. `environment` and `arguments` are the differences between the sides.

    `disqualifying` has the names of those differences that forbid a comparison, such as another GPU.
    """

    label: str
    base: Entry | None
    new: Entry | None
    environment: tuple[Difference, ...] = ()
    arguments: tuple[Difference, ...] = ()
    disqualifying: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The verdict on one metric of one pair. A pair without comparable numbers has one row, with an empty `metric`.

    `base` and `new` are the compared values. For memory, a value is the lowest of equally many runs of both sides; `highest` has
    the highest run of base and of new. For other metrics, a value is the mean over runs: the geometric mean if the metric is
    tested, else the arithmetic mean. If some runs ended early, a loss is the mean over the steps that all runs made. `ratio` is
    None if a side has no number above 0. `needs` estimates how many more runs per side would settle an inconclusive row.
    `p_adjusted` is the p value after the correction over all rows of the metric. `paired` means that the sides took turns, and
    that a drift is removed from the ratio and its interval. `first_runs` says whether the first runs were cold and are left out
    of all numbers of the row. `may_be_worse_by` is the slowdown that an inconclusive row should rule out, but does not. `doubt`
    says why a change does not count: most runs of the slower side were disturbed. `why` is a short reason.
    """

    label: str
    metric: str
    verdict: Verdict
    base: float | None = None
    new: float | None = None
    ratio: Ratio | None = None
    p_adjusted: float | None = None
    paired: bool = False
    first_runs: FirstRuns = FirstRuns.COUNTED
    highest: tuple[float, float] | None = None
    needs: int | None = None
    may_be_worse_by: float | None = None
    doubt: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The verdict on one metric over all pairs. `ratio` is the geometric mean of their ratios. `pairs` is the number of pairs.

    `one_after_the_other` means that all runs of one side started before all runs of the other side.
    """

    metric: str
    verdict: Verdict
    ratio: Ratio
    pairs: int
    one_after_the_other: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result of `tunebench compare`. `environment` has the differences that all pairs share.

    `rows` follow the order of `pairs`. A row names its pair by the pair's unique label. The runs in `pairs` have only the compared
    metrics. `machines` has sentences about figures of the machines that differ or were off (`run --screen`).
    `rules` has the options that decided the verdicts. `same_runs` counts the experiments that are left out because both
    sides have the same runs.
    """

    base: str
    new: str
    pairs: tuple[Pair, ...]
    rows: tuple[Row, ...]
    fleet: tuple[Fleet, ...]
    environment: tuple[Difference, ...] = ()
    rules: Mapping[str, Value] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    same_runs: int = 0
    machines: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
