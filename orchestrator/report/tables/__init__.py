"""Write a table as text: benchmarks.csv and its JSON and Markdown forms, raw_summary.csv, Parquet files, the terminal.

Functions from a table to text or bytes. They read no records and write no files: `table.load` comes before, `store` after. `cli`
prints `terminal.summary`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import SelectionError
from orchestrator.report.highlights import Highlight
from orchestrator.report.tables import as_csv, as_json, as_markdown, as_parquet
from orchestrator.results.table.columns import DETAILS, choose, matches, varying

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
    """Return a row for each experiment, without uninformative columns; `keep` and `drop` win over the defaults.

    Names may be patterns; `keep="*"` shows everything. JSON and Markdown include the highlights. Raises SelectionError for a form
    that is not in FORMATS.
    """
    asked, unwanted = tuple(keep), tuple(drop)
    keep, drop = choose(asked, unwanted)
    if form == "csv":
        own = [name for name in _of_a_file(table) if not matches(name, unwanted)]
        return as_csv.text(varying(table.experiments, keep=(*own, *keep), drop=drop).shown)
    if form == "json":
        split = varying(table.experiments, keep=("id", *keep), drop=drop)
        return as_json.text(split, table.warnings, highlights=highlights)
    if form == "markdown":
        split = varying(table.experiments, keep=keep, drop=(*drop, *DETAILS))
        return as_markdown.text(split, table.warnings, highlights=highlights, kept=asked)
    raise SelectionError(f"There is no report format {form!r}: choose one of {', '.join(FORMATS)}.")


def _of_a_file(table: ResultsTable) -> Iterator[str]:
    """Yield the columns that a file always has: the id, by which other files refer to the row, the number of runs, and what
    losses of trainings that ended early are compared by. Ids of several folders are not unique."""
    if "results" not in table.experiments:
        yield "id"
    if "runs_ok" in table.experiments and (table.experiments["runs_ok"] > 1).any():
        yield "runs_ok"
    if "stopped_early" in table.experiments and table.experiments["stopped_early"].notna().any():
        yield from ("stopped_early", "steps", "logged_losses")


def raw_summary(table: ResultsTable) -> str:
    """Return everything of every run as CSV: one row per run, all columns."""
    return as_csv.text(table.runs)


def parquet(table: ResultsTable, *, drop: Iterable[str] = ()) -> dict[str, bytes]:
    """Return file name → Parquet of all columns that are not dropped: experiments, runs, ranks, devices. Raises OrchestratorError
    if pyarrow is not installed."""
    drop, frames = tuple(drop), {"benchmarks": table.experiments, "raw_summary": table.runs}
    frames |= {name: frame for name, frame in (("ranks", table.ranks), ("devices", table.devices)) if len(frame)}
    return {f"{name}.parquet": as_parquet.content(_without(frame, drop)) for name, frame in frames.items()}


def _without(frame: pd.DataFrame, drop: Sequence[str]) -> pd.DataFrame:
    return frame[[name for name in frame.columns if not matches(str(name), drop)]]


def parts(table: ResultsTable) -> dict[str, str]:
    """Return file name → CSV of the parts of runs: `ranks.csv` (a row per training process), `devices.csv` (a row per GPU)."""
    frames = {"ranks.csv": table.ranks, "devices.csv": table.devices}
    return {name: as_csv.text(frame) for name, frame in frames.items() if len(frame)}
