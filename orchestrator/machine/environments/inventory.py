"""The environments on this machine: their states and sizes, and how they are removed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.errors import BuildError, suggestion
from orchestrator.machine.environments import contents, locks
from orchestrator.machine.environments.places import IS_DIGEST, Built, Place, discard, environments_folder

_SHORTEST_PART = 4


class State(StrEnum):
    """The state of an environment. `unfinished`: a killed build left it. `failed`: only the log of its build is there."""

    BUILT = "built"
    IN_USE = "in use"
    BUILDING = "building"
    UNFINISHED = "unfinished"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One environment. `freed_bytes` is what its removal would free; the rest is linked from uv's cache or another environment."""

    place: Place
    names: tuple[str, ...]
    state: State
    built: Built | None
    bytes: int
    freed_bytes: int
    last_used: float | None


def entries() -> list[Entry]:
    """Return all environments of this user, the last used first."""
    found = [entry(place) for place in _places()]
    return sorted(found, key=lambda entry: (-(entry.last_used or 0.0), entry.place.digest))


def entry(place: Place) -> Entry:
    """Return what is known of one environment."""
    built = place.built()
    total, freed = contents.size(place.folder)
    return Entry(
        place=place,
        names=place.names(),
        state=_state(place, built is not None),
        built=built,
        bytes=total,
        freed_bytes=freed,
        last_used=_last_used(place),
    )


def find(word: str) -> list[Place]:
    """Return the environments that have this digest, or a part of it, or else this name. Raise BuildError if there is none."""
    places = _places()
    by_digest = [place for place in places if len(word) >= _SHORTEST_PART and place.digest.startswith(word)]
    if found := by_digest or [place for place in places if word in place.names()]:
        return found
    known = {*(place.digest for place in places), *(name for place in places for name in place.names())}
    raise BuildError(f"there is no environment {word!r} in {environments_folder()}{suggestion(word, known)}")


def remove(place: Place) -> int | None:
    """Remove an environment with its log. Return the freed bytes, or None if a process builds or uses it."""
    with locks.removing(place) as is_unused:
        return _removed(place) if is_unused else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """One environment that `collect` removed: why, and the bytes that this freed."""

    place: Place
    why: str
    freed_bytes: int


def collect(older_than_s: float) -> Iterator[Collected]:
    """Remove what killed builds left, and what was not used for this time. Keep what a process builds or uses.

    After the others, raise BuildError for those that could not be removed.
    """
    kept: list[str] = []
    for place in _places():
        with locks.removing(place) as is_unused:
            if is_unused and (why := _why_removed(place, older_than_s)):
                names = place.names()
                try:
                    freed_bytes = _removed(place)
                except BuildError as error:
                    kept.append(str(error))
                else:
                    yield Collected(place=place, why=_with(names, why), freed_bytes=freed_bytes)
    if kept:
        raise BuildError("\n".join(kept))


def _with(names: tuple[str, ...], why: str) -> str:
    return f"{', '.join(names)}: {why}" if names else why


def _why_removed(place: Place, older_than_s: float) -> str | None:
    if place.folder.exists() and place.built() is None:
        return "an unfinished build"
    days = (time.time() - (_last_used(place) or 0.0)) / 86_400
    if days * 86_400 < older_than_s:
        return None
    return f"not used for {days:.0f} days" if place.folder.exists() else "the log of an old build"


def _removed(place: Place) -> int:
    """Remove the files of an environment whose lock this process holds, and return the freed bytes."""
    freed = contents.size(place.folder)[1]
    discard(place)
    # The locked file goes last. Processes that wait for it notice that it is gone.
    for file in (place.log, place.lock_file):
        with suppress(FileNotFoundError):
            file.unlink()
    return freed


def _state(place: Place, is_built: bool) -> State:
    if locks.is_held(place):
        return State.IN_USE if is_built else State.BUILDING
    if is_built:
        return State.BUILT
    return State.UNFINISHED if place.folder.exists() else State.FAILED


def _places() -> list[Place]:
    """Return the places of environments. Another folder, such as one that is named by a commit, has no lock or record.

    A folder in the place of a lock is not from this program.
    """
    folder = environments_folder()
    try:
        digests = {path.stem for path in folder.iterdir() if IS_DIGEST.fullmatch(path.stem)}
    except FileNotFoundError:
        return []
    places = (Place(folder / digest) for digest in sorted(digests))
    known = (place for place in places if any(file.exists() for file in (place.lock_file, place.record)))
    return [place for place in known if not place.lock_file.is_dir()]


def _last_used(place: Place) -> float | None:
    for file in (place.lock_file, place.log, place.folder):
        with suppress(OSError):
            return Path(file).stat().st_mtime
    return None
