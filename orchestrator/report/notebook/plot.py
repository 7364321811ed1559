"""The functions behind `tunebench.plot`: the speed-ups of a frame's rows as a figure, and the findings about them.

Both read the frame's folders again (`origin`), since the intervals of speed-ups need the runs. The frame chooses the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.errors import SelectionError
from orchestrator.report.highlights import Highlight, HighlightKind, highlights
from orchestrator.report.notebook import origin, painting
from orchestrator.report.notebook.speedups import Comparison, drawing
from orchestrator.report.page.charts import chart_data

if TYPE_CHECKING:
    import pandas as pd

_MARKED = {HighlightKind.NOTE: "note: ", HighlightKind.WARNING: "warning: ", HighlightKind.FAILURE: "failed: "}


def speedup(frame: pd.DataFrame) -> Any:
    """Return the figure; `tunebench.plot.speedup` documents it."""
    wanted, table = origin.keys(frame), origin.table_of(frame)
    cells = chart_data.read(table, most=len(table.experiments))
    known = {cell.key: cell for cell in cells}
    compared = [
        Comparison(cell=cell, base=known[cell.base])
        for cell in cells
        if cell.key in wanted and cell.base is not None and (cell.speedup is not None or not cell.claimed)
    ]
    if not compared:
        raise SelectionError(
            "no row has a speed-up: a row needs a speed, and another experiment that differs from it in one setting and is its "
            "baseline; tunebench.load(…, baseline=…) chooses the baseline"
        )
    return painting.painted(drawing(compared))


def findings(frame: pd.DataFrame) -> list[str]:
    """Return the sentences; `tunebench.plot.findings` documents them."""
    wanted, table = {name for _, name in origin.keys(frame)}, origin.table_of(frame)
    is_whole = wanted >= {str(name) for name in table.experiments["id"]}
    return [_text(found) for found in highlights(table) if is_whole or wanted & {*found.experiments}]


def _text(found: Highlight) -> str:
    return f"{_MARKED.get(found.kind, '')}{found.text}"
