"""Write a history as one JSON document: campaigns, series with points and steps, warnings.

The file with this document also shows that Tunebench wrote the folder.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from orchestrator.compare.history.history import History
from orchestrator.measure.metrics import metric
from orchestrator.report.tables import as_json
from orchestrator.results.folder import TOOL, read_ours

DOCUMENT = "history"


def text(history: History) -> str:
    """Return the document. Numbers have full precision, and a missing number is null.

    `level` is the fitted level. `changes` are the differences from the previous campaign.
    """
    fields = asdict(history)
    for written, series in zip(fields["series"], history.series, strict=True):
        written["unit"] = metric(series.metric).unit
        for written_step, step in zip(written["steps"], series.steps, strict=True):
            written_step["change"] = step.change
    return as_json.document(tool=TOOL, document=DOCUMENT, **fields)


def is_history(path: Path) -> bool:
    """Return whether a file is a history that Tunebench wrote."""
    return (read_ours(path) or {}).get("document") == DOCUMENT
