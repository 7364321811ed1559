"""The function behind `tunebench.load`: results folders as one frame, with the types in docs/metrics.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import SelectionError, suggestion
from orchestrator.report.write import load_table
from orchestrator.results.table.baseline import COLUMNS
from orchestrator.results.table.column_types import typed
from orchestrator.results.table.load import OF_THE_RUN

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("experiments", "runs", "ranks", "devices")


def frame(folders: Sequence[Path], *, rows: str, baseline: Sequence[str]) -> pd.DataFrame:
    """Return the rows of results folders; `tunebench.load` documents the parameters."""
    if rows not in ROWS:
        raise SelectionError(f"rows={rows!r}: there are no such rows{suggestion(rows, ROWS)}")
    if not folders:
        raise SelectionError("no results folder is named; give one, or a list of results folders")
    table = load_table(folders, baseline=baseline)
    selected = getattr(table, rows)
    if baseline and rows == "experiments":  # the columns of the comparison exist even if they are empty
        selected = selected.assign(**{name: None for name in COLUMNS if name not in selected})
    if selected.empty:  # without rows, there are no other columns
        selected = selected.reindex(columns=[*OF_THE_RUN])
    selected = typed(selected)
    selected.attrs["warnings"] = list(table.warnings)
    return selected
