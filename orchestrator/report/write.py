"""The steps of `tunebench report`, and of the end of a campaign: load, find, show, write.

Each function is one step; `cli` calls them and prints. Heavy modules (pandas, plotly) are imported by the steps that need them.
The report of one results folder of ours is written into it (`store`). That of several folders, or of foreign ones, is written
into the folder that `--output` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orchestrator.errors import ResultsError, SelectionError, suggestion
from orchestrator.report.format import Format
from orchestrator.results import folder as results_folder
from orchestrator.results.store import Store
from orchestrator.results.table.columns import no_such

if TYPE_CHECKING:
    from rich.console import RenderableType

    from orchestrator.report.highlights import Highlight
    from orchestrator.results.table.load import ResultsTable
    from orchestrator.results.table.pivots import View

# What goes to stdout when it is asked for alone.
OF_TEXT = (Format.CSV, Format.JSON, Format.MARKDOWN)

PAGE, MARKER = "report.html", "tunebench-report.json"
Content = Callable[[], str | bytes]
Write = Callable[[str, str | bytes], Path]
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """A table with its findings, and how it was requested: its columns, its baseline, its view."""

    table: ResultsTable
    folders: tuple[Path, ...]
    highlights: tuple[Highlight, ...] = ()
    baseline: str | None = None
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    view: View | None = None
    view_name: str = ""


def report_of(
    folders: Sequence[Path],
    *,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    baseline: str | None = None,
    pivot: str | None = None,
    group_by: str | None = None,
) -> Report:
    """Return the report of one or more results folders, without its findings (`with_findings`).

    Raises ResultsError, and SelectionError for a choice that matches nothing.
    """
    if pivot and group_by:
        raise SelectionError("--pivot and --group-by: give one of them")
    table = load_table(folders, baseline=baseline)
    return Report(
        table=table,
        folders=tuple(folders),
        baseline=baseline,
        keep=tuple(keep),
        drop=tuple(drop),
        view=_view(table, pivot=pivot, group_by=group_by),
        view_name="pivot" if pivot else "groups",
    )


def with_findings(report: Report) -> Report:
    """Return the report with its findings in sentences."""
    from orchestrator.report.highlights import highlights

    return replace(report, highlights=highlights(report.table, baseline=report.baseline))


def load_table(folders: Sequence[Path], *, baseline: str | None = None) -> ResultsTable:
    """Return the results of one or more folders, compared with a baseline if one is named."""
    from orchestrator.results.table.baseline import with_baseline
    from orchestrator.results.table.load import load

    table = load(folders)
    return table if baseline is None else with_baseline(table, baseline)


def _view(table: ResultsTable, *, pivot: str | None, group_by: str | None) -> View | None:
    if not (pivot or group_by):
        return None
    from orchestrator.results.table import pivots

    return pivots.pivot(table, pivot) if pivot else pivots.group_by(table, str(group_by))


def forms_of(words: str | None) -> tuple[Format, ...]:
    """Return the forms that `--format` requests, in its order; empty without it. Raises SelectionError for an unknown form."""
    names = [word.strip() for word in (words or "").split(",") if word.strip()]
    known = [form.value for form in Format]
    for name in names:
        if name not in known:
            raise SelectionError(f"--format {words}: there is no format {name!r}{suggestion(name, known)}")
    return tuple(dict.fromkeys(map(Format, names)))


def is_one_text(forms: Sequence[Format]) -> bool:
    """Return whether only one text is requested, which goes to stdout."""
    return len(forms) == 1 and forms[0] in OF_TEXT


def are_files(forms: Sequence[Format]) -> bool:
    """Return whether files are requested by their form, and not only something to look at."""
    return not is_one_text(forms) and any(form is not Format.TABLE for form in forms)


def unknown_columns(table: ResultsTable, names: Sequence[str]) -> list[str]:
    """Return a sentence for each name of `--keep` and `--drop` that matches no column; patterns may match nothing."""
    known = {str(name) for frame in (table.experiments, table.runs) for name in frame.columns}
    plain = [name for name in names if not set("*?[") & set(name)]
    return [no_such(name, known) for name in plain if name not in known]


def on_terminal(report: Report, *, width: int) -> RenderableType:
    """Return what a terminal shows of the report."""
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
    """Yield name and content of each file of the requested forms; a content is made when it is called."""
    for form in dict.fromkeys(forms):
        found = _files_of_view(report, form) if report.view is not None else _files(report, form)
        yield from found.items()


def _files(report: Report, form: Format) -> Mapping[str, Content]:
    from orchestrator.report.tables import parquet, parts, raw_summary

    table = report.table
    if form is Format.CSV:
        texts = {name: partial(str, text) for name, text in parts(table).items()}
        return {
            "benchmarks.csv": partial(as_text, report, form),
            "raw_summary.csv": partial(raw_summary, table),
            **texts,
        }
    if form is Format.PARQUET:
        return {name: partial(bytes, content) for name, content in parquet(table, drop=report.drop).items()}
    names = {Format.JSON: "benchmarks.json", Format.MARKDOWN: "report.md"}
    if form is Format.HTML:
        return {PAGE: lambda: page(report)}
    return {names[form]: lambda: as_text(report, form)} if form in names else {}


def _files_of_view(report: Report, form: Format) -> Mapping[str, Content]:
    assert report.view is not None
    view, name = report.view, report.view_name
    if form is Format.PARQUET:
        from orchestrator.report.tables import as_parquet

        return {f"{name}.parquet": lambda: as_parquet.content(view.frame)}
    if form is Format.HTML:
        from orchestrator.report.page.view_page import view_page

        return {f"{name}.html": lambda: view_page(view)}
    endings = {Format.CSV: "csv", Format.JSON: "json", Format.MARKDOWN: "md"}
    return {f"{name}.{endings[form]}": lambda: as_text(report, form)} if form in endings else {}


def page(report: Report) -> str:
    """Return the page that people look at."""
    from orchestrator.report.page import report_page

    return report_page(report.table, roots=report.folders, highlights=report.highlights, baseline=report.baseline)


def or_sentence(make: Callable[[], Made], *, what: str) -> tuple[Made | None, str | None]:
    """Return the result of `make`, or a sentence that says why it failed: for work after the numbers are on disk.

    The exit code of the campaign is then known. Neither a full disk nor a defect of ours may change it.
    """
    try:
        return make(), None
    except ResultsError as error:
        return None, f"{what} cannot be made: {error}"
    except Exception as error:
        defect = " ".join(f"{type(error).__name__}: {error}".split())
        return None, f"{what} cannot be made, a defect of tunebench ({defect:.200}); the numbers are written"


def writer(folders: Sequence[Path], output: Path | None) -> Write | None:
    """Return a function that writes a file of the report by its name: into the results folder of ours, or into `output`; else
    None.

    Raises ResultsError for an output folder with foreign files.
    """
    if output is not None and not _is_the_folder(output, folders):
        return _aside(output, folders)
    if len(folders) == 1 and results_folder.is_ours(folders[0]):
        return Store.resume(folders[0]).write
    return None


def _is_the_folder(output: Path, folders: Sequence[Path]) -> bool:
    return len(folders) == 1 and output.resolve() == folders[0].resolve() and results_folder.is_ours(output)


def _aside(output: Path, folders: Sequence[Path]) -> Write:
    """Return a function that writes into a folder of its own: a new or empty one, or one whose marker says it is a report of
    ours."""
    if results_folder.is_ours(output):
        raise ResultsError(f"--output {output}: that is a results folder; name a new or an empty folder")
    if results_folder.read_ours(output / MARKER) is None:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise ResultsError(f"--output {output}: it has other files; name a new or an empty folder")
        mark = {"tool": results_folder.TOOL, "report_of": [str(folder.resolve()) for folder in folders]}
        results_folder.write_into(output, MARKER, json.dumps(mark, indent=2) + "\n")
    return partial(results_folder.write_into, output)
