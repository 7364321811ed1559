"""Choose the shown columns of a table and their order. Pure. Columns are defined in `measure/metrics/`.

A column with the same value in every row is left out, unless it is kept. Columns in the drop list, and columns that only name
files, are also left out. A missing value counts as a value: a column that only some rows have is not constant. The keep list and
the drop list may contain patterns (`mem_*`). The keep list wins over the drop list, and the user's lists win over the defaults
(`choose`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from orchestrator.errors import suggestion
from orchestrator.measure.metrics import FACTS, METRICS, Where, columns, metric

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.rows import Value

_KNOWN = (*FACTS.values(), *METRICS.values())

DEFAULT_KEEP = (*columns(Where.KEPT), "trust_remote_code", "provenance_price")

# Arguments that only name files.
FILE_NAMES = ("training_data_path", "acceleration_framework_config_file", "error_messages")

# Columns that benchmarks.csv leaves out even if their values differ; raw_summary.csv has these columns.
DEFAULT_DROP = (
    *(metric.name for metric in _KNOWN if not metric.where & Where.TABLES),
    *(*FILE_NAMES, "effective_*", "provenance_*", "measured_*"),
)

# Columns that only files have, unless they are requested: no one reads a table of eighty columns.
DETAILS = tuple(metric.name for metric in _KNOWN if metric.where & Where.TABLES == Where.FILES)

HEADLINE = columns(Where.FIRST)

# The speeds and times of a row, the preferred one first. Those of the whole run include warm-up and compilation.
SPEEDS_OF_STEPS = ("tokens_per_s", "samples_per_s", "step_time_s")
WHOLE_SPEEDS = (
    *("train_tokens_per_second", "train_samples_per_second", "train_runtime"),
    *("call_time_s", "round_time_s"),
)

# The memory of the training processes. It is shown if no row has memory of a GPU.
_OTHER_MEMORY = "host_rss_bytes"
_GPU_MEMORY = (
    *("peak_allocated_bytes", "device_peak_used_bytes"),
    *("mem_peak_torch_mem_alloc_in_bytes", "mem_nvidia_mem_reserved"),
)

# Columns that differ in every row, but are not properties of the experiment. A table has them only if they are kept.
BOOKKEEPING = ("id", "output_dir", "started_at", "logging_dir", "run_name", "provenance_collected_at")

_OUTCOME = ("status", "runs_ok", "runs", "failure_kind", "failure_cause", "failure_hint")

_PEOPLE = (
    *(
        "results",
        "id",
        "scenario",
        "model_name_or_path",
        "environment",
        "framework_config",
        "peft_method",
        "dtype",
        "torch_dtype",
    ),
    *("num_gpus", "num_nodes", "per_device_train_batch_size", "gradient_accumulation_steps", "global_batch"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A table in two parts: `shown` has the columns that stay, sorted; `constant` has the cells that all rows share."""

    shown: pd.DataFrame
    constant: Mapping[str, Value]


def varying(table: pd.DataFrame, *, keep: Iterable[str] = (), drop: Iterable[str] = ()) -> Split:
    """Return the table without constant columns, dropped columns and BOOKKEEPING. A column in `keep` stays. All rows stay."""
    keep, drop = tuple(keep), (*drop, *BOOKKEEPING)
    shown: list[str] = []
    constant: dict[str, Value] = {}
    for name in sorted(str(column) for column in table.columns):
        same = _is_constant(table[name])
        if matches(name, keep) or not (same or matches(name, drop)):
            shown.append(name)
        elif same and len(table) and not matches(name, drop):
            constant[name] = cells(table[name])[0]
    return Split(shown=table[shown], constant=constant)


def choose(keep: Iterable[str] = (), drop: Iterable[str] = ()) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keep and drop lists for `varying`: the user's lists and the defaults. The user's lists win."""
    keep, drop = tuple(keep), tuple(drop)
    return (*keep, *(name for name in DEFAULT_KEEP if not matches(name, drop))), (*drop, *DEFAULT_DROP)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a list of names and patterns contains a column."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def no_such(name: str, known: Iterable[str]) -> str:
    """Return an error sentence for an unknown column. If the name is a heading that a table shows, the sentence says so."""
    known = sorted(known)
    headed = [repr(column) for column in known if metric(column).label == name]
    if headed:
        return f"there is no column {name!r} here; {name!r} is the heading of {' and '.join(headed)}"
    return f"there is no column {name!r} here{suggestion(name, known)}"


# The first arguments in reading order: what is called, and how.
_FIRST_ARGUMENTS = ("operator", "implementation", "shape")


def for_people(names: Iterable[str]) -> list[str]:
    """Return columns in reading order: what the experiment was, how it ended, what was measured, the rest by name."""
    order = [*_PEOPLE, *(name for name in FACTS if name not in _PEOPLE and name not in _OUTCOME)]
    rank: dict[str, float] = {name: place for place, name in enumerate([*order, *_OUTCOME, *METRICS])}
    arguments = len(order) - 0.5
    rank |= {name: arguments - 1 / (place + 3) for place, name in enumerate(_FIRST_ARGUMENTS)}
    last = ("effective_", "provenance_")
    return sorted(names, key=lambda name: (name.startswith(last), rank.get(name, arguments), name))


def distinguishing(
    keys: Sequence[tuple[Value, ...]], columns: Iterable[tuple[str, list[Value]]]
) -> dict[str, list[Value]]:
    """Return the first of these columns that distinguish rows with equal keys, until all rows are distinct, if that is possible."""
    known: list[tuple[Value, ...]] = list(keys)
    chosen: dict[str, list[Value]] = {}
    for name, values in columns:
        if len(set(known)) == len(known):
            break
        longer = [(*key, value) for key, value in zip(known, values, strict=True)]
        if len(set(known)) < len(set(longer)):
            known, chosen[name] = longer, values
    return chosen


def cells(column: pd.Series[Any]) -> list[Value]:
    """Return a column as plain Python values. A missing value is None."""
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna().tolist(), strict=True)]


def speeds(frame: pd.DataFrame, *, first: Sequence[str] = ()) -> list[str]:
    """Return the speeds and times that are needed to show one of each row that has one. `first` come before the usual ones."""
    known = [name for name in (*first, *SPEEDS_OF_STEPS, *WHOLE_SPEEDS) if name in frame]
    measured = zip(*(column(frame, name) for name in known), strict=True)
    return needed(known, [{n for n, v in zip(known, row, strict=True) if v is not None} for row in measured])


def needed(names: Iterable[str], rows: Sequence[Collection[str]]) -> list[str]:
    """Return the first of the names that a row has, and each further name that a row without the names before it has."""
    chosen: list[str] = []
    for name in names:
        if any(name in row for row in rows):
            chosen.append(name)
            rows = [row for row in rows if name not in row]
    return chosen


def headline(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the metrics that people read first, the speeds of the rows at the beginning.

    If no row has the usual memory, add a different metric for it.
    """
    memory = [] if any(has_values(frame, name) for name in _GPU_MEMORY) else [_OTHER_MEMORY]
    at = HEADLINE.index(_GPU_MEMORY[0])
    return tuple(dict.fromkeys((*speeds(frame), *HEADLINE[:at], *memory, *HEADLINE[at:])))


def always_shown(frame: pd.DataFrame, *, drop: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that the terminal and Markdown show even if all rows agree."""
    names = (*headline(frame), "status")
    return tuple(name for name in names if has_values(frame, name) and not matches(name, drop))


def has_values(frame: pd.DataFrame, name: str) -> bool:
    """Return whether any row has a value in this column."""
    return name in frame and bool(frame[name].notna().any())


def column(frame: pd.DataFrame, name: str) -> list[Value]:
    """Return a column as plain values. A missing value is None. If the column is missing, all its values are None."""
    return cells(frame[name]) if name in frame else [None] * len(frame)


def only(frame: pd.DataFrame, name: str) -> Value:
    """Return the value of a column if all rows have the same, else None."""
    values = column(frame, name)
    return values[0] if len(set(values)) == 1 else None


def number(value: Value) -> float | None:
    """Return the value if it is a number, else None."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# The GPUs of a run: as its record names them, else as a monitor does.
GPUS = ("provenance_gpus", "gpu_device_name")


def gpu_models(frame: pd.DataFrame) -> list[str | None]:
    """Return the GPU models of each row, each once and sorted. An experiment has those of all its runs. None: they are unknown."""
    return [gpu_model(*values) for values in zip(*(column(frame, name) for name in GPUS), strict=True)]


def gpu_model(*values: Value) -> str | None:
    """Return the GPU models of one row from its cells of the columns GPUS."""
    known = next((str(value) for value in values if value), None)
    return known and in_any_order(known)


def in_any_order(values: str) -> str:
    """Return the values of several runs, which are separated by commas, each once and sorted."""
    return ", ".join(sorted({*values.split(", ")}))


def by_gpu_model(rows: Sequence[int], models: Sequence[str | None]) -> list[list[int]]:
    """Return the rows in groups of the same GPU models. An unknown model does not differ from the only one that is known."""
    if len({models[row] for row in rows} - {None}) < 2:
        return [[*rows]]
    groups: dict[str | None, list[int]] = {}
    for row in rows:
        groups.setdefault(models[row], []).append(row)
    return list(groups.values())


class Numbers:
    """The numbers of a frame by column and row: `Numbers(frame)("train_loss", 3)`. Each column is converted once."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self._columns: dict[str, list[Value]] = {}

    def __call__(self, name: str, row: int) -> float | None:
        if name not in self._columns:
            self._columns[name] = column(self._frame, name)
        return number(self._columns[name][row])


def _is_constant(column: pd.Series[Any]) -> bool:
    return int(column.nunique(dropna=False)) <= 1
