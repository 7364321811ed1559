"""Write files completely or not at all: the content goes to a temporary file, is synced, and is put in place in one step.

`replace` is for files that may change (`suite.json`, reports). `place_once` is for files that may not change (`record.json`).
`place_once` links the finished file to its name, so that the first of two writers wins.
"""

from __future__ import annotations

import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import ResultsError


def _write_aside(path: Path, content: str | bytes) -> Path:
    """Write the content to a new hidden file next to `path`, and return the path of the new file."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)  # the disk may be full, and the file half written
        raise
    return aside


def make_writable(folder: Path) -> None:
    """Let the owner of a folder read it and write into it again, if a program has changed that and the system allows it."""
    with suppress(OSError):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            folder.chmod(mode | stat.S_IRWXU)


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that names that were just put into it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: str | bytes) -> None:
    """Write the file `path` with this content. A reader sees either the old file or the new file, never half a file."""
    aside = _write_aside(path, content)
    try:
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def place_once(path: Path, text: str) -> bool:
    """Create the file `path` with this text unless it exists. Return whether it was created.

    Raise ResultsError if the file system cannot link files.
    """
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
