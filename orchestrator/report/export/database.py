"""Add the runs of a results folder to a database folder, as one Parquet file. `results/table/sources/database.py` reads it.

Files are only added. A run that the database has already is left out, so that the same folder, or a copy of it, can be added again.
Writers wait for each other at a lock, because two of them may add the same folder. A reader needs no lock: a file appears
complete or not at all.
"""

from __future__ import annotations

import fcntl
import json
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.errors import ResultsError, remedy
from orchestrator.files import writing
from orchestrator.files.locking import locked
from orchestrator.files.redaction import redactor
from orchestrator.report.tables import as_parquet
from orchestrator.results.folder import TOOL, read_suite
from orchestrator.results.table import foreign_rows
from orchestrator.results.table.column_types import frame_of
from orchestrator.results.table.rows import Row, Value
from orchestrator.results.table.sources import database

SCHEMA = 1
_TAME = re.compile(r"[^\w.-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """The number of runs that were added of a results folder. `file` is the new file, or None if all of its runs were known."""

    new: int
    already: int
    file: Path | None


def make(root: Path) -> None:
    """Make the database folder unless it exists. Raise ResultsError if the folder has other content or cannot be made."""
    if database.is_database(root):
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Another writer may be making the database at this moment.
        ours = (database.MARKER, database.RUNS, database.LOCK)
        if any(path.name not in ours and not path.name.startswith(f".{database.MARKER}.") for path in root.iterdir()):
            raise ResultsError(
                f"--db {root}: the folder has other content than a database; name a new or an empty folder"
            )
        (root / database.RUNS).mkdir(exist_ok=True)
        writing.place_once(root / database.MARKER, json.dumps({"tool": TOOL, "database": SCHEMA}) + "\n")
    except FileExistsError:
        raise ResultsError(f"--db {root}: this is not a folder; name a new or an empty folder") from None
    except OSError as error:
        raise ResultsError(f"--db {root}: no database can be made here: {error.strerror}; {remedy(error)}") from None
    if not database.is_database(root):
        raise ResultsError(
            f"{root / database.MARKER}: the file is damaged, or another program wrote it; restore or remove it"
        )


def add(root: Path, folder: Path, rows: Iterable[Row]) -> Added:
    """Add the rows of a results folder's runs to a database. Raise ResultsError if the database cannot be written.

    The rows are those of `compare.sides.folders`, whose `started_at` is in seconds since the epoch.
    """
    campaign = _campaign(folder)
    found = [{**campaign, **_flat(row)} for row in _masked(rows) if isinstance(row.outcome.get("started_at"), float)]
    every = {name for cells in found for name in str(cells[database.ARGUMENTS]).splitlines()}
    arguments = frozenset(every) - {database.DIGEST, database.VARIABLES}
    with locked(root / database.LOCK, fcntl.LOCK_EX, option="--db", error=ResultsError):
        known = database.known(root)
        new = [cells for cells in found if database.key(cells) not in known]
        file = _write(root, folder, new, arguments) if new else None
    return Added(new=len(new), already=len(found) - len(new), file=file)


def _write(root: Path, folder: Path, new: Sequence[dict[str, Value]], arguments: frozenset[str]) -> Path:
    """Write the new file and return its path. A column without values has no type, so it is left out."""
    content = as_parquet.plain(frame_of(new, arguments).dropna(axis="columns", how="all"))
    name = f"{_TAME.sub('-', folder.absolute().name)[:60]}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
    path = root / database.RUNS / f"{name}{database.SUFFIX}"
    try:
        writing.place_once(path, content)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}; {remedy(error)}, and repeat the command") from None
    return path


def _campaign(folder: Path) -> dict[str, Value]:
    created = (read_suite(folder) or {}).get("created")
    masked = redactor()
    return {
        database.CAMPAIGN: masked(str(folder.absolute())),
        database.CREATED: masked(created) if isinstance(created, str) else None,
    }


def _masked(rows: Iterable[Row]) -> list[Row]:
    masked = redactor()
    return [foreign_rows.without_secrets(row, masked) for row in rows]


def _flat(row: Row) -> Mapping[str, Value]:
    """Return a run as flat cells, with the exact start, and with the start as tables have it."""
    started = float(row.outcome["started_at"] or 0.0)
    return {
        **row.flat(),
        "started_at": datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds"),
        database.STARTED: started,
        database.ARGUMENTS: "\n".join(row.arguments),
    }
