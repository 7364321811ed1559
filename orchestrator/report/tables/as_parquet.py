"""Write a frame as a Parquet file that pandas loads with the types that docs/metrics.md names.

It has all columns: a column that nobody reads costs nothing there.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError
from orchestrator.results.table.column_types import typed

if TYPE_CHECKING:
    import pandas as pd


def content(frame: pd.DataFrame) -> bytes:
    """Return the file. Raises OrchestratorError if pyarrow is not installed."""
    if find_spec("pyarrow") is None:  # pandas would say it in a paragraph
        raise OrchestratorError(
            "a Parquet file needs pyarrow, which is not installed: pip install 'tunebench[parquet]'"
        )
    file = io.BytesIO()
    typed(frame).to_parquet(file, engine="pyarrow", index=False)
    return file.getvalue()
