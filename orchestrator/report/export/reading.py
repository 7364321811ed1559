"""Converts a results folder into runs for a tracker, one for each run that has ended.

The folder may come from Tunebench or from the reference system. It is read in the same way as for a report, and everything that
is not plausible gives a warning. All text is redacted again, because this environment may have other secrets than the
environment that wrote the folder. This module does not depend on any tracker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.errors import ResultsError
from orchestrator.files import reading
from orchestrator.files.printable_text import refusal
from orchestrator.files.redaction import MASK, is_secret_name, redactor
from orchestrator.measure.steps import LATEST
from orchestrator.records import Job, RunRecord
from orchestrator.records import Status as Ending
from orchestrator.report.export.series import of_run as series_of
from orchestrator.report.export.tracker import Status, TrackerRun
from orchestrator.report.logs import log_end
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows
from orchestrator.results.table.rows import Row, Value
from orchestrator.results.table.sources import reference_folder

LOG_END_BYTES = 64 * 1024
_SETTINGS = ("effective_", "provenance_")
_KILLED = (Ending.CANCELLED, Ending.LOST)

Masked = Callable[[str], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The runs of a folder, read one by one on demand, and warnings about the runs that are left out."""

    runs: Iterator[TrackerRun]
    # Grows while `runs` is read.
    warnings: list[str]


def read(folder: Path) -> Reading:
    """Return the runs of a results folder. Raise ResultsError if the folder is missing or contains no results."""
    if not folder.is_dir():
        raise ResultsError(f"{folder}: there is no such folder; name a results folder, which `tunebench run` made")
    masked = redactor()
    root = reference_folder.find(folder)
    if root is not None:
        rows, warned = reference_folder.read(root)
        return Reading(runs=(_of_reference(foreign_rows.sound(row), root, masked) for row in rows), warnings=warned)
    store = Store.resume(folder)
    warnings: list[str] = []
    return Reading(runs=_of_store(store, warnings, masked), warnings=warnings)


def _of_store(store: Store, warnings: list[str], masked: Masked) -> Iterator[TrackerRun]:
    try:
        contents = store.contents()
    except OSError as error:  # not an error of the tracker
        raise ResultsError(refusal(error)) from None
    warnings += contents.warnings
    for stored in contents.experiments:
        if stored.experiment.id not in contents.removed:
            requested = stored.without_failed_surplus(warnings)
            for job, record, row in foreign_rows.run_rows(requested, warnings) or ():
                yield _of_record(job, record, row, masked)


def _of_record(job: Job, record: RunRecord, row: Row, masked: Masked) -> TrackerRun:
    key = _digest(record.experiment_id, record.repeat, record.attempt, record.started_at, record.wall_s)
    folder = job.folder
    files = (folder.experiment, folder.script, folder.record)
    logs = (folder.stdout, folder.stderr, folder.stacks, folder.run_one_log)
    plain = _tracker_run(key, job.name, row, files, logs, masked)
    return replace(
        plain,
        started_at=_moment(record.started_at),
        ended_at=_moment(record.started_at + record.wall_s),
        series=series_of(job.run_dir),
    )


def _of_reference(row: Row, root: Path, masked: Masked) -> TrackerRun:
    """Return a run of a reference folder. Such a folder has no times, so only the numbers distinguish runs."""
    experiment = str(row.facts["id"])
    folder = root / experiment
    logs = [folder / "stdout", folder / "stderr"]
    return _tracker_run(_digest(row.flat()), experiment, row, [folder / "command.sh"], logs, masked)


def _tracker_run(
    key: str, name: str, row: Row, files: Iterable[Path], logs: Iterable[Path], masked: Masked
) -> TrackerRun:
    """Return a run without its times and series.

    The run's texts are the whole text of each of `files`, and the end of each of `logs`.
    """
    texts = {path.name: masked(_text(path)) for path in files} | {path.name: _log_end(path) for path in logs}
    return TrackerRun(
        key=key,
        name=f"{name}-{key[:8]}",
        experiment=str(row.facts["id"]),
        status=_status(row),
        params=_as_text({**row.facts, **row.arguments}, masked),
        tags=_tags(row, masked),
        metrics=_metrics(row),
        texts={name: text for name, text in texts.items() if text},
    )


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _moment(seconds: float) -> float | None:
    return seconds if 0 <= seconds < LATEST else None


def _metrics(row: Row) -> dict[str, float]:
    return {name: value for name, cell in row.measured.items() if (value := _number(name, cell)) is not None}


def _tags(row: Row, masked: Masked) -> dict[str, str]:
    """Return the outcome and everything else that is not a measured number: words, settings in effect, provenance."""
    words = {name: cell for name, cell in row.measured.items() if _number(name, cell) is None}
    return _as_text({**row.outcome, **words}, masked)


def _number(name: str, cell: Value) -> float | None:
    """Return the cell if it is a measured number. Return None for words and settings."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float)) or name.startswith(_SETTINGS):
        return None
    return float(cell)


def _as_text(cells: Mapping[str, Value], masked: Masked) -> dict[str, str]:
    return {
        masked(name): MASK if is_secret_name(name) else masked(str(cell))
        for name, cell in cells.items()
        if cell is not None
    }


def _status(row: Row) -> Status:
    word = row.outcome.get("status")
    if word == Ending.OK:
        return Status.OK
    return Status.KILLED if word in _KILLED else Status.FAILED


def _text(path: Path) -> str:
    """Return the text of a file that Tunebench made. It is empty if the file is missing or unreadable."""
    with suppress(OSError, ValueError):
        return reading.read_text(path, limit=reading.RECORD_BYTES)
    return ""


def _log_end(path: Path) -> str:
    """Return the redacted end of a log. It is empty if the log is missing or unreadable."""
    with suppress(OSError, ValueError):
        return log_end(path, limit=LOG_END_BYTES)
    return ""
