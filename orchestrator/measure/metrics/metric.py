"""The type of the registry's entries, and the values of its fields: the better direction, the number format, the test."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Flag, StrEnum

DASH = "-"  # shown for a missing value, which is never 0
MIB = 2**20
TEXT, WHOLE, NUMBER, TRUTH = "string", "Int64", "Float64", "boolean"  # pandas types of columns

# The smallest change that matters, as a share of the value. A metric may replace it by its own smallest change.
SMALLEST_EFFECT = 0.02
# A smaller change between single runs is not reported: published rows differ by this much without a reason.
ONE_RUN_EFFECT = 0.10


class Direction(StrEnum):
    """The direction in which a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


class Show(StrEnum):
    """The number format in which people see a value. Files contain values in base units at full precision."""

    NUMBER = "number"
    COUNT = "count"
    MAGNITUDE = "magnitude"
    SECONDS = "seconds"
    JOULES = "joules"
    BYTES = "bytes"
    MIB = "mib"
    BYTES_PER_S = "bytes_per_s"
    SHARE = "share"
    RATIO = "ratio"
    TEXT = "text"


class Judged(StrEnum):
    """The method that `compare` uses to separate a change from chance."""

    TEST = "test"  # a test over runs
    TOLERANCE = "tolerance"  # for metrics that hardly differ between runs
    GUARD = "guard"  # a tolerance in both directions


class Where(Flag):
    """The places that show a column. raw_summary.csv and Parquet files have all columns."""

    RAW = 0  # only raw_summary.csv and Parquet files
    FILES = 1  # benchmarks.csv, unless all its rows agree
    # Each bit needs a name of its own: early versions of Python 3.11 forget bits without one.
    IN_TABLES, AMONG_FIRST = 2, 4
    TABLES = FILES | IN_TABLES  # the terminal and Markdown too, unless all rows agree
    FIRST = TABLES | AMONG_FIRST  # the terminal and Markdown in any case, among the most important numbers
    KEPT = 8  # benchmarks.csv in any case
    PAGE = 16  # the page's table from the start; a click adds other columns
    COMPARED = 32  # `compare` and `history`, if both sides have the column
    SPEED = 64  # the same places as COMPARED, unless there is a speed with a lower `order`


@dataclass(frozen=True, slots=True)
class Metric:
    """One column. `label` is its short heading; `leaves_out` says what the number does not include.

    If `by_ratio` is true, logarithms are averaged over runs, so that 2 % faster and 2 % slower cancel out. `min_effect` is the
    smallest change that matters, as a share: 0.02 means ×1.02 or ÷1.02. For a metric without a test, it is the tolerance.
    `one_run_effect` replaces ONE_RUN_EFFECT for a metric whose single runs differ by more. `order` is the place among the
    columns that are shown first or compared. `step_part` is for a part of a step's time, in seconds per step
    (the unit `s`) or as a share of the step: the name of this part, as the report's waterfall shows it. Parts do not overlap,
    unless a part is inside the part of another metric: then `within` is this metric. `of_steady_state` is for a number of the steps
    in the steady state, so it is another number if these are other steps.
    """

    name: str
    label: str
    description: str
    _: KW_ONLY
    source: str = ""
    unit: str | None = None
    direction: Direction = Direction.NONE
    show: Show = Show.NUMBER
    leaves_out: str = ""
    by_ratio: bool = False
    judged: Judged = Judged.TEST
    min_effect: float = SMALLEST_EFFECT
    one_run_effect: float = 0.0
    where: Where = Where.TABLES
    order: int = 0
    step_part: str = ""
    within: str = ""
    of_steady_state: bool = False
