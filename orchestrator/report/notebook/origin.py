"""The folders of a frame, noted in its `attrs`, so that pictures and sentences can be made from the frame.

The notes are plain JSON values, because pandas writes `attrs` into Parquet files and copies them with every selection of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SelectionError
from orchestrator.files.reading import resolved
from orchestrator.report.write import load_table
from orchestrator.results.table.column_choice import column

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

_FOLDERS, _BASELINE = "folders", "baseline"
Key = tuple[str | None, str]


def noted(folders: Sequence[Path], baseline: Sequence[str]) -> dict[str, Any]:
    """Return the notes for `attrs`."""
    return {_FOLDERS: [str(resolved(folder)) for folder in folders], _BASELINE: list(baseline)}


def table_of(frame: pd.DataFrame) -> ResultsTable:
    """Return the table of the folders that a frame comes from. Read the folders again.

    Raise SelectionError if the frame does not say where it comes from, and ResultsError if a folder is gone.
    """
    folders = frame.attrs.get(_FOLDERS)
    if not folders:
        raise SelectionError(
            "the frame does not say which results folders it comes from; give a frame of tunebench.load, or a selection of its rows"
        )
    return load_table([Path(folder) for folder in folders], baseline=frame.attrs.get(_BASELINE, ()))


def keys(frame: pd.DataFrame) -> set[Key]:
    """Return the experiments of a frame's rows: the name of the folder (None if there is one folder) and the id of each."""
    if "id" not in frame:
        raise SelectionError("the frame has no column 'id'; keep this column, because it names the experiment of a row")
    pairs = zip(column(frame, "results"), column(frame, "id"), strict=True)
    return {(str(folder) if folder else None, str(name)) for folder, name in pairs}
