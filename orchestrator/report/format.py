"""The formats of a report."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """A format of a report. `table` is for a terminal; `html` and `parquet` are files."""

    TABLE = "table"
    HTML = "html"
    CSV = "csv"
    MARKDOWN = "markdown"
    JSON = "json"
    PARQUET = "parquet"
