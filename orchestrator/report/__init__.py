"""Texts of a table: benchmarks.csv and its JSON and Markdown forms, raw_summary.csv, and what a terminal shows.

Functions from a table to text. They read no records and write no files: `table.load` comes before, `store` after, and
`terminal.summary` is what `cli` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orchestrator.columns import DETAILS, choose, varying
from orchestrator.errors import SelectionError
from orchestrator.report import as_csv, as_json, as_markdown

if TYPE_CHECKING:
    from orchestrator.table import ResultsTable

FORMATS = ("csv", "json", "markdown")


def benchmarks(table: ResultsTable, *, form: str = "csv", keep: Iterable[str] = (), drop: Iterable[str] = ()) -> str:
    """One row an experiment, without the columns that say nothing; `keep` and `drop` stand above the defaults.

    Names may be patterns; `keep="*"` shows everything. Raises SelectionError for a form that is not in FORMATS.
    """
    keep, drop = choose(keep, drop)
    if form == "csv":
        return as_csv.text(varying(table.experiments, keep=keep, drop=drop).shown)
    if form == "json":
        return as_json.text(varying(table.experiments, keep=("id", *keep), drop=drop), table.warnings)
    if form == "markdown":
        return as_markdown.text(varying(table.experiments, keep=keep, drop=(*drop, *DETAILS)), table.warnings)
    raise SelectionError(f"There is no report format {form!r}: choose one of {', '.join(FORMATS)}.")


def raw_summary(table: ResultsTable) -> str:
    """Everything of every run as CSV: one row a run, all columns."""
    return as_csv.text(table.runs)


def parts(table: ResultsTable) -> dict[str, str]:
    """File name → CSV of what a run consists of: `ranks.csv`, a row a training process, and `devices.csv`, a row a GPU."""
    frames = {"ranks.csv": table.ranks, "devices.csv": table.devices}
    return {name: as_csv.text(frame) for name, frame in frames.items() if len(frame)}
