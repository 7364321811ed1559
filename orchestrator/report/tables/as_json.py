"""A table as one JSON document for programs: the varying columns of each experiment, shared values, highlights, warnings.

Numbers have full precision; a missing value is null. A table must not contain NaN or infinity: either of them raises ValueError.
Terminal control characters become `\\uXXXX`, so that the text can be printed; a reader gets the same value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from orchestrator.files.printable_text import escaped
from orchestrator.report.highlights import Highlight
from orchestrator.results.table.column_choice import Split, cells
from orchestrator.results.table.pivots import View
from orchestrator.results.table.rows import Value

if TYPE_CHECKING:
    import pandas as pd


def text(split: Split, warnings: Sequence[str], *, highlights: Sequence[Highlight] = ()) -> str:
    """Return `{"experiments": [{column: value}], "constant": {column: value}, "highlights": [{kind, text, experiments}],
    "warnings": [sentence]}`."""
    return document(
        experiments=_rows(split.shown),
        constant=dict(split.constant),
        highlights=[asdict(highlight) for highlight in highlights],
        warnings=list(warnings),
    )


def view(view: View) -> str:
    """Return `{"title": sentence, "rows": [{column: value}], "notes": [sentence]}`."""
    return document(title=view.title, rows=_rows(view.frame), notes=list(view.notes))


def _rows(frame: pd.DataFrame) -> list[dict[str, Value]]:
    columns = {str(name): cells(frame[name]) for name in frame.columns}
    return [{name: values[row] for name, values in columns.items()} for row in range(len(frame))]


def document(**fields: object) -> str:
    """Return a JSON object with these fields as the text of a file."""
    return escaped(json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False)) + "\n"
