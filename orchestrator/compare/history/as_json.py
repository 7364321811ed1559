"""Write a history as one JSON document: campaigns, series with points and steps, warnings. It marks a folder as ours."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from orchestrator.compare.history.history import History
from orchestrator.measure.metrics import metric
from orchestrator.report.tables import as_json
from orchestrator.results.folder import TOOL, read_ours

DOCUMENT = "history"


def text(history: History) -> str:
    """Return the document. Numbers have full precision, missing is null. `level` is the fitted level; `changes` are against the
    campaign before."""
    fields = asdict(history)
    for series, one in zip(fields["series"], history.series, strict=True):
        series["unit"] = metric(one.metric).unit
        for step, found in zip(series["steps"], one.steps, strict=True):
            step["change"] = found.change
    return as_json.document(tool=TOOL, document=DOCUMENT, **fields)


def is_one(path: Path) -> bool:
    """Return whether a file is such a document."""
    return (read_ours(path) or {}).get("document") == DOCUMENT
