"""A frame as a Parquet file that pandas loads with the types in docs/metrics.md.

It has all columns, because in Parquet a column that is not read costs no time.
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
    """Return the file. Raise OrchestratorError if pyarrow is not installed."""
    if find_spec("pyarrow") is None:  # the error of pandas is a paragraph long
        raise OrchestratorError(
            "a Parquet file needs pyarrow, which is not installed; install it with pip install 'tunebench[parquet]'"
        )
    file = io.BytesIO()
    typed(frame).to_parquet(file, engine="pyarrow", index=False)
    return file.getvalue()


def plain(frame: pd.DataFrame) -> bytes:
    """Return the file without the notes of pandas and Arrow about its columns. Such a file is opened in half of the time."""
    from pyarrow import Table, parquet

    file = io.BytesIO()
    table = Table.from_pandas(typed(frame), preserve_index=False).replace_schema_metadata(None)
    parquet.write_table(table, file, store_schema=False)
    return file.getvalue()
