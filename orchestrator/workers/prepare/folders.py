"""Makes folders that appear complete or not at all: each is filled under a temporary name, synced to the disk, and renamed.

Two processes may make the same folder at once. The process that renames first wins, and the copy of the second process is
deleted. A killed process leaves its temporary folder, and the next process removes it. `described` says what is in a file, so that
damage can be found later. The orchestrator runs this file to use `described`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
import tempfile
from typing import Any, Callable, Optional

MODE = 0o755  # mkdtemp's 0700 would hide shared data from other users

# `described` reads this number of parts of this size. They cover all of a file of up to 1 MiB.
PARTS, PART_BYTES = 64, 16 * 1024


def make_folder(path: str, fill: Callable[[str], None]) -> bool:
    """Let `fill` fill a temporary folder, and rename it to `path` unless `path` exists. Return whether this process made `path`."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return False
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    remove_leftovers(parent)
    aside = tempfile.mkdtemp(prefix=f".{name}{mark()}", dir=parent)
    lock = None
    try:
        lock = locked(aside)
        os.chmod(aside, MODE)  # only after the lock, so that `remove_leftovers` spares a folder that is not locked yet
        fill(aside)
        sync(aside)
        os.rename(aside, path)
        return True
    except OSError:
        if os.path.isdir(path):  # another process was first; rename never replaces a folder with files in it
            return False
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def mark() -> str:
    """Return a part of the temporary names of this host. On some network disks, a host does not see the locks of other hosts."""
    return f".{re.sub('[^A-Za-z0-9-]+', '-', socket.gethostname())}."


def locked(folder: str) -> Optional[int]:
    """Lock a folder until this process ends or closes the returned descriptor. Return None if it is locked or cannot be locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor
    except OSError:
        os.close(descriptor)
        return None


def remove_leftovers(parent: str) -> None:
    """Remove the temporary folders of killed processes of this host. A living process holds the lock of its folder."""
    ours = re.compile(rf"\..+{re.escape(mark())}[a-z0-9_]{{8}}")  # mkdtemp adds the eight characters
    for name in filter(ours.fullmatch, os.listdir(parent)):
        folder = os.path.join(parent, name)
        with contextlib.suppress(OSError):  # another process may be removing it
            lock = locked(folder) if stat.S_IMODE(os.lstat(folder).st_mode) == MODE else None
            if lock is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)


def sync(folder: str) -> None:
    """Sync all files below the folder to the disk, so that they are complete after a crash."""
    for home, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(home, name), "rb") as file:
                os.fsync(file.fileno())


def described(file: str) -> dict[str, Any]:
    """Return the size of a file, and a digest of parts that are spread evenly over the file."""
    digest, size = hashlib.sha256(), os.path.getsize(file)
    with open(file, "rb") as stream:
        for part in range(PARTS):
            stream.seek(part * max(0, size - PART_BYTES) // (PARTS - 1))
            digest.update(stream.read(PART_BYTES))
    return {"bytes": size, "digest": digest.hexdigest()[:16]}


def files_below(folder: str) -> list[str]:
    """Return the relative paths of all files below a folder."""
    paths = (os.path.join(home, name) for home, _, names in os.walk(folder) for name in names)
    return sorted(os.path.relpath(path, folder) for path in paths)
