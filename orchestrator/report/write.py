"""The steps of `tunebench report`, and of the report at the end of a campaign: load, find, show, write.

Each function is one step; `cli` calls them and prints. Heavy modules (pandas, plotly) are imported by the steps that need them.
The report of one results folder that Tunebench made is written into this folder. The report of several folders, or of a folder that
Tunebench did not make, is written into the folder that `--output` names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orchestrator.errors import ResultsError, SelectionError, suggestion
from orchestrator.files.reading import resolved
from orchestrator.files.redaction import redact
from orchestrator.report.format import Format
from orchestrator.results import folder as results_folder
from orchestrator.results.store import Store
from orchestrator.results.table.column_choice import no_such

if TYPE_CHECKING:
    from rich.console import RenderableType

    from orchestrator.records.price import Price
    from orchestrator.report.highlights import Highlight
    from orchestrator.results.table.load import ResultsTable
    from orchestrator.results.table.pivots import View

# Formats that go to stdout if only one of them is requested.
OF_TEXT = (Format.CSV, Format.JSON, Format.MARKDOWN)

PAGE, MARKER = "report.html", "tunebench-report.json"
_NAMES = {Format.CSV: "benchmarks.csv", Format.JSON: "benchmarks.json", Format.MARKDOWN: "report.md"}
_ENDINGS = {Format.CSV: "csv", Format.JSON: "json", Format.MARKDOWN: "md"}
_SUFFIXES = (*(f".{ending}" for ending in _ENDINGS.values()), ".html", ".parquet")
Content = Callable[[], str | bytes]
Write = Callable[[str, str | bytes], Path]
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A table with its findings, and the user's choice of columns and view."""

    table: ResultsTable
    folders: tuple[Path, ...]
    highlights: tuple[Highlight, ...] = ()
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    view: View | None = None
    view_name: str = ""


def report_of(
    folders: Sequence[Path],
    *,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    baseline: Sequence[str] = (),
    pivot: str | None = None,
    group_by: str | None = None,
    price: Price | None = None,
) -> Report:
    """Return the report of one or more results folders. `with_findings` adds its findings later.

    The costs are at this price, else at the folders' own prices. Raise ResultsError if a folder cannot be read, and
    SelectionError if a choice matches nothing.
    """
    if pivot and group_by:
        raise SelectionError("--pivot and --group-by cannot be combined; give only one of them")
    table = load_table(folders, baseline=baseline, price=price)
    return Report(
        table=table,
        folders=tuple(folders),
        keep=tuple(keep),
        drop=tuple(drop),
        view=_view(table, pivot=pivot, group_by=group_by),
        view_name="pivot" if pivot else "groups",
    )


def with_findings(report: Report) -> Report:
    """Return the report with its findings in sentences."""
    from orchestrator.report.highlights import highlights

    return replace(report, highlights=highlights(report.table))


def load_table(folders: Sequence[Path], *, baseline: Sequence[str] = (), price: Price | None = None) -> ResultsTable:
    """Return the results of one or more folders, compared with references.

    The user names some references in `baseline`, and Tunebench chooses the other references.
    """
    from orchestrator.results.table.baseline import with_baseline
    from orchestrator.results.table.load import load

    return with_baseline(load(folders, price=price), baseline)


def _view(table: ResultsTable, *, pivot: str | None, group_by: str | None) -> View | None:
    if not (pivot or group_by):
        return None
    from orchestrator.results.table import pivots

    return pivots.pivot(table, pivot) if pivot else pivots.group_by(table, str(group_by))


def forms_of(words: str | None) -> tuple[Format, ...]:
    """Return the formats that `--format` requests, in the requested order. Raise SelectionError for an unknown format."""
    names = [word.strip() for word in (words or "").split(",") if word.strip()]
    known = [form.value for form in Format]
    for name in names:
        if name not in known:
            raise SelectionError(f"--format {words}: {name!r} is not allowed{suggestion(name, known)}")
    return tuple(dict.fromkeys(map(Format, names)))


def is_one_text(forms: Sequence[Format]) -> bool:
    """Return whether the only requested format is a text. Such a text goes to stdout."""
    return len(forms) == 1 and forms[0] in OF_TEXT


def are_files(forms: Sequence[Format]) -> bool:
    """Return whether the formats request files, and not only output on the terminal."""
    return not is_one_text(forms) and any(form is not Format.TABLE for form in forms)


def unknown_columns(table: ResultsTable, names: Sequence[str]) -> list[str]:
    """Return a sentence for each name of `--keep` and `--drop` that is not a column. Patterns are allowed to match nothing."""
    known = {str(name) for frame in (table.experiments, table.runs) for name in frame.columns}
    plain = [name for name in names if not set("*?[") & set(name)]
    return [no_such(name, known) for name in plain if name not in known]


def on_terminal(report: Report, *, width: int) -> RenderableType:
    """Return the report for a terminal of `width` columns."""
    if report.view is not None:
        from orchestrator.report.tables import views

        return views.terminal(report.view, width=width)
    from orchestrator.report.tables import terminal

    return terminal.summary(report.table, width=width, keep=report.keep, drop=report.drop, highlights=report.highlights)


def as_text(report: Report, form: Format) -> str:
    """Return the report as CSV, JSON or Markdown."""
    if report.view is not None:
        from orchestrator.report.tables import views

        return views.text(report.view, form.value)
    from orchestrator.report.tables import benchmarks

    return benchmarks(report.table, form=form.value, keep=report.keep, drop=report.drop, highlights=report.highlights)


def files(report: Report, forms: Sequence[Format]) -> Iterator[tuple[str, Content]]:
    """Yield the name of each file of the requested formats, with a function that makes its content."""
    for form in dict.fromkeys(forms):
        yield from _files(report, form) if report.view is None else _files_of_view(report, report.view, form)


def _files(report: Report, form: Format) -> Iterator[tuple[str, Content]]:
    from orchestrator.report.tables import parquet, parts, raw_summary

    if form in _NAMES:
        yield _NAMES[form], partial(as_text, report, form)
    if form is Format.CSV:
        yield "raw_summary.csv", partial(raw_summary, report.table)
        yield from ((name, partial(str, text)) for name, text in parts(report.table).items())
    elif form is Format.PARQUET:
        tables = parquet(report.table, drop=report.drop)
        yield from ((name, partial(bytes, content)) for name, content in tables.items())
    elif form is Format.HTML:
        yield PAGE, partial(page, report)


def _files_of_view(report: Report, view: View, form: Format) -> Iterator[tuple[str, Content]]:
    from orchestrator.report.page.view_page import view_page
    from orchestrator.report.tables import as_parquet

    if form in _ENDINGS:
        yield f"{report.view_name}.{_ENDINGS[form]}", partial(as_text, report, form)
    elif form is Format.PARQUET:
        yield f"{report.view_name}.parquet", partial(as_parquet.content, view.frame)
    elif form is Format.HTML:
        yield f"{report.view_name}.html", partial(view_page, view)


def page(report: Report) -> str:
    """Return the report as one HTML page."""
    from orchestrator.report.page import report_page

    return report_page(report.table, roots=report.folders, highlights=report.highlights)


def or_sentence(make: Callable[[], Made], *, what: str) -> tuple[Made | None, str | None]:
    """Return the result of `make`, or a sentence that says why it failed.

    Use this function for work after the numbers are on disk. The campaign's exit code is then known, and a full disk or a
    defect of Tunebench must not change it.
    """
    try:
        return make(), None
    except ResultsError as error:
        return None, f"{what} cannot be made: {error}"
    except Exception as error:
        defect = " ".join(f"{type(error).__name__}: {error}".split())
        return None, f"{what} cannot be made because of a defect of tunebench ({defect:.200}); the numbers are written"


def writer(folders: Sequence[Path], output: Path | None) -> Write | None:
    """Return a function that writes one file of the report, and takes its name and its content.

    The files are written into `output`, or else into the only results folder. Without `output`, return None if there are several
    folders, or if Tunebench did not make the only folder. Raise ResultsError if the folder `output` has files that Tunebench did
    not make, or cannot be written. It is made with the first file: a report that is refused leaves nothing behind.
    """
    own = folders[0] if len(folders) == 1 and results_folder.is_ours(folders[0]) else None
    if output is not None and (own is None or resolved(output) != resolved(own)):
        return _aside(output, folders)
    return None if own is None else Store.resume(own).write


def _aside(output: Path, folders: Sequence[Path]) -> Write:
    """Return a function that writes into a separate folder: a new or empty folder, or an earlier report of Tunebench."""
    if results_folder.is_ours(output):
        raise ResultsError(f"--output {output}: this is a results folder; name a new or an empty folder")
    if is_new := results_folder.read_ours(output / MARKER) is None:
        if output.suffix.lower() in _SUFFIXES and not output.exists():
            raise ResultsError(
                f"--output {output}: this is the name of a file; name a folder, or redirect a text: --format markdown > FILE"
            )
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise ResultsError(f"--output {output}: the folder has other files; name a new or an empty folder")
        _refuse_unwritable(output)

    def write(name: str, content: str | bytes) -> Path:
        if is_new and not (output / MARKER).exists():
            mark = {"tool": results_folder.TOOL, "report_of": [redact(str(resolved(folder))) for folder in folders]}
            results_folder.write_into(output, MARKER, json.dumps(mark, indent=2) + "\n")
        return results_folder.write_into(output, name, content)

    return write


def _refuse_unwritable(output: Path) -> None:
    """Raise ResultsError if the folder cannot be made or written, before the results are read, which may take long."""
    there = next(path for path in (output, *output.parents) if os.path.lexists(path))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise ResultsError(f"--output {output}: nothing can be written into {there}; name another folder")
