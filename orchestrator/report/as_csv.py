"""A frame as CSV text that loads straight into pandas: full precision, whole numbers whole, missing cells empty.

Text in, text out; `store` writes files. Quotes only where a text needs it. Python's own writer leaves a lone carriage
return unquoted, which readers take for the end of a line; therefore the quoting is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orchestrator.columns import cells

if TYPE_CHECKING:
    import pandas as pd

_NEEDS_QUOTES = frozenset(',"\r\n')


def text(frame: pd.DataFrame) -> str:
    """CSV with a header line; lines end with a newline on every system."""
    columns = [cells(frame[name]) for name in frame.columns]
    return _line(frame.columns) + "".join(_line(row) for row in zip(*columns, strict=True))


def _line(values: Iterable[object]) -> str:
    line = ",".join(_field(value) for value in values)
    return (line or '""') + "\n"  # an empty line would be no row at all


def _field(value: object) -> str:
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.intersection(text) else text
