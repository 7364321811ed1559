"""A pivot, or the means of groups, as a page with one table and without charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.measure.metrics import metric, show
from orchestrator.report.page import shell
from orchestrator.results.table.column_choice import cells
from orchestrator.results.table.pivots import shown_to_people

if TYPE_CHECKING:
    from orchestrator.results.table.pivots import View


def view_page(view: View) -> str:
    """Return the page as HTML."""
    shown = shown_to_people(view)
    names = [str(name) for name in shown.frame.columns]
    numbers = [str(shown.frame[name].dtype) in ("Int64", "Float64") for name in names]
    columns = [[show(shown.means(name), value) for value in cells(shown.frame[name])] for name in names]
    headings = [name if name in shown.named else metric(name).label for name in names]
    rows = [list(zip(row, numbers, strict=True)) for row in zip(*columns, strict=True)]
    body = shell.render("view.html", headings=list(zip(headings, numbers, strict=True)), rows=rows, notes=shown.notes)
    section = shell.Section(id="table", title="Table", body=body)
    return shell.document(title=shown.title, sections=[section], data=shell.page_data([]), with_charts=False)
