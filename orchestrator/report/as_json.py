"""A table as one JSON document for programs: what varies by experiment, what all share, what to know beside it.

Numbers are numbers at full precision, missing is null; NaN and infinity never occur in a table, and are refused here.
What would steer a terminal stands as `\\uXXXX`, so that the text may be printed; a reader gets the same value.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from orchestrator.columns import Split, cells
from orchestrator.printable import escaped


def text(split: Split, warnings: Sequence[str]) -> str:
    """`{"experiments": [{column: value}], "constant": {column: value}, "warnings": [sentence]}`."""
    frame = split.shown
    columns = {str(name): cells(frame[name]) for name in frame.columns}
    rows = [{name: values[row] for name, values in columns.items()} for row in range(len(frame))]
    document = {"experiments": rows, "constant": dict(split.constant), "warnings": list(warnings)}
    return escaped(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)) + "\n"
