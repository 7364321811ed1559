"""The stored screens of a machine: a folder for each host in the user's cache. A file has a date in its name, and stays as it is.

A results folder has its screens in `screens/`. Files from there may come from anyone.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from math import isclose
from pathlib import Path

from orchestrator.errors import ResultsError
from orchestrator.files import reading, writing
from orchestrator.files.cache import cache_folder
from orchestrator.files.redaction import redact
from orchestrator.records.as_json import dump, load
from orchestrator.screen.figures import KINDS, SCHEMA_VERSION, Screen
from orchestrator.screen.judge import share

FOLDER = "screens"
# The newest files that are read. Older screens say less about the machine of today.
MOST = 100
# The threads of a process may wait at the same time, so their share can be above 1.
MOST_WAIT = 1e4
_LARGEST = 2 * reading.MIB


def folder_of(host: str) -> Path:
    """Return the folder of a host's screens. Several hosts may share the cache folder."""
    return cache_folder() / FOLDER / _word(host)


def file_name(screen: Screen) -> str:
    """Return a new name, with the date. It does not reveal the host."""
    stamp = re.sub(r"\D", "", screen.taken_at)[:14]
    return f"{stamp}-{uuid.uuid4().hex[:6]}.json"


def text(screen: Screen) -> str:
    """Return a screen as the text of a file."""
    return redact(dump(screen))


def keep(screen: Screen) -> Path:
    """Write a screen to its host's folder, and return the path. Raise ResultsError if that fails."""
    path = folder_of(screen.host) / file_name(screen)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writing.place_once(path, text(screen))
    except OSError as error:
        raise ResultsError(
            f"{path}: the figures cannot be stored: {error.strerror}; set TUNEBENCH_CACHE to a folder that can be written"
        ) from error
    return path


def read(folder: Path) -> Iterator[Screen]:
    """Yield the newest screens of a folder, in the order of their dates. Files that are not screens are left out."""
    try:
        paths = sorted(folder.glob("*.json"), key=lambda path: path.name)[-MOST:]
    except OSError:
        return
    screens = [screen for path in paths if (screen := _screen(path)) is not None]
    yield from sorted(screens, key=lambda screen: screen.taken_at)


def _screen(path: Path) -> Screen | None:
    try:
        content = reading.read_bytes(path, limit=_LARGEST)
        reading.parse_json(content)  # it refuses deep nesting and numbers that are not finite
        screen = load(Screen, content)
    except (OSError, ValueError):
        return None
    screen = replace(screen, off=tuple(one for one in screen.off if one.name in KINDS))  # of a newer version, perhaps
    return screen if _is_sound(screen) and screen.schema_version == SCHEMA_VERSION else None


def _is_sound(screen: Screen) -> bool:
    """Return whether a machine can have all figures of the screen. The share of a figure that is off is that of its two values."""
    values = [(figure.name, sample) for figure in screen.figures if figure.name in KINDS for sample in figure.samples]
    values += [(one.name, value) for one in screen.off for value in (one.value, one.reference)]
    return (
        all(KINDS[name].between[0] <= value <= KINDS[name].between[1] for name, value in values)
        and all(isclose(one.share, share(one.name, one.value, one.reference), abs_tol=1e-3) for one in screen.off)
        and 0 <= (screen.core_wait_share or 0) <= MOST_WAIT
    )


def _word(host: str) -> str:
    return re.sub(r"[^\w.-]+", "_", host, flags=re.ASCII).strip(".") or "host"
