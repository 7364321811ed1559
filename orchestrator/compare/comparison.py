"""The values of a comparison: entries on a side, pairs of entries, and verdicts on them.

Side + Side → Pair… → Comparison. `sides` reads them, `pairing` pairs them, `verdicts` judges, `compare_view` writes. This module
has no behaviour. Rates, times and bytes are in the base units of `metrics`. A ratio is new ÷ base, whatever the direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.measure.intervals import Ratio
from orchestrator.results.table.rows import Value

# Of `comparison.json`, which `tunebench rerun --from` reads.
SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """The verdict on one metric of one experiment, or of all experiments. A row of an unpaired experiment has no numbers."""

    IMPROVED = "improved"
    REGRESSED = "regressed"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    NEW = "new"
    FAILED = "failed"
    NOT_COMPARABLE = "not_comparable"
    UNTESTED = "untested"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One ok run: its numbers by metric. `started_at` is in seconds since the epoch, None if the source does not say.

    `ended_early`: `measure:` ended it before its last planned step. `logged_losses` is the course of its loss (see `losses`).
    """

    repeat: int
    numbers: Mapping[str, float]
    started_at: float | None = None
    ended_early: bool = False
    logged_losses: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One experiment on one side. `key` (name → value) pairs it; `label` is the key as people read it.

    `arguments` are those outside the key. `environment` says where it ran: GPU, driver, versions, data, clocks, neighbours.
    `status` is `ok` if at least one run is. `failed_runs` counts its other repeats, and `failure` is the kind and cause of the
    last of these. `id` and `folder` are set for an experiment of our results folders, which can run again. (A CSV file of ours
    may give only the id.) `whole`: everything is known of it, so that a name it lacks was not set.
    """

    key: Mapping[str, Value]
    label: str
    status: str
    runs: tuple[Run, ...] = ()
    failed_runs: int = 0
    arguments: Mapping[str, Value] = field(default_factory=dict)
    environment: Mapping[str, Value] = field(default_factory=dict)
    failure: str | None = None
    id: str | None = None
    folder: str | None = None
    whole: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """All entries of one side. `warnings` are sentences about what could not be read, or was left out."""

    name: str
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A name whose values differ between the sides. None: it is not known there, or not set."""

    name: str
    base: Value
    new: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """An experiment on both sides, or on only one. `environment` and `arguments` are the differences between them.

    `disqualifying` names the differences of environment that forbid a comparison (another GPU…).
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

    `base` and `new` are the values compared: the mean over runs (of logs if tested), for memory the highest. A loss is taken over
    the steps that all runs made, if some ended early. `ratio` is None if a side has no number above 0. `needs` is about how many
    more runs per side an inconclusive row takes. `p_adjusted` is corrected over all rows of its metric. `paired`: the sides took
    turns, and a drift is removed from ratio and interval. `why` is a short sentence.
    """

    label: str
    metric: str
    verdict: Verdict
    base: float | None = None
    new: float | None = None
    ratio: Ratio | None = None
    p_adjusted: float | None = None
    paired: bool = False
    needs: int | None = None
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """One metric over all paired experiments: the geometric mean of their ratios, its interval, and their number."""

    metric: str
    verdict: Verdict
    ratio: Ratio
    pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result of `tunebench compare`. `environment` has the differences that all pairs share.

    `rows` follow the order of `pairs` and name their pair by its unique label. Of the runs' numbers, pairs keep those that were
    compared. `rules` says how it was judged, in the words of the options.
    """

    base: str
    new: str
    pairs: tuple[Pair, ...]
    rows: tuple[Row, ...]
    fleet: tuple[Fleet, ...]
    environment: tuple[Difference, ...] = ()
    rules: Mapping[str, Value] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
