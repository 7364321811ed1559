"""Makes folders that appear whole or not at all: filled under a temporary name, synced, and renamed.

Two processes may make the same folder at once. The first to rename wins, and the copy of the other is deleted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Callable


def make_folder(path: str, fill: Callable[[str], None]) -> bool:
    """Make `path` by `fill(temporary folder)` unless it exists, and return whether this process made it."""
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
    """Flush all files below the folder to the disk, so that they are whole after a crash."""
    for home, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(home, name), "rb") as file:
                os.fsync(file.fileno())
