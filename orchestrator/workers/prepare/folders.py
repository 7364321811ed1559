"""Folders that appear whole or not at all: made aside, synced, and renamed into place.

Two processes may make the same one at once: the first to rename wins, and the other's copy is dropped. What makes the
content knows nothing of this.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Callable


def make_folder(path: str, fill: Callable[[str], None]) -> bool:
    """Makes `path` by `fill(folder aside)` unless it exists. Returns whether this process made it."""
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
        if os.path.isdir(path):  # another was first; a folder with files in it is never renamed over
            return False
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sync(folder: str) -> None:
    """Everything below the folder to the disk, so that after a crash what is in place is whole."""
    for home, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(os.path.join(home, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
