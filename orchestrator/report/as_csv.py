"""A frame as CSV text that loads straight into pandas: full precision, whole numbers whole, missing cells empty.

Text in, text out; `store` writes files. Quotes only where a text needs it. Python's own writer leaves a lone carriage
return unquoted, which readers take for the end of a line; therefore the quoting is here.

A text that begins with `=`, `+`, `-` or `@` stays as it is, although a spreadsheet takes it for a formula: the file is for
programs, and what pandas reads back is what the trainer was given. Each known cure changes the text (an apostrophe or a blank
before it, which every reader would have to take away again and none does), and quotes do not help. Instead `vetting` finds the
cells on which a spreadsheet would act, and a warning beside the report says so: names and arguments hold none unless somebody
meant it. Markdown, JSON, the terminal and pages, which people look at, escape. One character no C reader gets past: NUL
stands as its picture ␀.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.columns import cells
from orchestrator.rows import Value

if TYPE_CHECKING:
    import pandas as pd

_NEEDS_QUOTES = frozenset(',"\r\n')


def text(frame: pd.DataFrame) -> str:
    """CSV with a header line; lines end with a newline on every system."""
    columns = [_fields(frame[name]) for name in frame.columns]
    return _line(map(_field, frame.columns)) + "".join(map(_line, zip(*columns, strict=True)))


def rows_text(rows: Iterable[Mapping[str, Value]], names: Sequence[str]) -> str:
    """Return CSV of these columns, with a header line; a value that a row does not have is an empty cell."""
    return _line(map(_field, names)) + "".join(_line(_field(row.get(name)) for name in names) for row in rows)


def _line(fields: Iterable[str]) -> str:
    return (",".join(fields) or '""') + "\n"  # an empty line would be no row at all


def _fields(column: pd.Series[Any]) -> list[str]:
    """A column's fields; only texts are looked through for what needs quotes, each different one once."""
    values = cells(column)
    if str(column.dtype) in ("Int64", "Float64", "boolean"):
        return ["" if value is None else str(value) for value in values]
    known: dict[object, str] = {value: _field(value) for value in set(values)}
    return [known[value] for value in values]


def _field(value: object) -> str:
    text = "" if value is None else str(value).replace("\0", "␀")
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.intersection(text) else text
