"""Makes folders that appear complete or not at all: each is filled under a temporary name, synced to the disk, and renamed.

Two processes may make the same folder at once. The process that renames first wins, and the copy of the second process is
deleted. `described` says what is in a file, so that damage can be found later. The orchestrator runs this file to use `described`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from typing import Any, Callable

# `described` reads this number of parts of this size. They cover all of a file of up to 1 MiB.
PARTS, PART_BYTES = 64, 16 * 1024


def make_folder(path: str, fill: Callable[[str], None]) -> bool:
    """Let `fill` fill a temporary folder, and rename it to `path` unless `path` exists. Return whether this process made `path`."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        return False
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    aside = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
    try:
        os.chmod(aside, 0o755)  # mkdtemp's 0700 would hide shared data from other users
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
