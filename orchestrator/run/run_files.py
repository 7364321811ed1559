"""The files in a run's folder that `run-one` writes, redacts or removes: logs, the script, and files that the command reads.

Disk space for the record is reserved during a run, because the training may fill the disk. `collect` reads the files of ranks and
monitors; `results/` writes the record and the claim.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.entry_points import WrongAnswer
from orchestrator.errors import LaunchError
from orchestrator.files import reading, writing
from orchestrator.files.mounts import mounted_in
from orchestrator.files.printable_text import quoted
from orchestrator.files.redaction import redact_end
from orchestrator.machine import process
from orchestrator.records import Caveat, Command, RunFolder
from orchestrator.records.run_folder import OUTPUT
from orchestrator.results.claims import read_claim
from orchestrator.results.folder import may_exist
from orchestrator.run.script import command_script

RESERVED_BYTES = 512 * 1024
_LOG_BYTES = 256 * 1024
_REMOVAL_S = 600.0


def keep_room(folder: RunFolder) -> None:
    """Reserve disk space for the record, and a small file for its name.

    On some file systems, a name needs as much space as a file.
    """
    writing.reserve(folder.kept_record, RESERVED_BYTES)
    writing.reserve(folder.reserve, 1)


def give_room(folder: RunFolder) -> None:
    """Release the reserved name, so that the record can be written.

    Remove the notes about the run's processes, since they have ended.
    """
    for path in (folder.reserve, folder.processes):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def is_gone(folder: RunFolder, marker: str) -> bool:
    """Return whether the folder of the run with this marker was removed, renamed or emptied."""
    claim = read_claim(folder.path)
    if claim is not None:
        return claim.marker != marker
    try:
        folder.claim.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def is_disk_full(folder: RunFolder) -> bool:
    """Return whether less space is free than was reserved. In this case, a failed process may not have written its error.

    The numbers of the disk do not show a quota, so a file is tried, too, but not on a disk that is known to be full.
    """
    with suppress(OSError):
        disk = shutil.disk_usage(folder.path)
        if disk.total > 0 and disk.free < RESERVED_BYTES:  # a file system such as ramfs does not know its size
            return True
    return not writing.has_room(folder.path, RESERVED_BYTES)


def write(command: Command, folder: RunFolder) -> None:
    """Write the files that the command reads, and the script that repeats the command.

    Make the folder in which the command starts. Raise WrongAnswer if a trainer names a file outside the run's folder, or a file
    that is already there.
    """
    if folder.path in command.cwd.parents:
        command.cwd.mkdir(parents=True, exist_ok=True)
    for name, text in command.files.items():
        path = os.path.normpath(folder.path / name)
        if not path.startswith(f"{folder.path}{os.sep}") or os.path.lexists(path):
            raise WrongAnswer(
                f"a file of the command is named {quoted(name)}; it must be a new file in the run's folder"
            )
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text(text, encoding="utf-8")
    folder.script.write_text(command_script(command), encoding="utf-8", errors="surrogateescape", newline="")
    with suppress(OSError):  # some network disks refuse it, and `bash command.sh` needs no right to execute
        folder.script.chmod(0o755)


def log_end(folder: RunFolder) -> str:
    """Return the redacted end of stderr, or of stdout if stderr is empty."""
    for log in (folder.stderr, folder.stdout):
        with suppress(OSError, ValueError):
            size = log.stat().st_size
            if size:
                text = reading.read_tail(log, limit=_LOG_BYTES)
                # The text is redacted before it is cut into lines, because half a secret is not recognised.
                return redact_end(text, cut=size > _LOG_BYTES)
    return ""


def pids(folder: RunFolder) -> frozenset[int]:
    """Return the ids of the training processes, which the instrument wrote to a file.

    Return an empty set if there is no such file.
    """
    try:
        words = reading.read_text(folder.pids, limit=reading.CLAIM_BYTES).split()
    except (OSError, ValueError):
        return frozenset()
    return frozenset(int(word) for word in words if word.isdecimal() and len(word) < 10)


def remove_output(folder: RunFolder) -> Iterator[Caveat]:
    """Remove the checkpoints: `output/` in the run's folder and in the working folder.

    Yield a warning for a folder that is kept because a file system is mounted in it, or over a folder around it: the files there
    are the user's. Yield a warning also for a folder that could not be removed.
    """
    # os.path.islink says no where a command took the rights to the folder away; Path.is_symlink would raise.
    for output in (folder.output, *(() if os.path.islink(folder.work) else (folder.work / OUTPUT,))):
        if mounted := [] if os.path.islink(output) else _mounted_around(output, folder.path):
            yield Caveat(
                detail=f"{output} is kept, because a file system is mounted at {mounted[0]}; unmount it, then remove the folder"
            )
        else:
            _remove(output)
            if may_exist(output):
                cure = "make it writable (chmod -R u+rwX), then remove it"
                yield Caveat(detail=f"{output} could not be removed; {cure}")


def _mounted_around(folder: Path, top: Path) -> list[Path]:
    """Return the mount points in a folder, and those between it and the folder `top`, which contains it."""
    real = Path(os.path.realpath(folder))
    return [point for point in mounted_in(top) if real in (point, *point.parents) or point in real.parents]


def _remove(folder: Path) -> None:
    """Remove a folder. If a program put a link or a file in its place, remove only this."""
    with suppress(OSError):
        if not stat.S_ISDIR(folder.lstat().st_mode):
            folder.unlink()  # opening it, as rmtree does, would wait for ever if it is a pipe
    if not os.path.isdir(folder):
        return
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.isdir(folder):  # it is too deep for Python or for the limit of open files
        with suppress(LaunchError):
            process.capture(("rm", "-rf", "--", str(folder)), _REMOVAL_S)


def remove_empty_work(folder: RunFolder) -> None:
    """Remove the working folder if the training wrote nothing into it."""
    with suppress(OSError):
        folder.work.rmdir()
