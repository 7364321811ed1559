"""Write a frame as CSV that loads straight into pandas: full precision, whole numbers whole, missing cells empty.

Text is quoted only if needed. Python's own writer leaves a lone carriage return unquoted, and readers take it for the end of a
line. Therefore the quoting is done here.

A text that begins with `=`, `+`, `-` or `@` is not changed, although a spreadsheet takes it for a formula. The file is for
programs, and pandas must read back what the trainer was given. Quotes do not help. Every other remedy changes the text (an
apostrophe or a blank before it), and no reader removes it again. Instead `vetting` finds such cells, and a warning with the
report names them. Markdown, JSON, the terminal and pages, which people look at, do escape. NUL, which no C reader can read,
becomes its picture ␀.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.results.table.columns import cells
from orchestrator.results.table.rows import Value

if TYPE_CHECKING:
    import pandas as pd

_NEEDS_QUOTES = frozenset(',"\r\n')


def text(frame: pd.DataFrame) -> str:
    """Return CSV with a header line; lines end with a newline on every system."""
    columns = [_fields(frame[name]) for name in frame.columns]
    return _line(map(_field, frame.columns)) + "".join(map(_line, zip(*columns, strict=True)))


def rows_text(rows: Iterable[Mapping[str, Value]], names: Sequence[str]) -> str:
    """Return CSV of these columns, with a header line; a value that a row does not have is an empty cell."""
    return _line(map(_field, names)) + "".join(_line(_field(row.get(name)) for name in names) for row in rows)


def _line(fields: Iterable[str]) -> str:
    return (",".join(fields) or '""') + "\n"  # an empty line would be no row at all


def _fields(column: pd.Series[Any]) -> list[str]:
    """Return a column's fields. Only texts are searched for what needs quotes, each distinct text once."""
    values = cells(column)
    if str(column.dtype) in ("Int64", "Float64", "boolean"):
        return ["" if value is None else str(value) for value in values]
    known: dict[object, str] = {value: _field(value) for value in set(values)}
    return [known[value] for value in values]


def _field(value: object) -> str:
    text = "" if value is None else str(value).replace("\0", "␀")
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.intersection(text) else text
