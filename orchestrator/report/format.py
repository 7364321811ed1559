"""How a report can be written."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """The forms of a report. `table` is for a terminal; `html` and `parquet` are files."""

    TABLE = "table"
    HTML = "html"
    CSV = "csv"
    MARKDOWN = "markdown"
    JSON = "json"
    PARQUET = "parquet"
