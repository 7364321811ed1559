"""Whole files or none: what is to stand there is written aside, synced, and put in place in one step.

`replace` is for what may change (`suite.json`, reports); `place_once` is for what may not (`record.json`): it links the
finished file to its name, so that of two writers the first one stands. Knows nothing of what the files mean.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from orchestrator.errors import ResultsError


def _write_aside(path: Path, content: str | bytes) -> Path:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)  # half a file, on a disk that may be full
        raise
    return aside


def sync_folder(folder: Path) -> None:
    """Makes names that were just put into `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: str | bytes) -> None:
    """Gives `path` this content; a reader sees the old file or the new one, never half of one."""
    aside = _write_aside(path, content)
    try:
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def place_once(path: Path, text: str) -> bool:
    """Gives `path` this text unless the file exists already. Returns whether it was ours that was placed."""
    aside = _write_aside(path, text)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        raise ResultsError(
            f"{path}: the file system cannot link files ({error.strerror}), which a results folder needs to keep the "
            "first of two records; put the results folder on another disk with --results"
        ) from error
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True
