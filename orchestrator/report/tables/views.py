"""A pivot, or the means of groups, for a terminal and as CSV, JSON and Markdown.

CSV and JSON have full precision in base units; people see numbers with units.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.errors import SelectionError
from orchestrator.files.markdown import sentence
from orchestrator.files.printable_text import printable
from orchestrator.measure.metrics import show
from orchestrator.report.tables import as_csv, as_json, as_markdown
from orchestrator.report.tables.terminal import GAP, empty_table, unshown
from orchestrator.results.table.column_choice import cells
from orchestrator.results.table.pivots import View, shown_to_people


def text(view: View, form: str) -> str:
    """Return the view as csv, json or markdown. Raise SelectionError for another format."""
    if form == "csv":
        return as_csv.text(view.frame)
    if form == "json":
        return as_json.view(view)
    if form == "markdown":
        shown = shown_to_people(view)
        notes = "".join(f"\n\n{sentence(note)}." for note in shown.notes)
        return f"{sentence(shown.title)}:\n\n{as_markdown.grid(shown.frame, named=shown.named)}{notes}\n"
    raise SelectionError(f"{form!r} is not a format of pivots and groups; choose csv, json or markdown")


def terminal(view: View, *, width: int) -> RenderableType:
    """Return the view for a terminal of `width` columns. Columns that do not fit are listed below the table."""
    shown = shown_to_people(view)
    names = [str(name) for name in shown.frame.columns]
    columns = [[printable(show(shown.means(name), value)) for value in cells(shown.frame[name])] for name in names]
    headings = [printable(heading) for heading in as_markdown.headings(names)]
    fit = fitting(columns, headings, width)
    table = empty_table()
    for name, heading in list(zip(names, headings, strict=True))[:fit]:
        right = as_markdown.is_number(shown.frame, name, named=shown.named)
        table.add_column(Text(heading), justify="right" if right else "left", overflow="fold")
    for row in zip(*columns[:fit], strict=True):
        table.add_row(*map(Text, row))
    notes = (Text(printable(note), style="dim") for note in shown.notes)
    return Group(Text(printable(shown.title), style="bold"), table, *unshown(names[fit:]), *notes)


def fitting(columns: Sequence[Sequence[str]], headings: Sequence[str], width: int) -> int:
    """Return the number of columns that fit, counted from the left. It is at least one."""
    left = width
    for place, (values, heading) in enumerate(zip(columns, headings, strict=True)):
        widest = max(1, *(Text(word).cell_len for word in (*values, *heading.split())))
        if widest > left and place:
            return place
        left -= widest + GAP
    return len(columns)
