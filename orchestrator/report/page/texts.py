"""Functions that prepare text of unknown origin for a page.

The text is put on one line, cut to a length, and escaped for charts. Pure.

The templates escape all HTML. Labels of charts are escaped here, because Plotly reads `<b>`, `<a href>` and entities in them as
markup.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from orchestrator.files.printable_text import printable
from orchestrator.measure.metrics import DASH, Show, show
from orchestrator.measure.metrics import shown as forms

LONGEST = 300


def one_line(text: object, *, width: int = LONGEST) -> str:
    """Return the text on one line. If it is longer than `width`, leave out its middle, because names differ at their ends."""
    line = " ".join(printable(str(text)).split())
    if len(line) <= width:
        return line
    head = (width - 1) // 2
    return f"{line[:head]}…{line[len(line) - (width - 1 - head) :]}"


def for_plotly(text: object, *, width: int = LONGEST) -> str:
    """Return the text on one line and escaped, for a label, tick or hover text of a chart."""
    return html.escape(one_line(text, width=width), quote=False)


def lines_for_plotly(lines: Sequence[str]) -> str:
    """Return several lines as one hover text."""
    return "<br>".join(for_plotly(line) for line in lines)


def rounded(value: float | None, *, digits: int = 6) -> float | None:
    """Return a number with this many significant digits. Return None if it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def shown(name: str, value: object) -> str:
    """Return a metric's value as people read it, on one line."""
    return one_line(show(name, value))


def seconds(value: float | None) -> str:
    return DASH if value is None else forms.text(value, Show.SECONDS)


def size(value: float | None) -> str:
    """Return a number of bytes as people read it."""
    return DASH if value is None else forms.text(value, Show.BYTES)
