"""The record of a run whose process ended without one: it was killed, or it could not place its record on a full disk."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from orchestrator.files import reading
from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import redact
from orchestrator.records import Job, RunFolder, RunRecord, Status, load
from orchestrator.results import allocation_end
from orchestrator.results.claims import HEARTBEAT_S, SILENT_AFTER_S, read_claim


def unfinished_record(job: Job, status: Status = Status.LOST) -> RunRecord:
    """Return a record for a run whose process ended without a record. Such a run was lost, or cancelled with its executor.

    If the run's process wrote a record but could not place it, return that record.
    """
    if kept := _kept_record(job):
        return kept
    claim = read_claim(job.run_dir)
    started_at = claim.claimed_at if claim else _modified(job.run_dir, otherwise=time.time())
    tail = redact(_own_log(job.folder))
    begun = "the process of the run left no record" if job.folder.owner.exists() else "the run had not begun"
    interrupted = allocation_end.cause(claim, job.folder.results) or f"the benchmark was interrupted, and {begun}"
    return RunRecord(
        experiment_id=job.experiment_id,
        repeat=job.repeat,
        attempt=job.attempt,
        status=status,
        kind=status.value,
        cause=_why_lost(tail) if status is Status.LOST else interrupted,
        tail=tail or None,
        started_at=started_at,
        wall_s=max(0.0, _length_s(job.folder, started_at)),
    )


def _why_lost(tail: str) -> str:
    """Return the cause of a lost run. A killed process says nothing; one that could not run says why in its log."""
    why = one_line(tail.strip().rpartition("\n")[2], longest=300)
    return f"the process that ran it is gone without a record ({why or 'killed, or the machine went down'})"


def _kept_record(job: Job) -> RunRecord | None:
    """Return the record that the run's process wrote completely but did not place. The process was killed, or the disk was full."""
    try:
        record = load(RunRecord, reading.read_bytes(job.folder.kept_record, limit=reading.RECORD_BYTES))
    except (OSError, ValueError):  # there is no record, or there is only reserved space or half a record
        return None
    run = (record.experiment_id, record.repeat, record.attempt)
    return record if run == (job.experiment_id, job.repeat, job.attempt) else None


def _length_s(folder: RunFolder, started_at: float) -> float:
    """Return how long the run's process lived, as far as its folder shows it. A campaign may be continued days later.

    A living process touches its heartbeat. If it and the files of the run did not change for longer than that, the process ended at
    the last change. Other files in the folder may be somebody's notes. If the clock of the run's host was wrong, only the dates
    of the run's files count: one clock made them.
    """
    now, claimed_at = time.time(), _modified(folder.claim, otherwise=started_at)
    files = (folder.heartbeat, folder.owner, folder.claim, folder.run_one_log, folder.stdout, folder.stderr)
    changes: list[float] = []
    for path in (*files, *folder.all_steps().values()):
        with suppress(OSError):
            changes.append(path.stat().st_mtime)
    # The clock of the file server, which dates the files, may be ahead.
    latest = max(now, now + claimed_at - started_at) + SILENT_AFTER_S
    last = max((change for change in changes if change <= latest), default=now)
    length_s = (last if now - last > 2 * HEARTBEAT_S else now) - started_at
    by_files_s = last - claimed_at
    return length_s if abs(length_s - by_files_s) <= 2 * HEARTBEAT_S else by_files_s


def _modified(path: Path, *, otherwise: float) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # the run's command removed it
        return otherwise


def _own_log(folder: RunFolder) -> str:
    """Return the end of the log that `run-one` wrote."""
    try:
        return redact(reading.read_tail(folder.run_one_log, limit=64 * 1024))[-4000:]
    except (OSError, ValueError):
        return ""
