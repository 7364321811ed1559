"""Which columns of a table are shown, and in which order (pure).

A column that is the same in every row says nothing in a table and leaves it, unless kept; so do the columns of the drop
list and those that only name files. Missing counts as a value: a column that is set in some rows varies. Names in both
lists may be patterns (`mem_*`). Kept wins over dropped; what the user says wins over the defaults (`choose`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from orchestrator.config import suggestion
from orchestrator.metrics import FACTS, METRICS, metric

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.rows import Value

DEFAULT_KEEP = (
    "results",
    "trust_remote_code",
    "torch_dtype",
    "dtype",
    "framework_config",
    "peft_method",
    "model_name_or_path",
    "num_gpus",
    "per_device_train_batch_size",
    "mem_nvidia_mem_reserved",
    "mem_peak_torch_mem_alloc_in_bytes",
    "mem_torch_mem_alloc_in_bytes",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "real_tokens_per_s",
    *("speedup", "speedup_low", "speedup_high", "memory_ratio"),
    "step_time_s",
    "discarded_steps",
    "train_tokens_per_second",
    "train_loss",
    "train_runtime",
    "status",
    "failure_kind",
    "failure_cause",
    "failure_hint",
)

DEFAULT_DROP = (
    "before_init_mem_*",
    "init_mem_*_delta",
    "train_mem_*_delta",
    "training_data_path",
    "acceleration_framework_config_file",
    "error_messages",
    "effective_*",
    "provenance_*",
    "measured_*",
    "total_flos",
    "logged_losses",
)
"""What benchmarks.csv leaves out although it varies: raw_summary.csv holds it."""

DETAILS = (
    *("step_time_low_s", "step_time_high_s", "step_time_p*_s", "steps_per_s", "train_s*_per_second", "epoch", "steps"),
    *(
        "tokens_per_s_low",
        "tokens_per_s_high",
        "tokens_per_s_runs",
        "real_tokens_per_s_low",
        "real_tokens_per_s_high",
        "labelled_tokens_per_s",
        "real_tokens_per_s_per_gpu",
        "samples_per_s",
    ),
    *(
        "startup_s",
        "model_load_s",
        "trainer_setup_s",
        "warmup_s",
        "steady_s",
        "spikes",
        "steady_steps",
        "steady_found_by",
    ),
    *("allocated_after_load_bytes", "peak_allocated_*_bytes", "alloc_retries", "cuda_ooms", "host_rss_bytes"),
    *("*_processed", "model_flops_per_token", "device_mean_*", "device_baseline_bytes", "device_residue_bytes"),
    *("device_peak_imbalance", "integrated_energy_j", "monitor_*", "nvml_period_s", "sm_clock_mhz", "temperature_c"),
    *("gpu_utilization", "exit_code", "signal", "wall_s", "warnings"),
)
"""What only files hold unless it is asked for: a table of eighty columns is read by nobody."""

HEADLINE = (
    *("tokens_per_s", "tokens_per_s_spread", "train_tokens_per_second"),
    *("speedup", "speedup_low", "speedup_high", "memory_ratio"),
    *("step_time_s", "scaling_efficiency", "mfu", "peak_allocated_bytes", "device_peak_used_bytes"),
    *("mem_peak_torch_mem_alloc_in_bytes", "mem_nvidia_mem_reserved", "train_loss", "doubt", "train_runtime"),
)
"""The few numbers that people ask first."""

BOOKKEEPING = ("id", "output_dir", "started_at", "logging_dir", "run_name", "provenance_collected_at")
"""Different in every row and no property of the experiment: never in a table unless kept."""

_OUTCOME = ("status", "runs_ok", "runs", "failure_kind", "failure_cause", "failure_hint")

_PEOPLE = (
    *("results", "id", "scenario", "model_name_or_path", "framework_config", "peft_method", "dtype", "torch_dtype"),
    *("num_gpus", "per_device_train_batch_size", "gradient_accumulation_steps", "global_batch"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A table apart: `shown` has the columns that stay, sorted; `constant` the cells that all rows share."""

    shown: pd.DataFrame
    constant: Mapping[str, Value]


def varying(table: pd.DataFrame, *, keep: Iterable[str] = (), drop: Iterable[str] = ()) -> Split:
    """The table without its constant, dropped and bookkeeping columns, except those kept; rows are as they were."""
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
    """The keep and drop lists for `varying`: the user's beside the defaults, where theirs wins."""
    keep, drop = tuple(keep), tuple(drop)
    return (*keep, *(name for name in DEFAULT_KEEP if not matches(name, drop))), (*drop, *DEFAULT_DROP)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a column is named by a list of names and patterns."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def no_such(name: str, known: Iterable[str]) -> str:
    """A sentence on a column that there is not; people may name one by the heading that a table shows."""
    known = sorted(known)
    headed = [repr(column) for column in known if metric(column).label == name]
    if headed:
        return f"there is no column {name!r} here; that is the heading of {' and '.join(headed)}"
    return f"there is no column {name!r} here{suggestion(name, known)}"


def for_people(names: Iterable[str]) -> list[str]:
    """Columns in reading order: what it was, how it ended, what it measured, the rest by name."""
    order = [*_PEOPLE, *(name for name in FACTS if name not in _PEOPLE and name not in _OUTCOME)]
    rank = {name: place for place, name in enumerate([*order, *_OUTCOME, *METRICS])}
    arguments = len(order) - 0.5
    last = ("effective_", "provenance_")
    return sorted(names, key=lambda name: (name.startswith(last), rank.get(name, arguments), name))


def cells(column: pd.Series[Any]) -> list[Value]:
    """A column as plain Python values, None where it is missing."""
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna().tolist(), strict=True)]


def column(frame: pd.DataFrame, name: str) -> list[Value]:
    """A column as plain values, None where it is missing, and in every row where it is not there at all."""
    return cells(frame[name]) if name in frame else [None] * len(frame)


def number(value: Value) -> float | None:
    """The value where it is a number."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


class Numbers:
    """The numbers of a frame by column and row: `Numbers(frame)("train_loss", 3)`. Each column is made plain once."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame
        self._columns: dict[str, list[Value]] = {}

    def __call__(self, name: str, row: int) -> float | None:
        if name not in self._columns:
            self._columns[name] = column(self._frame, name)
        return number(self._columns[name][row])


def _is_constant(column: pd.Series[Any]) -> bool:
    return int(column.nunique(dropna=False)) <= 1
