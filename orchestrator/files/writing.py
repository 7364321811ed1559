"""Write files completely or not at all: the content goes to a temporary file, is synced, and is put in place in one step.

`replace` is for files that may change (`suite.json`, reports). `place_once` is for files that may not change (`record.json`).
`place_once` links the finished file to its name, so that the first of two writers wins. `place_new` is for new files that a user
names, such as the output of a command. It also works on a disk without hard links, such as exFAT.
A reserved file (`reserve`) needs no new disk space for the content. If the content cannot be placed under its final name, the
reserved file keeps it.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import ResultsError

# The errors of link(2) on a file system without links. Other errors, such as a full disk, may be temporary.
_CANNOT_LINK = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)


def remove_aside(aside: Path) -> None:
    """Remove a hidden file that is needed no longer. Where the disk refuses that, it stays.

    This error must not take the place of another one, nor make a failure of a success.
    """
    with suppress(OSError):
        aside.unlink()


def _write_aside(path: Path, content: str | bytes) -> Path:
    """Write the content to a new hidden file next to `path`, and return the path of the new file."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(_as_bytes(content))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        remove_aside(aside)  # the disk may be full, and the file half written
        raise
    return aside


def _as_bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Put the name of the file into an OSError.

    If a write fails, for example on a full disk, the system's error names no file. Other errors may name the temporary file.
    """
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def make_writable(folder: Path) -> None:
    """Give a folder's owner all rights to the folder again, if a program took some away. Do nothing if the system forbids it."""
    with suppress(OSError):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            folder.chmod(mode | stat.S_IRWXU)


def reserve(path: Path, size: int) -> None:
    """Fill the file `path` with `size` zeros, so that later content finds its disk space. A full disk is not an error."""
    with suppress(OSError), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def has_room(folder: Path, size: int) -> bool:
    """Return whether a new file of this size fits into a folder. A quota and the number of files are limits, too.

    The file is never named, or only for a moment, so that none is left if this process is killed. Return True if the attempt
    fails for another reason, such as a missing or read-only folder.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".room-", buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            os.fsync(file.fileno())  # a network disk may apply a quota only now
    except OSError as error:
        return error.errno not in (errno.ENOSPC, errno.EDQUOT)
    return True


def append(path: Path, text: str) -> None:
    """Append a text to a file, and make the file if it is missing. Raise OSError as `to_append` does."""
    with named(path), to_append(path) as file:
        file.write(text.encode())


def to_append(path: Path) -> BinaryIO:
    """Open a file for appending; make it if it is missing. Raise OSError for a link, a pipe or a device that a program made."""
    return open(_regular(path, os.O_APPEND), "ab")


def _regular(path: Path, flags: int) -> int:
    """Return the descriptor of a regular file that is open for writing, without following a link or waiting for a reader."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.set_blocking(descriptor, True)  # a program may inherit the descriptor, and then expects it to block
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _write_reserved(path: Path, content: str | bytes) -> bool:
    """Write the content into a reserved file or a new file. Return whether that succeeded. Never follow a link."""
    with suppress(OSError), open(_regular(path, 0), "wb") as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            return False
        file.write(_as_bytes(content))
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
        return True
    return False


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its new names survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: str | bytes) -> None:
    """Write the file `path` with this content. A reader sees either the old file or the new file, never half a file."""
    with named(path):
        aside = _write_aside(path, content)
        try:
            os.replace(aside, path)
        finally:
            remove_aside(aside)
        sync_folder(path.parent)


def place_once(path: Path, text: str | bytes, *, reserved: Path | None = None) -> bool:
    """Create the file `path` with this content unless it exists. Return whether it was created.

    If `reserved` is given, write the content into that file first. The reserved file keeps it, even after an error, until the
    caller removes this file. Raise ResultsError if the file system cannot link files.
    """
    if reserved is not None and not _write_reserved(reserved, text):
        reserved = None
    with named(path):
        return _placed(path, text, reserved)


def _placed(path: Path, text: str | bytes, reserved: Path | None) -> bool:
    aside = reserved or _write_aside(path, text)
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        raise _no_links(path, error) from error
    finally:
        if reserved is None:
            remove_aside(aside)
    sync_folder(path.parent)
    return True


def _no_links(path: Path, error: OSError) -> ResultsError:
    return ResultsError(
        f"{path}: the file system cannot make hard links ({error.strerror}), which Tunebench needs so that it never "
        "replaces an earlier file; choose a folder on another disk"
    )


def refuse_without_links(folder: Path) -> None:
    """Raise ResultsError if the folder's file system cannot make hard links. Other errors, such as a full disk, do not count."""
    own, link = (folder / f".{uuid.uuid4().hex}" for _ in range(2))
    try:
        with suppress(OSError):
            own.touch(exist_ok=False)
        if own.exists():
            os.link(own, link)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            raise _no_links(folder, error) from error
    finally:
        for path in (own, link):
            with suppress(OSError):
                path.unlink()


def place_new(path: Path, content: str | bytes) -> bool:
    """Create the file `path` with this content unless it exists. Return whether it was created. Need no hard links."""
    with named(path):
        aside = _write_aside(path, content)
        try:
            if not name_new(aside, path):
                return False
        finally:
            remove_aside(aside)
        sync_folder(path.parent)
        return True


def name_new(aside: Path, path: Path) -> bool:
    """Give a finished file the name `path` unless a file has it. Return whether that was done. `aside` may still exist then."""
    try:
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        return _renamed(aside, path)
    return True


def _renamed(aside: Path, path: Path) -> bool:
    """Rename a file to a new name. An empty file reserves the name first, because a rename replaces an existing file."""
    try:
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            return False
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            if not path.lstat().st_size:
                path.unlink()
        raise
    return True
