"""Read the runs of many campaigns from a database folder, or from a Parquet file that a query of a database wrote.

    DATABASE/database.json    says that the folder is a database
    DATABASE/runs/*.parquet   a file for each `tunebench db add` that found new runs of a results folder; no file ever changes

A row is a run that ended. It has the columns of raw_summary.csv, and COLUMNS: they name its campaign, say when it began to the
microsecond, and which columns are arguments. A campaign is a results folder that was made at one moment: a path may name another
campaign every night.

Files may come from anyone. A file without the needed columns is refused, and implausible values count as missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError, ResultsError
from orchestrator.files import reading
from orchestrator.measure.metrics import FACTS, METRICS, Show
from orchestrator.records import Caveat
from orchestrator.results.folder import read_ours
from orchestrator.results.table import foreign_rows
from orchestrator.results.table.rows import ARGUMENT_FACTS, ASKED, OF_DATABASES, Row, Value, cell
from orchestrator.results.table.sources import csv_file

MARKER, RUNS, LOCK, SUFFIX = "database.json", "runs", "lock", ".parquet"
# DIGEST and VARIABLES are arguments that comparisons use and tables do not show: the digest of an experiment's framework
# configuration, and its environment variables. The digest shows whether the content has changed under the same name.
CAMPAIGN, (CREATED, STARTED, ARGUMENTS, DIGEST, VARIABLES) = "results", OF_DATABASES
COLUMNS = (CAMPAIGN, CREATED, STARTED, ARGUMENTS)
# `report`, `compare` and `history` have all rows in memory. docs/db.md has what 20,000 runs cost.
MOST_RUNS = 20_000

_NEEDED = ("id", "repeat", "status")
_IDENTITY = ("id", "repeat", "attempt", STARTED)
_OUTCOME = (
    *("repeat", "attempt", "status", "failure_kind", "failure_cause", "failure_hint", "started_at"),
    *("exit_code", "signal", "warnings"),
)
# A comparison has 0 for a run without neighbours, and a table has no cell.
_NEIGHBOURS = "neighbours"
_FACTS = frozenset(FACTS) - {*ARGUMENT_FACTS, *_OUTCOME}
_NUMBERS = frozenset(name for name, metric in METRICS.items() if metric.show is not Show.TEXT)

Key = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """The runs of one results folder in a database. `name` distinguishes it from the other campaigns that were read."""

    name: str
    rows: tuple[Row, ...]

    @property
    def began_at(self) -> float:
        """Return the first start of a run, in seconds since the epoch, or 0 if no start is known."""
        starts = (row.outcome.get(STARTED) for row in self.rows)
        return min((start for start in starts if isinstance(start, float)), default=0.0)

    @property
    def groups(self) -> list[list[Row]]:
        """Return the rows of each experiment, in the order of the experiments' first rows."""
        groups: dict[Value, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[row.facts["id"]].append(row)
        return list(groups.values())


def is_database(folder: Path) -> bool:
    """Return whether the folder is a database of runs."""
    return "database" in (read_ours(folder / MARKER) or {})


def is_place(place: Path) -> bool:
    """Return whether a path is a database folder, or names a Parquet file."""
    return (place.suffix.lower() == SUFFIX and place.is_file()) or is_database(place)


def files(root: Path) -> list[Path]:
    """Return the Parquet files of a database. Raise ResultsError if the folder is not a database."""
    if not is_database(root):
        what = "this folder is not a database" if root.is_dir() else "there is no such folder"
        raise ResultsError(f"{root}: {what}; name a database with --db, or make one with `tunebench db add`")
    return sorted((root / RUNS).glob(f"*{SUFFIX}"))


def known(root: Path) -> set[Key]:
    """Return the identities of all runs in a database, as `key` has them."""
    every = (_columns(file, _IDENTITY) for file in files(root))
    runs = (run for columns in every for run in zip(*(columns[name] for name in _IDENTITY), strict=True))
    return {tuple(None if value is None else cell(value) for value in run) for run in runs}


def key(cells: Mapping[str, Value]) -> Key:
    """Return the identity of a run: it is the same in every copy of its results folder."""
    return tuple(cells.get(name) for name in _IDENTITY)


def campaigns(place: Path) -> list[Campaign]:
    """Return the campaigns of a database folder or of a Parquet file of runs, the oldest first.

    Raise ResultsError if it has no runs, more than MOST_RUNS, or a file that cannot be read.
    """
    parts = files(place) if place.is_dir() else [place]
    total = sum(_size(part) for part in parts)
    if total > MOST_RUNS:
        raise ResultsError(
            f"{place}: it has {total:,} runs, and at most {MOST_RUNS:,} can be read at once; choose some of them, such as "
            "`tunebench db query \"SELECT * FROM runs WHERE results LIKE '%nightly%'\" --output some.parquet`, and name that file"
        )
    found: dict[tuple[Value, Value], list[Row]] = defaultdict(list)
    for part in parts:
        for cells in _cells(part):
            found[cells.get(CAMPAIGN), cells.get(CREATED)].append(_row(cells))
    if not found:
        raise ResultsError(f"{place}: it has no runs; add a results folder with `tunebench db add`")
    named = zip(_names(place, found), found.values(), strict=True)
    return sorted(
        (Campaign(name=name, rows=tuple(rows)) for name, rows in named), key=lambda campaign: campaign.began_at
    )


def for_tables(campaign: Campaign, *, is_only: bool) -> list[Row]:
    """Return a campaign's rows for a table, without the cells that only comparisons use.

    The fact `results` has the campaign's name, unless it `is_only`.
    """
    name = {} if is_only else {CAMPAIGN: campaign.name}
    return [
        replace(
            row,
            facts={**{fact: value for fact, value in row.facts.items() if fact != CAMPAIGN}, **name},
            arguments={name: value for name, value in row.arguments.items() if name not in (DIGEST, VARIABLES)},
            outcome={name: value for name, value in row.outcome.items() if name != STARTED},
            measured={
                name: value
                for name, value in row.measured.items()
                if (name != _NEIGHBOURS or value) and not name.startswith(ASKED)
            },
        )
        for row in campaign.rows
    ]


def for_comparisons(rows: Sequence[Row]) -> list[Row]:
    """Return rows whose `started_at` is the exact start, in seconds since the epoch, as comparisons have it."""
    return [
        replace(row, outcome={**row.outcome, "started_at": row.outcome.get(STARTED) or row.outcome.get("started_at")})
        for row in rows
    ]


def refuse_without_pyarrow(what: str) -> None:
    """Raise OrchestratorError if pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise OrchestratorError(
            f"{what} needs pyarrow, which is not installed; install it with pip install 'tunebench[db]'"
        )


def _names(place: Path, keys: Iterable[tuple[Value, Value]]) -> list[str]:
    """Return a name for each campaign: the last parts of its path, as few as distinguish all paths, and its date if needed."""
    keys = list(keys)
    paths = list(dict.fromkeys(str(path or place) for path, _ in keys))
    ends = {path: path.strip("/").split("/") for path in paths}
    depth = next(
        (n for n in range(1, 64) if len({tuple(parts[-n:]) for parts in ends.values()}) == len(paths)),
        64,
    )
    short = {path: "/".join(parts[-depth:]) for path, parts in ends.items()}
    times = [str(path or place) for path, _ in keys]
    return [
        f"{short[path]} of {created}" if times.count(path) > 1 else short[path]
        for path, (_, created) in zip(times, keys, strict=True)
    ]


def _row(cells: Mapping[str, Value]) -> Row:
    """Return a flat row in its parts. A file without the column ARGUMENTS is read as a CSV file is: by the names of its columns."""
    if ARGUMENTS in cells:
        named = frozenset(str(cells[ARGUMENTS]).splitlines())
    else:
        named = frozenset(filter(csv_file.is_argument, cells.keys() - {*COLUMNS, *_OUTCOME}))
    warnings = str(cells.get("warnings") or "").splitlines()
    parts: dict[str, dict[str, Value]] = {"facts": {}, "arguments": {}, "outcome": {"attempt": 1}, "measured": {}}
    for name, value in cells.items():
        if name not in (ARGUMENTS, CREATED):
            parts[_part(name, named)][name] = None if name in _NUMBERS and isinstance(value, str) else value
    made = Row(
        facts=parts["facts"],
        arguments=parts["arguments"],
        outcome=parts["outcome"],
        measured=parts["measured"],
        warnings=tuple(map(Caveat.of_sentence, warnings)),
    )
    return foreign_rows.sound(made)


def _part(name: str, arguments: frozenset[str]) -> str:
    if name in arguments:
        return "arguments"
    if name in _OUTCOME or name == STARTED:
        return "outcome"
    return "facts" if name in _FACTS else "measured"


def fragment(file: Path) -> Any:
    """Return a Parquet file as a part of a pyarrow dataset. Its schema has been read. Raise ResultsError if it cannot be read."""
    from pyarrow import dataset, fs

    with _opened(file):
        part = dataset.ParquetFileFormat().make_fragment(str(file), filesystem=fs.LocalFileSystem())
        part.ensure_complete_metadata()
        return part


def _size(file: Path) -> int:
    from pyarrow import parquet

    with _opened(file) as opened:
        return int(parquet.read_metadata(opened).num_rows)


def _columns(file: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    with _opened(file) as opened:
        table = _table(opened, list(names))
    columns = table.to_pydict()
    return {name: columns.get(name, [None] * table.num_rows) for name in names}


def _cells(file: Path) -> Iterator[dict[str, Value]]:
    """Yield the cells of each run that are not missing. Rows whose repeat or attempt is not a number are left out."""
    with _opened(file) as opened:
        columns = _table(opened).to_pydict()
    missing = [name for name in _NEEDED if name not in columns]
    if missing:
        raise ResultsError(
            f"{file}: the column {missing[0]} is missing, so it is not a file of runs; make one with "
            "`tunebench db query 'SELECT * FROM runs' --output FILE.parquet`"
        )
    for values in zip(*columns.values(), strict=True):
        cells = {name: cell(value) for name, value in zip(columns, values, strict=True) if value is not None}
        is_run = all(type(cells.get(name, of_old)) is int for name, of_old in (("repeat", None), ("attempt", 1)))
        if is_run and "id" in cells and "status" in cells:
            yield cells


def _table(opened: BufferedReader, names: list[str] | None = None) -> Any:
    """Return the named columns of a Parquet file, or all. No thread is started: a process that ends meanwhile is aborted."""
    from pyarrow import parquet

    return parquet.ParquetFile(opened, pre_buffer=False).read(columns=names, use_threads=False)


@contextmanager
def _opened(file: Path) -> Iterator[BufferedReader]:
    """Open a Parquet file. Raise ResultsError with its name if pyarrow or the system cannot read it."""
    refuse_without_pyarrow("a Parquet file")
    from pyarrow import ArrowException

    try:
        with reading.opened(file) as opened:
            yield opened
    except (ArrowException, OSError, ValueError) as error:
        why = reading.reason(error) if isinstance(error, (OSError, reading.Unreadable)) else "it is not a Parquet file"
        raise ResultsError(f"{file}: cannot be read: {why}; restore the file, or move it to another folder") from None
