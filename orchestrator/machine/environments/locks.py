"""Locks between processes: one process builds an environment, several may use it, and only an unused one is removed.

All of them lock one file next to the environment's folder, with flock(2). Builders and removals lock it for themselves, and users
share it. The system releases the lock when its process ends, however it ends. A killed builder may leave programs that still write
into the folder. So a builder notes in the locked file who it is, and the next one ends these programs first.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from orchestrator.errors import BuildError
from orchestrator.files.locking import locked
from orchestrator.files.printable_text import one_line
from orchestrator.machine import process_identity, process_tree
from orchestrator.machine.environments.places import Place, place_with

_LONGEST_NOTE = 4096
_PAUSE_S = 0.2

_locked = partial(locked, option="TUNEBENCH_ENVIRONMENTS", error=BuildError)


@contextmanager
def building(place: Place, on_event: Callable[[str], None]) -> Iterator[str | None]:
    """Hold the lock of a builder, and yield the marker that its programs must carry. Yield None if the environment is built.

    If another process builds it, wait, and give `on_event` one sentence about that. End the programs that a killed builder left.
    """
    place.folder.parent.mkdir(parents=True, exist_ok=True)
    told = False
    while place.built() is None:
        with _locked(place.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB, to_write=True) as descriptor:
            if descriptor is not None and place.built() is None:
                yield _begin(descriptor)
                # Not in `finally`: the next builder needs the note if this one fails to end its programs.
                _note(descriptor, "")
                return
        if descriptor is None:
            if not told:
                on_event(_who_builds(place))
            told = True
            _wait(place)
    yield None


def _begin(descriptor: int) -> str:
    """Note in the locked file that this process builds, and return the marker of its programs."""
    _end_left_programs(descriptor)
    marker = uuid.uuid4().hex
    own = {"host": process_identity.host_name(), "pid": os.getpid(), "boot_id": process_identity.boot_id()}
    _note(descriptor, json.dumps({**own, "marker": marker}))
    return marker


def _wait(place: Place) -> None:
    """Wait until no process builds the environment. Those that use it do not matter, so the lock is shared with them."""
    with _locked(place.lock_file, fcntl.LOCK_SH):
        pass
    # If the builder failed, all that waited now try to build. They would block each other if they tried at one moment.
    time.sleep(random.uniform(0.0, _PAUSE_S))


@contextmanager
def removing(place: Place) -> Iterator[bool]:
    """Yield whether the environment may be removed: no process builds or uses it, and none will until the block ends."""
    with _locked(place.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB) as descriptor:
        if descriptor is not None:
            _end_left_programs(descriptor)
        yield descriptor is not None


@contextmanager
def using(interpreter: Path) -> Iterator[None]:
    """Keep an environment from being removed during a `with` block, and note the time of its use.

    Do nothing for an interpreter that Tunebench did not make. Raise BuildError if the environment is gone.
    """
    place = place_with(interpreter)
    with nullcontext() if place is None else using_place(place):
        yield


@contextmanager
def using_place(place: Place) -> Iterator[None]:
    """Keep the environment of this place from being removed, as `using` does."""
    if not place.record.exists():
        raise _gone(place)
    with _locked(place.lock_file, fcntl.LOCK_SH):
        if not place.record.exists():  # it was removed while this process waited
            raise _gone(place)
        touch(place)
        yield


def touch(place: Place) -> None:
    """Note that the environment is used now. Another user's file cannot be changed, so errors are ignored."""
    with suppress(OSError):
        os.utime(place.lock_file)


def is_held(place: Place) -> bool:
    """Return whether a process builds or uses the environment."""
    if not place.lock_file.exists():
        return False
    with _locked(place.lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB) as descriptor:
        return descriptor is None


def _gone(place: Place) -> BuildError:
    return BuildError(
        f"{place.folder}: the software environment is not there; build it again with `tunebench env build`"
    )


def _note(descriptor: int, text: str) -> None:
    """Replace the content of the locked file. A new file in its place would not be locked."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)


def _noted(content: bytes) -> dict[str, object]:
    try:
        noted = json.loads(content)
    except ValueError:  # another process is just writing it
        return {}
    return noted if isinstance(noted, dict) else {}


def _who_builds(place: Place) -> str:
    try:
        with place.lock_file.open("rb") as file:
            noted = _noted(file.read(_LONGEST_NOTE))
    except OSError:
        noted = {}
    who = f"process {noted['pid']} on {noted['host']}" if {"pid", "host"} <= noted.keys() else "another process"
    return f"waiting for {one_line(who)}, which builds the same environment ({place.digest})"


def _end_left_programs(descriptor: int) -> None:
    """End the programs of a builder that was killed on this machine. Its note is still in the locked file."""
    noted = _noted(os.pread(descriptor, _LONGEST_NOTE, 0))
    if noted.get("boot_id") == process_identity.boot_id():
        with suppress(ValueError):
            process_tree.end_tree(str(noted.get("marker")))
