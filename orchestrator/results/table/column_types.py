"""Give each column its pandas type. The type is the same in every report, so that frames of several campaigns fit together.

In a table, and so in a CSV file, a column of whole numbers is `Int64`. Parquet files and `tunebench.load` have the types in
docs/metrics.md instead. `known` returns these types for `pandas.read_csv(…, dtype=…)`. All types are nullable: a missing value is
NA.

A metric that counts something may differ between runs, so that its mean over repeats is not whole, such as 1.33 discarded steps.
`known` therefore says `Float64`, because pandas refuses to read 1.33 as `Int64`. `typed` sees the values and can do better.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from orchestrator.measure.metrics import FACTS, METRICS, SETTINGS, Show
from orchestrator.measure.metrics.metric import NUMBER, TEXT, TRUTH, WHOLE
from orchestrator.results.table.column_choice import for_people
from orchestrator.results.table.rows import Value

if TYPE_CHECKING:
    import pandas as pd

# Columns that the registry does not have, each with its type and its meaning.
OTHERS: Mapping[str, tuple[str, str]] = {
    "provenance_git_dirty": (TRUTH, "Whether the checkout had uncommitted changes."),
    "provenance_host_cpu_count": (WHOLE, "CPUs of the host."),
    "provenance_host_memory_bytes": (WHOLE, "Memory of the host."),
    "provenance_price": (
        TEXT,
        "Price of the costs, as `--price` takes it. All rows of a folder have its latest price.",
    ),
    "rank": (WHOLE, "`ranks.csv`: number of the training process."),
    "host": (TEXT, "`ranks.csv`: host of the training process. `devices.csv`: node of the GPU, if there are several."),
    "gpu": (TEXT, "`ranks.csv`, `devices.csv`: UUID of the GPU."),
    "real_tokens": (WHOLE, "`ranks.csv`: tokens of the whole run that are not padding."),
    "labelled_tokens": (WHOLE, "`ranks.csv`: tokens of the whole run that have a label."),
    "compute_time_s": (NUMBER, "`ranks.csv`: median time of a steady step from its beginning to its end."),
    "peak_allocated_after_load_bytes": (NUMBER, "`ranks.csv`: highest memory that tensors held until training began."),
    "peak_reserved_after_load_bytes": (
        NUMBER,
        "`ranks.csv`: highest memory of torch's allocator until training began.",
    ),
    "peak_reserved_first_step_bytes": (
        NUMBER,
        "`ranks.csv`: highest memory of torch's allocator during the first step.",
    ),
    "peak_reserved_steady_bytes": (NUMBER, "`ranks.csv`: highest memory of torch's allocator after the first step."),
    "host_rss_after_load_bytes": (NUMBER, "`ranks.csv`: host memory of the rank and its children when training began."),
    "host_rss_first_step_bytes": (
        NUMBER,
        "`ranks.csv`: host memory of the rank and its children at the end of the first step.",
    ),
    "host_rss_steady_bytes": (
        NUMBER,
        "`ranks.csv`: host memory of the rank and its children at the end of the training.",
    ),
    "results_created_at": (
        TEXT,
        "Database: when the results folder of the run was made. It tells two folders of one path apart.",
    ),
    "started_at_s": (NUMBER, "Database: start of the run, in seconds since the epoch."),
    "argument_columns": (TEXT, "Database: names of the columns that are arguments of the run, one per line."),
    "experiments": (WHOLE, "`--group-by`: experiments of the group."),
    "experiments_ok": (WHOLE, "`--group-by`: experiments of the group whose repeats all ended ok."),
}

# Metrics that count something, and of these the metrics that are the same in all repeats of an experiment.
COUNTS = frozenset(name for name, metric in METRICS.items() if metric.show in (Show.COUNT, Show.MAGNITUDE))
_SHARED_COUNTS = frozenset({"global_batch", "world_size", "total_parameters", "trainable_parameters"})

_WHOLE = re.compile(r"-?[1-9][0-9]{0,17}|0")


def known() -> dict[str, str]:
    """Return the pandas type of each column that is known beforehand. Arguments and a custom trainer's own numbers are missing."""
    facts = {name: WHOLE if fact.show is Show.COUNT else TEXT for name, fact in FACTS.items()}
    metrics = {name: TEXT if metric.show is Show.TEXT else NUMBER for name, metric in METRICS.items()}
    metrics |= dict.fromkeys(_SHARED_COUNTS, WHOLE)
    settings = {f"effective_{name}": dtype for name, (dtype, _) in SETTINGS.items()}
    return {**facts, **metrics, **settings, **{name: dtype for name, (dtype, _) in OTHERS.items()}}


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the registry's types. A column whose values do not fit its type becomes text.

    Counts are whole numbers, except in a column with a mean that is not whole.
    """
    types, columns = known(), {}
    for name in map(str, frame.columns):
        wanted = WHOLE if name in COUNTS else types.get(name, TEXT if name.startswith("provenance_") else None)
        if wanted is not None and str(frame[name].dtype) != wanted:
            columns[name] = _as(frame[name], wanted)
    return frame.assign(**columns)


def _as(column: pd.Series[Any], wanted: str) -> pd.Series[Any]:
    import pandas as pd

    if column.isna().all():
        return pd.Series([None] * len(column), dtype=pd.api.types.pandas_dtype(wanted), index=column.index)
    if wanted == WHOLE and str(column.dtype) == NUMBER and not _are_whole(column):
        return column  # pandas would cut the fractions off
    try:
        return column.astype(pd.api.types.pandas_dtype(wanted))
    except (TypeError, ValueError):
        return column.astype(pd.api.types.pandas_dtype(TEXT))


def _are_whole(column: pd.Series[Any]) -> bool:
    return bool(((column % 1 == 0) & (column.abs() < 2**63)).all())


def frame_of(
    records: Sequence[dict[str, Value]],
    arguments: frozenset[str],
    *,
    order: Callable[[Iterable[str]], list[str]] = for_people,
) -> pd.DataFrame:
    """Return a frame of nullable columns, so that whole numbers stay whole in a column with missing values."""
    import pandas as pd

    names = order(dict.fromkeys(chain.from_iterable(records)))
    columns: dict[str, pd.Series[Any]] = {}
    for name in names:
        kind, values = _with_type(list(map(dict.get, records, repeat(name))), is_argument=name in arguments)
        columns[name] = pd.Series(values, dtype=pd.api.types.pandas_dtype(kind))
    return pd.DataFrame(columns, index=range(len(records)), columns=names)


def _with_type(values: Sequence[Value], *, is_argument: bool) -> tuple[str, list[Value]]:
    """Return two values: the pandas type that represents a column's values exactly, and the values in that type.

    An argument is text, unless all its values are whole numbers.
    """
    kinds = {*map(type, values)} - {type(None)}
    if is_argument and kinds == {str} and all(value is None or _WHOLE.fullmatch(str(value)) for value in values):
        return "Int64", [None if value is None else int(value) for value in values]
    if kinds == {bool}:
        return "boolean", list(values)
    if kinds == {int} and all(value is None or abs(int(value)) < 2**63 for value in values):
        return "Int64", list(values)
    if kinds and kinds <= {int, float}:
        with suppress(OverflowError):  # a whole number may be too large for a float
            return "Float64", [None if value is None else float(value) for value in values]
    return "string", [None if value is None else str(value) for value in values]
