"""What a column is: the type of the registry's entries, with the ways to be better and to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DASH = "-"
"""What people see where a value is missing. A missing value is never 0."""

MIB = 2**20


class Direction(StrEnum):
    """Which way a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


class Show(StrEnum):
    """How a value is written for people; files hold base units at full precision."""

    NUMBER = "number"
    COUNT = "count"
    MAGNITUDE = "magnitude"
    SECONDS = "seconds"
    BYTES = "bytes"
    MIB = "mib"
    SHARE = "share"
    RATIO = "ratio"
    TEXT = "text"


class Judged(StrEnum):
    """How `compare` tells a change from chance: by a test over runs; by a tolerance, where runs hardly differ; as a guard, by a
    tolerance, where any change is news."""

    TEST = "test"
    TOLERANCE = "tolerance"
    GUARD = "guard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One column. `label` is its short heading, `source` what it is read from, `leaves_out` what it does not say."""

    name: str
    label: str
    description: str
    source: str
    unit: str | None = None
    direction: Direction = Direction.NONE
    show: Show = Show.NUMBER
    leaves_out: str = ""
    by_ratio: bool = False
    """Runs of it are averaged by their logarithms, so that 2 % faster and 2 % slower cancel out."""
    judged: Judged = Judged.TEST
    min_effect: float = 0.02
    """The smallest change that matters to anybody, as a share (0.02: ×1.02 or ÷1.02); the tolerance, where nothing is tested."""
    one_run_effect: float | None = None
    """Where single runs differ so much that the usual threshold for one run a side would be passed by chance: the one to use."""
