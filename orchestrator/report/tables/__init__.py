"""A table as text: benchmarks.csv, the same table as JSON and Markdown, raw_summary.csv, Parquet files, and text for the terminal.

All functions turn a table into text or bytes. They read and write no files. `cli` prints `terminal.summary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import SelectionError
from orchestrator.report.highlights import Highlight
from orchestrator.report.tables import as_csv, as_json, as_markdown, as_parquet
from orchestrator.report.tables.columns import for_markdown, given, marks
from orchestrator.results.table.baseline import DOUBT
from orchestrator.results.table.column_choice import choose, column, has_values, matches, varying

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

FORMATS = ("csv", "json", "markdown")


def benchmarks(
    table: ResultsTable,
    *,
    form: str = "csv",
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    highlights: Sequence[Highlight] = (),
) -> str:
    """Return a text with a row for each experiment. Uninformative columns are left out, but `keep` and `drop` override this.

    Names may be patterns; `keep="*"` shows everything. JSON and Markdown include the highlights. Raise SelectionError for a format
    that is not in FORMATS.
    """
    requested, unwanted = tuple(keep), tuple(drop)
    keep, drop = choose(requested, unwanted)
    if form == "csv":
        always = [name for name in _always_in_files(table) if not matches(name, unwanted)]
        return as_csv.text(varying(table.experiments, keep=(*always, *keep), drop=drop).shown)
    if form == "json":
        split = varying(table.experiments, keep=("id", *keep), drop=drop)
        return as_json.text(split, table.warnings, highlights=highlights)
    if form == "markdown":
        split, first = for_markdown(table.experiments, keep=requested, drop=unwanted)
        return as_markdown.text(
            split,
            table.warnings,
            highlights=highlights,
            kept=first,
            always=requested,
            given=given(table),
            marks=marks(table),
        )
    raise SelectionError(f"{form!r} is not a format of a report; choose {', '.join(FORMATS)}")


def _always_in_files(table: ResultsTable) -> Iterator[str]:
    """Yield the columns that a file has even if they are constant.

    Other files refer to a row by its id, which is unique only in one folder. A reader of a mean needs the number of its runs. To
    compare the losses of trainings that ended early, a reader needs their steps and logged losses. Without a doubt that all rows
    have, a reader takes their speeds for claims. Without the machine and the data, `compare` judges numbers of two machines.
    """
    facts = ("device", "gpu_device_name", "data", "monitors", "neighbours", DOUBT)
    yield from (name for name in facts if has_values(table.experiments, name))
    named = column(table.experiments, "gpu_device_name")
    unnamed = [gpus for name, gpus in zip(named, column(table.experiments, "provenance_gpus"), strict=True) if not name]
    if any(unnamed):
        yield "provenance_gpus"
    if not all(unnamed):
        yield "provenance_host_cpu"
    if "results" not in table.experiments:
        yield "id"
    if "runs_ok" in table.experiments and (table.experiments["runs_ok"] > 1).any():
        yield "runs_ok"
    if "stopped_early" in table.experiments and table.experiments["stopped_early"].notna().any():
        yield from ("stopped_early", "steps", "logged_losses")


def raw_summary(table: ResultsTable) -> str:
    """Return all columns of all runs as CSV, with one row per run."""
    return as_csv.text(table.runs)


def parquet(table: ResultsTable, *, drop: Iterable[str] = ()) -> dict[str, bytes]:
    """Return a dict from name to Parquet file, with all columns except those in `drop`.

    Raise OrchestratorError if pyarrow is not installed.
    """
    frames, drop = {"benchmarks": table.experiments, "raw_summary": table.runs, **_parts(table)}, tuple(drop)
    kept = {
        name: frame[[column for column in frame.columns if not matches(str(column), drop)]]
        for name, frame in frames.items()
    }
    return {f"{name}.parquet": as_parquet.content(frame) for name, frame in kept.items()}


def parts(table: ResultsTable) -> dict[str, str]:
    """Return a dict from name to CSV file.

    `ranks.csv` has a row for each training process, and `devices.csv` has a row for each GPU.
    """
    return {f"{name}.csv": as_csv.text(frame) for name, frame in _parts(table).items()}


def _parts(table: ResultsTable) -> dict[str, pd.DataFrame]:
    frames = {"ranks": table.ranks, "devices": table.devices}
    return {name: frame for name, frame in frames.items() if len(frame)}
