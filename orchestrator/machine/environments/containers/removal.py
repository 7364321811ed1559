"""Removes the container of a run whose processes were ended."""

from __future__ import annotations

from contextlib import suppress

from orchestrator.errors import LaunchError
from orchestrator.files import reading
from orchestrator.machine import process
from orchestrator.records import RunFolder

_REMOVAL_S = 60.0


def remove_container(folder: RunFolder) -> None:
    """Remove what podman keeps of a container whose processes were ended. Its own removal may have been ended with them."""
    if folder.container.exists() and _is_in_container(folder):
        with suppress(LaunchError):
            words = ("podman", "rm", "--force", "--ignore", f"--cidfile={folder.container}")
            process.capture(words, _REMOVAL_S)


def _is_in_container(folder: RunFolder) -> bool:
    """Return whether the run is in a container. The command of another run may write a file with the name of the id's file."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        return bool(reading.read_json(folder.experiment, limit=reading.RECORD_BYTES)["environment"]["container"])
    return False
