"""Recognise a results folder by its `suite.json`, and move an old results folder out of the way.

No other folder is ever moved, and nothing is deleted or overwritten: an old results folder gets a name with the date. `store`
reads and writes the contents of the folder.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from orchestrator.errors import ResultsError
from orchestrator.files import reading, writing
from orchestrator.files.reading import resolved
from orchestrator.records import JobState
from orchestrator.results.claims import state

SUITE_FILE = "suite.json"
# The races of `tunebench tune`; `campaign/race/as_json.py` describes it.
RACE_FILE = "race.json"
TOOL = "tunebench"
# A race with more runs is from a damaged file.
_MOST_RUNS = 10**9
_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def is_ours(root: Path) -> bool:
    """Return whether the folder is a results folder, as its `suite.json` shows."""
    return read_suite(root) is not None


def may_exist(path: Path) -> bool:
    """Return whether there is a file, or a folder that hides its files from this user."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def plain_path(folder: Path) -> Path:
    """Return the absolute path of a folder, without `..`, which pytest refuses, and which hides whether a file is in the folder."""
    return resolved(folder) if ".." in folder.parts else folder.absolute()


def move_aside(root: Path) -> Path | None:
    """Give a results folder a name with the date, and return its new path; None if there is no folder.

    Raise ResultsError if the folder is not a results folder, or if runs in it are still running.
    """
    root = root.absolute()
    if not is_ours(root):
        refuse_foreign(root)
        return None
    active = (JobState.RUNNING, JobState.SILENT)
    running = [path for path in root.glob("experiments/*/runs/r*") if state(path) in active]
    if running:
        raise ResultsError(
            f"{root}: {len(running)} run(s) of this folder have not ended, such as {running[0]}; end them first"
        )
    try:
        return with_dated_name(root)
    except OSError as error:
        raise ResultsError(f"{root}: cannot be moved aside ({error.strerror}); name another folder") from error


def refuse_to_move(root: Path, *, what: Mapping[str, Path]) -> None:
    """Raise ResultsError if the results folder contains one of these places: after the move, the campaign would not find it."""
    for name, place in what.items():
        if is_ours(root) and resolved(place).is_relative_to(resolved(root)):
            raise ResultsError(
                f"{root}: cannot be moved aside, because {name} is in it; name another folder for the results"
            )


def with_dated_name(path: Path) -> Path:
    """Give a file or folder a name with the date, and return its new path."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (f"{path.name}.{stamp}" + (f"-{number}" if number > 1 else "") for number in count(1))
    return path.rename(next(name for name in map(path.with_name, names) if not os.path.lexists(name)))


def refuse_foreign(root: Path) -> None:
    """Raise ResultsError if the path is a file, or a folder that has content but is not a results folder."""
    if root.exists() and not root.is_dir():
        raise ResultsError(f"{root}: this is not a folder; name a new or an empty folder for the results")
    # Another tunebench may be making the folder at this moment. Then the folder has an unfinished suite.json.
    others = (path for path in (root.iterdir() if root.is_dir() else ()) if not path.name.startswith(f".{SUITE_FILE}."))
    if any(others) and not is_ours(root):
        refuse_damaged(root)
        raise ResultsError(f"{root}: the folder has other content than results; name a new or an empty folder")


def refuse_damaged(root: Path) -> None:
    """Raise ResultsError if the folder has a `suite.json` that cannot be read: it is damaged, or it belongs to another user."""
    path = root / SUITE_FILE
    try:
        reading.read_json(path, limit=reading.SUITE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read: {error.strerror}; make it readable") from error
    except ValueError as error:
        cure = f'restore it, or replace it by {{"tool": "{TOOL}"}}: the runs in the folder stay'
        raise ResultsError(f"{path}: cannot be read: {error}; {cure}") from error


def read_suite(root: Path) -> dict[str, Any] | None:
    """Return the content of `suite.json`; None if the file is missing, damaged, or from another program."""
    return read_ours(root / SUITE_FILE)


def read_ours(path: Path) -> dict[str, Any] | None:
    """Return the JSON object of a file that identifies a folder.

    Return None if the file is missing, damaged, or from another program.
    """
    try:
        document = reading.read_json(path, limit=reading.SUITE_BYTES)
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and document.get("tool") == TOOL else None


def bisected_commit(root: Path) -> str | None:
    """Return the commit that a bisection measures in this results folder, or None for any other results folder.

    A larger `suite.json` has many experiments, and a bisection has only one.
    """
    try:
        asked = reading.read_json(root / SUITE_FILE, limit=reading.CLAIM_BYTES)["asked"]["bisect"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return asked if isinstance(asked, str) and _COMMIT.fullmatch(asked) else None


def write_into(folder: Path, name: str, content: str | bytes) -> Path:
    """Write a file that is made from results, replace an older file, and return the path. Raise ResultsError if writing fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writing.replace(folder / name, content)
    except OSError as error:
        raise ResultsError(f"--output {folder}: {name} cannot be written: {error.strerror}") from error
    return folder / name


def races(root: Path) -> list[dict[str, Any]]:
    """Return the races in a results folder, the last one first. Their file may come from someone else.

    In files of older versions, the objective and the limits are those of all races.
    """
    document = read_ours(root / RACE_FILE) or {}
    found, common = document.get("races"), {name: document.get(name) for name in ("objective", "limits")}
    return [common | race for race in found if isinstance(race, dict)] if isinstance(found, list) else []


def raced(race: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids of the experiments in a race."""
    yield from (one["id"] for one in _rows(race))


def runs_of_race(race: Mapping[str, Any]) -> dict[str, int]:
    """Return id → the number of runs of an experiment that a race had at its last look."""
    return {
        one["id"]: runs for one in _rows(race) if isinstance(runs := one.get("runs"), int) and 0 <= runs < _MOST_RUNS
    }


def repeats_of_round(race: Mapping[str, Any]) -> dict[str, int]:
    """Return id → the repeats that an experiment has after the present round of a race. Return {} if the race is over."""
    rows = _rows(race) if race.get("is_over") is False else ()
    return {
        one["id"]: max(1, runs + (one.get("is_due") is True))
        for one in rows
        if isinstance(runs := one.get("runs"), int)
    }


def _rows(race: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = race.get("experiments")
    known = rows if isinstance(rows, list) else []
    return [one for one in known if isinstance(one, dict) and isinstance(one.get("id"), str)]
