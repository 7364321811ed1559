"""Whose a folder is: a results folder of ours is known by its `suite.json`, and only such a folder is ever moved.

Nothing is deleted or overwritten here: what stands in the way gets a dated name beside its old one. What lies inside
is `store`'s.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from orchestrator.errors import ResultsError
from orchestrator.files import reading, writing
from orchestrator.records import JobState
from orchestrator.results.claims import state

SUITE_FILE = "suite.json"
TOOL = "tunebench"


def is_ours(root: Path) -> bool:
    """Whether the folder is a results folder of tunebench: it holds a `suite.json` that says so."""
    return read_suite(root) is not None


def move_aside(root: Path) -> Path | None:
    """Renames a results folder of ours to a dated name beside it, and returns that; None when nothing stands there.

    Raises ResultsError for a folder that is not ours, or in which runs are still going on.
    """
    root = root.absolute()
    if not is_ours(root):
        refuse_foreign(root)
        return None
    running = [
        path for path in root.glob("experiments/*/runs/r*") if state(path) in (JobState.RUNNING, JobState.SILENT)
    ]
    if running:
        raise ResultsError(f"{root}: {len(running)} run(s) still go on in it, such as {running[0]}; end them first")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        target = root.with_name(f"{root.name}.{stamp}" + (f"-{number}" if number > 1 else ""))
        if target.exists() or target.is_symlink():
            continue
        try:
            root.rename(target)
        except OSError as error:
            raise ResultsError(f"{root}: cannot be moved aside ({error.strerror}); name another folder") from error
        return target
    raise ResultsError(f"{root}: cannot be moved aside, too many folders have its dated name; name another folder")


def refuse_foreign(root: Path) -> None:
    """Raises ResultsError when something stands there that new results must not be mixed with."""
    # Another tunebench may be making it at this moment: what it writes aside is no sign of a stranger.
    if (
        root.is_dir()
        and any(not path.name.startswith(f".{SUITE_FILE}.") for path in root.iterdir())
        and not is_ours(root)
    ):
        raise ResultsError(f"{root} is not empty and is no results folder of tunebench; name a new or an empty folder")
    if root.exists() and not root.is_dir():
        raise ResultsError(f"{root} is not a folder; name a new or an empty folder for the results")


def read_suite(root: Path) -> dict[str, Any] | None:
    """Return what `suite.json` says; None when it is missing, damaged, or not ours."""
    return read_ours(root / SUITE_FILE)


def read_ours(path: Path) -> dict[str, Any] | None:
    """Return the JSON object of a file by which a folder is known; None when it is missing, damaged, or not ours."""
    try:
        document = reading.read_json(path, limit=reading.SUITE_BYTES)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("tool") == TOOL else None


def write_into(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file that is made from results, over an older one, and return its path. Raises ResultsError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writing.replace(folder / name, content)
    except OSError as error:
        raise ResultsError(f"--output {folder}: {name} cannot be written: {error.strerror}") from error
    return folder / name
