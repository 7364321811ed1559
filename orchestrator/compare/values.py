"""The values of a comparison: what stands on a side, what was paired with what, and what is said of it.

Side + Side → Pair… → Comparison. `sides` reads them, `pairing` pairs them, `verdicts` judges, `compare_view` writes it down.
Nothing here does anything. Rates, times and bytes are in the base units of `metrics`; a ratio is new ÷ base whatever the direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.rows import Value
from orchestrator.statistics import Ratio

# Of `comparison.json`, which `tunebench rerun --from` reads.
SCHEMA_VERSION = 1


class Verdict(StrEnum):
    """What is said of one metric of one experiment, or of all of them. The rows of one without a partner hold no numbers."""

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
    """One ok run: its numbers by metric. `started_at` in seconds since the epoch, None where the source does not say.

    `ended_early`: by `measure:`, before the last of its planned steps. `logged_losses` is how its loss went (see `losses`).
    """

    repeat: int
    numbers: Mapping[str, float]
    started_at: float | None = None
    ended_early: bool = False
    logged_losses: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One experiment on one side. `key` is what it is paired by, name → value; `label` is how people call it.

    `arguments` are those that are no part of the key. `environment` is where and with what it ran: GPU, driver, versions, data,
    clocks, neighbours. `status` is that of the experiment (`ok` where at least one run of it is), `failed_runs` how many of its
    repeats ended otherwise, `failure` the last such one's kind and cause.
    `id` and `folder` are set for an experiment of a results folder of ours: it could be run again. (A CSV file of ours may give the
    id alone.) `whole`: all is known of it, so that what it does not name was not given; of others that is merely not known.
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
    """All that stands on one side. `warnings` are sentences about what could not be read, or was left out."""

    name: str
    entries: tuple[Entry, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Something that is not the same on both sides; None: it is not known there, or not set."""

    name: str
    base: Value
    new: Value


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """An experiment on both sides, or on one alone. `environment` and `arguments` are what differs between them.

    `disqualifying` names those differences of environment by which the two may not be compared (another GPU…).
    """

    label: str
    base: Entry | None
    new: Entry | None
    environment: tuple[Difference, ...] = ()
    arguments: tuple[Difference, ...] = ()
    disqualifying: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What is said of one metric of one pair; of a pair without numbers to compare there is one row, whose `metric` is empty.

    `base` and `new` are what the sides are compared by: the mean over runs (of logs, where a test is made of it), of memory the
    highest, of the loss that over the steps which all runs made, where some ended early. `ratio` is None where a side has no
    number above 0. `needs` is about how many more runs a side an inconclusive row would take. `p_adjusted` is after the correction
    over all rows of its metric. `paired`: the sides took turns, and a drift over their runs is in neither ratio nor interval. `why`
    is a short sentence.
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
    """One metric over all paired experiments: the geometric mean of their ratios, its interval, how many they are."""

    metric: str
    verdict: Verdict
    ratio: Ratio
    pairs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What `tunebench compare` found. `environment` are the differences that all pairs share. `rows` stand in the order of `pairs`
    and name theirs by its label, which no other has; of the runs' numbers the pairs hold those that were compared.

    `rules` is how it was judged, in the words of the options (minimum effect, correction, metrics), for whoever reads it later.
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
