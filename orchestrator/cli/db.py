"""The commands of `tunebench db`: collect the runs of many campaigns in a database, and ask it questions in SQL."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.help import Actions, Command, examples
from orchestrator.cli.terminal.console import out, print_raw, say, tell, tell_warnings
from orchestrator.errors import OrchestratorError, suggestion

if TYPE_CHECKING:
    from orchestrator.report.tables.sql import Answer


class Form(StrEnum):
    """The formats of a printed answer."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


# The suffix of a file sets its format.
_FORMS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
Database = Annotated[Path, typer.Option("--db", help="Database folder.")]
DATABASE = Path("tunebench_db")
db = typer.Typer(cls=Actions, no_args_is_help=True, epilog=examples("db"), rich_markup_mode=None)


@db.callback()
def _db() -> None:
    """Collect the runs of many campaigns in a database of Parquet files, and ask it questions in SQL."""


@db.command(cls=Command)
def add(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Results folders.")],
    database: Database = DATABASE,
) -> None:
    """Add the runs of results folders to a database. Runs that the database already has are left out."""
    from orchestrator.compare.sides import folders as sides
    from orchestrator.report.export import database as database_files
    from orchestrator.results.store import Store
    from orchestrator.results.table.sources.database import refuse_without_pyarrow

    refuse_without_pyarrow("a database")
    for folder in folders:
        Store.resume(folder)  # a mistake in the last name must not come after minutes of work
    database_files.make(database)
    for folder in folders:
        read = sides.read(folder)
        tell_warnings([f"{folder}: {warning}" for warning in read.warnings])
        added = database_files.add(database, folder, read.rows)
        say(f"{folder}: {added.new} new run(s), {added.already} there already{f': {added.file}' if added.file else ''}")


@db.command(cls=Command)
def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="Query about the table `runs`, which has a row for each run.")
    ],
    database: Database = DATABASE,
    form: Annotated[Form, typer.Option("--format", help="Format of the output.")] = Form.TABLE,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Write all rows to this file; it must not exist. Its suffix sets the format: .csv, .json, .parquet."
        ),
    ] = None,
) -> None:
    """Answer a query in SQL about the runs of a database. A query reads only the database, and changes no file."""
    from orchestrator.report.tables import sql as queries

    if output is not None:
        _refuse(output)
    before = signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # DuckDB does not return to Python before its answer is complete
    answer = queries.query(database, sql)
    signal.signal(signal.SIGINT, before)
    if output is not None:
        _write(output, answer)
    elif form is Form.TABLE:
        out().print(queries.terminal(answer, width=out().width))
    else:
        print_raw([queries.text(answer, form.value)])


def _refuse(path: Path) -> None:
    """Raise OrchestratorError if an answer cannot be written to this file."""
    if path.suffix.lower() not in _FORMS:
        raise OrchestratorError(f"--output {path}: unknown suffix {path.suffix!r}{suggestion(path.suffix, _FORMS)}")
    if path.exists() or path.is_symlink():
        raise OrchestratorError(f"--output {path}: the file exists; name a new file, or remove this one")


def _write(path: Path, answer: Answer) -> None:
    from orchestrator.files import writing
    from orchestrator.report.tables import sql as queries

    form = _FORMS[path.suffix.lower()]
    content = queries.parquet(answer) if form == "parquet" else queries.text(answer, form)
    if not writing.place_new(path, content):
        _refuse(path)
    tell(f"wrote {path}")
