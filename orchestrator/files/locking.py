"""Locks between processes: flock(2) on a file. The system releases such a lock when its process ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import OrchestratorError


@contextmanager
def locked(
    path: Path, kind: int, *, option: str, error: type[OrchestratorError] = OrchestratorError, to_write: bool = False
) -> Iterator[int | None]:
    """Hold a lock on a file, and yield the file's descriptor. Make the file if it is missing.

    Yield None if `kind` does not wait and another process has the lock. Whoever has the lock may remove the file. If the file
    system cannot lock files, raise `error`; `option` is the option or variable that names another folder.
    """
    while True:
        descriptor = _opened(path, to_write=to_write)
        try:
            try:
                fcntl.flock(descriptor, kind)
            except BlockingIOError:
                yield None
                return
            except OSError as refusal:
                raise error(
                    f"{path}: the file system cannot lock files ({refusal.strerror}); "
                    f"name a folder on another file system with {option}"
                ) from refusal
            if _is_at(path, descriptor):
                yield descriptor
                return
            # The file was removed by its last holder, and a new one may be in its place.
        finally:
            os.close(descriptor)


def _opened(path: Path, *, to_write: bool) -> int:
    """Open the locked file. Make it if needed. A file of another user can be locked, too, so reading is enough for that."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        if to_write or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    return os.open(path, flags | os.O_RDONLY)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False
