"""A results folder as a tracker's runs: one for each run that ended, of Tunebench and of the reference.

Reads like a report (`store`, `reference`, `vetting`), with a warning for everything that cannot be believed. All text is
redacted once more: the folder may have been written where other secrets were known. Knows no tracker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ResultsError
from orchestrator.files import reading
from orchestrator.files.printable_text import without_styles
from orchestrator.files.redaction import MASK, is_secret_name, redact_end, redactor
from orchestrator.measure.steps import LATEST
from orchestrator.records import Experiment, Job, RunRecord
from orchestrator.records import Status as Ending
from orchestrator.report.export.series import of_run as series_of
from orchestrator.report.export.tracker import Status, TrackerRun
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows, reference_folder
from orchestrator.results.table.rows import Row, Value

LOG_END_BYTES = 64 * 1024
_KNOWN_OF_IT = ("effective_", "provenance_")
_KILLED = (Ending.CANCELLED, Ending.LOST)

Masked = Callable[[str], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The runs of a folder, read one by one on demand, and warnings about those that are left out."""

    runs: Iterator[TrackerRun]
    # Grows while `runs` is read.
    warnings: list[str]


def read(folder: Path) -> Reading:
    """Return the runs of a results folder. Raise ResultsError if it is missing or contains no results."""
    if not folder.is_dir():
        raise ResultsError(f"There is no folder {folder}: name a results folder, which `tunebench run --results` made.")
    masked = redactor()
    theirs = reference_folder.find(folder)
    if theirs is not None and not (folder / "suite.json").exists():
        found, said = reference_folder.read(theirs)
        return Reading(runs=(_of_reference(foreign_rows.sound(row), theirs, masked) for row in found), warnings=said)
    store = Store.resume(folder)
    warnings: list[str] = []
    return Reading(runs=_of_store(store, warnings, masked), warnings=warnings)


def _of_store(store: Store, warnings: list[str], masked: Masked) -> Iterator[TrackerRun]:
    contents = store.contents()
    warnings += contents.warnings
    wanted = [one for one in contents.experiments if one.experiment.id not in contents.removed]
    for stored in wanted:
        for job, record, row in foreign_rows.run_rows(stored, warnings) or ():
            yield _of_record(stored.experiment, job, record, row, masked)


def _of_record(experiment: Experiment, job: Job, record: RunRecord, row: Row, masked: Masked) -> TrackerRun:
    key = _digest(record.experiment_id, record.repeat, record.attempt, record.started_at, record.wall_s)
    folder = job.folder
    own = {path.name: _text(path) for path in (folder.experiment, folder.script, folder.record)}
    return TrackerRun(
        key=key,
        name=f"{job.name}-{key[:8]}",
        experiment=experiment.id,
        status=_status(row),
        started_at=_moment(record.started_at),
        ended_at=_moment(record.started_at + record.wall_s),
        params=_as_text({**row.facts, **row.arguments}, masked),
        tags=_tags(row, masked),
        metrics=_metrics(row),
        series=series_of(job.run_dir),
        texts=_texts(own, (folder.stdout, folder.stderr, folder.stacks, folder.run_one_log), masked),
    )


def _of_reference(row: Row, root: Path, masked: Masked) -> TrackerRun:
    """Return a run of a reference folder. Such a folder has no times; only the numbers distinguish runs."""
    experiment = str(row.facts["id"])
    key = _digest(row.flat())
    own = {"command.sh": _text(root / experiment / "command.sh")}
    return TrackerRun(
        key=key,
        name=f"{experiment}-{key[:8]}",
        experiment=experiment,
        status=_status(row),
        started_at=None,
        ended_at=None,
        params=_as_text({**row.facts, **row.arguments}, masked),
        tags=_tags(row, masked),
        metrics=_metrics(row),
        texts=_texts(own, [root / experiment / name for name in ("stdout", "stderr")], masked),
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _moment(seconds: float) -> float | None:
    return seconds if 0 <= seconds < LATEST else None


def _metrics(row: Row) -> dict[str, float]:
    return {name: value for name, cell in row.measured.items() if (value := _number(name, cell)) is not None}


def _tags(row: Row, masked: Masked) -> dict[str, str]:
    """Return the outcome, and everything that is not a measured number: words, settings in effect, provenance."""
    found = {name: cell for name, cell in row.measured.items() if _number(name, cell) is None}
    return _as_text({**row.outcome, **found}, masked)


def _number(name: str, cell: Value) -> float | None:
    """Return the cell if it is a measured number; None for words and settings."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float)) or name.startswith(_KNOWN_OF_IT):
        return None
    return float(cell)


def _as_text(cells: Mapping[str, Value], masked: Masked) -> dict[str, str]:
    given = {
        name: MASK if is_secret_name(name) else masked(str(cell)) for name, cell in cells.items() if cell is not None
    }
    return {masked(name): text for name, text in given.items()}


def _status(row: Row) -> Status:
    word = row.outcome.get("status")
    if word == Ending.OK:
        return Status.OK
    return Status.KILLED if word in _KILLED else Status.FAILED


def _texts(own: Mapping[str, str], logs: Iterable[Path], masked: Masked) -> dict[str, str]:
    """Return the texts of a run's files: our own files whole, and the end of each log. Skip missing files."""
    found = {name: masked(text) for name, text in own.items()} | {path.name: _log_end(path) for path in logs}
    return {name: text for name, text in found.items() if text}


def _text(path: Path) -> str:
    """Return one of our files; empty if it is missing or unreadable."""
    with suppress(OSError, ValueError):
        return reading.read_text(path, limit=reading.RECORD_BYTES)
    return ""


def _log_end(path: Path) -> str:
    """Return the end of a log, redacted before it is shortened: half a secret is not recognised."""
    with suppress(OSError, ValueError):
        cut = path.stat().st_size > LOG_END_BYTES
        return redact_end(without_styles(reading.read_tail(path, limit=LOG_END_BYTES)), cut=cut)
    return ""
