"""Answer a query in SQL about the runs of a database, by DuckDB, and show the answer as a table, CSV, JSON or Parquet.

The only table is `runs`: the rows of all Parquet files, with the columns of all of them. A column that a file lacks is NULL there.
If its type differs between files, it is text, or a fraction if all of them are numbers. DuckDB ignores case in names, and Tunebench
does not: `_in_sql` gives a column another name if DuckDB would mistake it for a different one.

The SQL is the user's own and must not change a file. DuckDB has statements that write files, and some of them may be hidden in a
SELECT (`WITH x AS (COPY …)`). So DuckDB gets no access to files at all: pyarrow reads them, and hands over the columns and rows
that the query needs.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from orchestrator.errors import OrchestratorError, ResultsError, SelectionError
from orchestrator.files.printable_text import counted, one_line, printable
from orchestrator.files.redaction import redactor
from orchestrator.measure.metrics import FACTS, METRICS, show
from orchestrator.report.tables import as_csv, as_json, views
from orchestrator.report.tables.terminal import empty_table, unshown
from orchestrator.results.table.rows import OF_DATABASES, Value, cell
from orchestrator.results.table.sources import database

if TYPE_CHECKING:
    from rich.console import RenderableType

TABLE = "runs"
_OURS = {*METRICS, *FACTS, *OF_DATABASES}
# A terminal shows at most so many rows, and so many characters of a cell.
MAX_ROWS, LONGEST = 200, 300
_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer to a query. `rows` has the cells of each row in the order of `names`; `arrow` has them with their types.

    `stored` maps each column of the runs to its name in the files. It is empty unless the answer has all of these columns: other
    answers have names that the user chose, such as those of means.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    arrow: Any
    stored: Mapping[str, str] = field(default_factory=dict)


def query(root: Path, sql: str) -> Answer:
    """Return the answer to a query about the runs of a database, with masked secrets.

    Raise SelectionError if the SQL is invalid, OrchestratorError if a package is missing, and ResultsError if there is no database,
    or if it has no runs.
    """
    if find_spec("duckdb") is None:
        raise OrchestratorError(
            "a query needs duckdb, which is not installed; install it with pip install 'tunebench[db]'"
        )
    database.refuse_without_pyarrow("a query")
    import duckdb

    with duckdb.connect(config=dict(_SETTINGS)) as connection:
        stored = _offer(connection, root)
        connection.execute("SET python_enable_replacements = false; SET lock_configuration = true")
        try:
            answer = connection.sql(sql)
            arrow = None if answer is None else answer.to_arrow_table()
        except duckdb.Error as error:
            raise SelectionError(f"the query cannot be answered: {_in_words(error)}") from None
    if arrow is None:
        raise SelectionError(
            f"the query has no answer; write a SELECT about the table {TABLE}, such as 'SELECT * FROM {TABLE}'"
        )
    names = arrow.column_names
    is_whole = {*stored} <= {*names} and len({*names}) == len(names)
    return replace(_masked(arrow), stored=stored if is_whole else {})


def terminal(answer: Answer, *, width: int) -> RenderableType:
    """Return the answer for a terminal of `width` columns. Columns that do not fit are listed below the table."""
    rows, left = answer.rows[:MAX_ROWS], len(answer.rows) - MAX_ROWS
    places = range(len(answer.names))
    columns = [[printable(one_line(show("", row[place]), longest=LONGEST)) for row in rows] for place in places]
    headings = [printable(name) for name in answer.names]
    fit = views.fitting(columns, headings, width)
    table = empty_table()
    for place in places[:fit]:
        is_number = any(type(row[place]) in (int, float) for row in rows)
        table.add_column(Text(headings[place]), justify="right" if is_number else "left", overflow="fold")
    for cells in zip(*columns[:fit], strict=True):
        table.add_row(*map(Text, cells))
    more = (
        f"{counted(left, 'more row')}; --output FILE writes all of them" if left > 0 else f"{counted(len(rows), 'row')}"
    )
    return Group(table, *unshown(answer.names[fit:]), Text(more, style="dim"))


def text(answer: Answer, form: str) -> str:
    """Return the answer as csv or json. JSON is `{"rows": [{column: value}]}`."""
    rows = [dict(zip(answer.names, row, strict=True)) for row in answer.rows]
    return as_csv.rows_text(rows, answer.names) if form == "csv" else as_json.document(rows=rows)


def parquet(answer: Answer) -> bytes:
    """Return the answer as a Parquet file. If it has the rows of runs with all columns, `compare` and the others can read it.

    So its columns then have the names of the files in the database. Raise SelectionError if Parquet has no type for a column.
    """
    from pyarrow import ArrowException, parquet

    file = io.BytesIO()
    try:
        names = [answer.stored.get(name, name) for name in answer.names]
        parquet.write_table(answer.arrow.rename_columns(names), file)
    except ArrowException as error:
        raise SelectionError(f"a Parquet file cannot have this answer: {_cast(error)}") from None
    return file.getvalue()


def _offer(connection: Any, root: Path) -> Mapping[str, str]:
    """Make the table `runs` of all files. Files whose columns have equal types are one dataset.

    Return a dict from the name of each column in SQL to its name in the files.
    """
    from pyarrow import dataset

    files = database.files(root)
    if not files:
        raise ResultsError(f"{root}: the database has no runs; add a results folder with `tunebench db add`")
    groups, parts = _alike(files), []
    every = {name for schema, _ in groups for name in schema.names}
    in_sql = _in_sql(every)
    for number, (schema, alike) in enumerate(groups):
        quoted = ", ".join('"' + in_sql.get(name, name).replace('"', '""') + '"' for name in schema.names)
        parts.append(f"FROM part{number}" + (f" AS part{number}({quoted})" if in_sql else ""))
        whole = dataset.FileSystemDataset(alike, schema, alike[0].format, alike[0].filesystem)
        connection.register(f"part{number}", whole)
    connection.execute(f"CREATE VIEW {TABLE} AS {' UNION ALL BY NAME '.join(parts)}")
    return {in_sql.get(name, name): name for name in every}


def _in_sql(names: Iterable[str]) -> dict[str, str]:
    """Return the names of columns that differ from another name only in case, each with its name in SQL, which ignores case.

    An empty name is none in SQL, so it gets another one, too.
    A column of Tunebench keeps its name, also if no run has it. The other names get an end that says how they are written.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        groups[name.lower()].append(name)
    found: dict[str, str] = {}
    taken = {*groups}
    for lower, alike in groups.items():
        ours = [name for name in alike if _is_ours(name)]
        for name in alike if len(alike) > 1 or _is_ours(lower) or not lower else ():
            if [name] != ours:
                shown = f"{name}_{'upper' if name.isupper() else 'lower' if name.islower() else 'mixed'}"
                while shown.lower() in taken:
                    shown += "_"
                taken.add(shown.lower())
                found[name] = shown
    return found


def _is_ours(name: str) -> bool:
    return name in _OURS or name.startswith(("effective_", "provenance_"))


def _alike(files: Sequence[Path]) -> list[tuple[Any, list[Any]]]:
    """Return groups of files, each with the schema of all its columns. In a group, a column has the same type in every file."""
    import pyarrow

    groups: list[tuple[dict[str, Any], list[Any]]] = []
    for fragment in map(database.fragment, files):
        types = {field.name: field.type for field in fragment.physical_schema}
        for known, alike in groups:
            if all(known.get(name, kind) == kind for name, kind in types.items()):
                known.update(types)
                alike.append(fragment)
                break
        else:
            groups.append((types, [fragment]))
    return [(pyarrow.schema(list(types.items())), alike) for types, alike in groups]


def _masked(arrow: Any) -> Answer:
    """Return the answer with masked secrets. This machine may know other secrets than the machine that added the runs."""
    import pyarrow

    masked = redactor()

    def shown(value: Any) -> Any:
        if isinstance(value, str):
            return masked(value)
        if isinstance(value, (list, tuple)):  # a MAP is a list of pairs
            return type(value)(shown(item) for item in value)
        return {name: shown(item) for name, item in value.items()} if isinstance(value, dict) else value

    try:
        columns = [column.to_pylist() for column in arrow.columns]
    except (pyarrow.ArrowException, OverflowError, ValueError) as error:  # such as an infinite date
        raise SelectionError(f"the answer has a value that cannot be shown: {_cast(error)}") from None
    hidden = [[shown(value) for value in column] for column in columns]
    if hidden != columns:
        arrays = [pyarrow.array(new, old.type) for new, old in zip(hidden, arrow.columns, strict=True)]
        arrow = pyarrow.Table.from_arrays(arrays, names=arrow.column_names)
    cells = ([_cell(value) for value in column] for column in hidden)
    return Answer(names=_distinct(arrow.column_names), rows=tuple(zip(*cells, strict=True)), arrow=arrow)


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the columns. A name that comes again gets a number: a JSON object has each name once."""
    found: list[str] = []
    for name in names:
        number = 1
        while (shown := name if number == 1 else f"{name}_{number}") in found:
            number += 1
        found.append(shown)
    return tuple(found)


def _cell(value: Any) -> Value:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, (timedelta, bytes)) else cell(value)


def _cast(error: Exception) -> str:
    return f"{one_line(str(error), longest=200)}; cast the column to text, such as 'SELECT started_at::VARCHAR FROM {TABLE}'"


def _in_words(error: Exception) -> str:
    """Return DuckDB's reason in one line. It names the place of a mistake by an arrow below the text, which one line has not."""
    reason = str(error).partition("\n\nLINE")[0].partition("\nLINE")[0]
    if "file system operations are disabled" in reason:
        return f"a query reads only the table {TABLE}, and no file"
    return one_line(reason, longest=500)
