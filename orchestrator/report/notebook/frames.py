"""The function behind `tunebench.load`: results folders as one frame, with the types in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import SelectionError, suggestion
from orchestrator.report.notebook import origin, units
from orchestrator.report.tables.columns import short
from orchestrator.report.write import load_table
from orchestrator.results.table.aggregate import MEANS_OF_LOGS
from orchestrator.results.table.baseline import COLUMNS
from orchestrator.results.table.column_types import typed
from orchestrator.results.table.load import OF_THE_RUN

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("experiments", "runs", "ranks", "devices")
UNITS = ("base", "readable")


def frame(
    folders: Sequence[Path], *, rows: str, baseline: Sequence[str], all_columns: bool, unit_system: str
) -> pd.DataFrame:
    """Return the rows of results folders; `tunebench.load` documents the parameters."""
    _check("rows", rows, ROWS)
    _check("units", unit_system, UNITS)
    if not folders:
        raise SelectionError("no results folder is named; give one, or a list of results folders")
    table = load_table(folders, baseline=baseline)
    selected = getattr(table, rows)
    always = COLUMNS if baseline and rows == "experiments" else ()  # these columns exist even if they are empty
    selected = selected.assign(**{name: None for name in always if name not in selected})
    if selected.empty:  # without rows, there are no other columns
        selected = selected.reindex(columns=[*OF_THE_RUN])
    elif rows in ("experiments", "runs") and not all_columns:
        selected = selected[short(selected, keep=always)]
    selected = typed(selected)
    names: dict[str, str] = {}
    means = [name for name in map(str, selected.columns) if rows == "experiments" and name in MEANS_OF_LOGS]
    if unit_system == "readable":
        selected, names = units.readable(selected)
    selected.attrs["warnings"] = list(table.warnings)
    selected.attrs["geometric_mean"] = [names.get(name, name) for name in means]
    selected.attrs |= origin.noted(folders, baseline)
    return selected


def _check(parameter: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise SelectionError(f"{parameter}={value!r}: choose {' or '.join(map(repr, known))}{suggestion(value, known)}")
