"""A frame as CSV that loads directly into pandas: full precision, whole numbers without a point, missing cells empty.

Text is quoted only if needed. Python's `csv` is not used, because it does not quote a single carriage return. Readers take an
unquoted carriage return for the end of a line.

A text that begins with `=`, `+`, `-` or `@` is not changed, although a spreadsheet takes it for a formula. The file is for
programs, and pandas must read the text that the trainer received. Quotes would not stop a spreadsheet. An added apostrophe or blank
would become a part of the text that a program reads. Instead, `table.foreign_rows` finds such cells, and a warning of the report
names them. Formats for people escape such texts. Readers written in C cannot read NUL, so it becomes the visible sign ␀.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.results.table.column_choice import cells
from orchestrator.results.table.rows import Value

if TYPE_CHECKING:
    import pandas as pd

_NEEDS_QUOTES = frozenset(',"\r\n')


def text(frame: pd.DataFrame) -> str:
    """Return CSV with a header line; lines end with a newline on every system."""
    columns = [_fields(frame[name]) for name in frame.columns]
    return _line(map(_field, frame.columns)) + "".join(map(_line, zip(*columns, strict=True)))


def rows_text(rows: Iterable[Mapping[str, Value]], names: Sequence[str]) -> str:
    """Return CSV of these columns, with a header line. If a row lacks a value, its cell is empty."""
    return _line(map(_field, names)) + "".join(_line(_field(row.get(name)) for name in names) for row in rows)


def _line(fields: Iterable[str]) -> str:
    return (",".join(fields) or '""') + "\n"  # readers skip an empty line


def _fields(column: pd.Series[Any]) -> list[str]:
    """Return the fields of a column. Only texts are quoted, and each distinct text is examined once."""
    values = cells(column)
    if str(column.dtype) in ("Int64", "Float64", "boolean"):
        return ["" if value is None else str(value) for value in values]
    known: dict[object, str] = {value: _field(value) for value in set(values)}
    return [known[value] for value in values]


def _field(value: object) -> str:
    text = "" if value is None else str(value).replace("\0", "␀")
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.intersection(text) else text
