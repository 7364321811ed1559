"""Write a pivot, or the means of groups, in every form: for a terminal, as CSV, JSON, Markdown and Parquet.

CSV, JSON and Parquet have full precision in base units; people see numbers with units.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.errors import SelectionError
from orchestrator.files.markdown import sentence
from orchestrator.files.printable_text import printable
from orchestrator.measure.metrics import show
from orchestrator.report.tables import as_csv, as_json, as_markdown
from orchestrator.results.table.columns import cells
from orchestrator.results.table.pivots import View, shown_to_people


def text(view: View, form: str) -> str:
    """Return the view as csv, json or markdown. Raises SelectionError for another form."""
    if form == "csv":
        return as_csv.text(view.frame)
    if form == "json":
        return as_json.view(view)
    if form == "markdown":
        seen = shown_to_people(view)
        notes = "".join(f"\n\n{sentence(note)}." for note in seen.notes)
        return f"{sentence(seen.title)}:\n\n{as_markdown.grid(seen.frame, named=seen.named)}{notes}\n"
    raise SelectionError(f"There is no form {form!r} of it: choose one of csv, json, markdown.")


def terminal(view: View, *, width: int) -> RenderableType:
    """Return the view for a terminal of `width` columns; columns that do not fit are named, never squeezed."""
    seen = shown_to_people(view)
    names = [str(name) for name in seen.frame.columns]
    columns = {name: [printable(show(seen.means(name), value)) for value in cells(seen.frame[name])] for name in names}
    fitting = _fitting(columns, as_markdown.headings(names), width)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for name, heading in zip(names, as_markdown.headings(names), strict=True):
        if name in fitting:
            right = as_markdown.is_number(seen.frame, name, named=seen.named)
            table.add_column(Text(printable(heading)), justify="right" if right else "left", overflow="fold")
    for row in zip(*(columns[name] for name in names if name in fitting), strict=True):
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [Text(printable(seen.title), style="bold"), table]
    left_out = [name for name in names if name not in fitting]
    if left_out:
        parts.append(Text(printable(f"Columns that do not fit here: {', '.join(left_out)}"), style="dim"))
    return Group(*parts, *(Text(printable(note), style="dim") for note in seen.notes))


def _fitting(columns: dict[str, list[str]], headings: Sequence[str], width: int) -> set[str]:
    """Return as many columns from the left as fit, at least one."""
    left, fitting = width, set[str]()
    for (name, values), heading in zip(columns.items(), headings, strict=True):
        widest = max(
            [Text(value).cell_len for value in values] + [Text(word).cell_len for word in heading.split()] + [1]
        )
        if widest <= left or not fitting:
            fitting.add(name)
            left -= widest + _GAP
        else:
            break
    return fitting


_GAP = 3
