"""The user's cache folder: prepared data and software environments are kept there, for all campaigns."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return Tunebench's cache folder: `$TUNEBENCH_CACHE`, else `tunebench` in the user's cache folder."""
    if own := os.environ.get("TUNEBENCH_CACHE"):
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "tunebench"
