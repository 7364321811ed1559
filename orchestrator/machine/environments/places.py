"""The files of a software environment in the user's cache, and what is known of a finished build.

    <environments>/<digest>.lock     who builds it or uses it (`locks`); its time is the time of the last use
    <environments>/<digest>.log      the output of the last build
    <environments>/<digest>/         requirements.txt, constraints.txt, lock.txt, names.txt, environment.json
    <environments>/<digest>/venv/    the virtual environment

`environment.json` is the commit point of a build. It is the last file that a build writes, and the first that a removal deletes. A
folder without this file is what a killed process left. The folder is not made under another name and renamed at the end, because
the scripts of a virtual environment contain its absolute path.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BuildError
from orchestrator.files import reading, writing
from orchestrator.files.cache import cache_folder
from orchestrator.files.mounts import mounted_in
from orchestrator.files.printable_text import one_line, printable
from orchestrator.machine.environments.request_digest import DIGITS, digest
from orchestrator.records import load
from orchestrator.records.environment import EnvironmentRequest

IS_DIGEST = re.compile(f"[0-9a-f]{{{DIGITS}}}")
_VENV = "venv"
_HEADING, _LONGEST_LINE = re.compile(r"# environment (.+?): (.*)"), 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """A container image. `digest` is its SHA-256, and `pinned` the reference that always names this image.

    An image in a file has the `path` of the file. `modified_ns` and `bytes` tell whether the file was changed.
    """

    digest: str
    pinned: str
    bytes: int
    path: str | None = None
    modified_ns: int | None = None

    def is_there(self) -> bool:
        """Return whether the image's file is unchanged. Only the program knows this of an image without a file."""
        if self.path is None:
            return True
        with suppress(OSError):
            status = os.stat(self.path)
            return (status.st_size, status.st_mtime_ns) == (self.bytes, self.modified_ns)
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """The content of `environment.json`. `lock` is the digest of the installed packages; `bytes` counts hard links once.

    `request` has no credentials. `seconds` is the time of the build, and `built_at` is when it ended. A container has an `image`.
    Its `lock` is a digest of the image, and its packages are those of the interpreter in the image.
    """

    request: EnvironmentRequest
    lock: str
    packages: Mapping[str, str]
    python: str
    tool: str
    tool_version: str
    seconds: float
    bytes: int
    built_at: str
    image: Image | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of one environment. `folder` need not exist."""

    folder: Path

    @property
    def digest(self) -> str:
        return self.folder.name

    @property
    def venv(self) -> Path:
        return self.folder / _VENV

    @property
    def interpreter(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def home(self) -> Path:
        """The home folder inside a container: caches such as Triton's stay in it from run to run."""
        return self.folder / "home"

    @property
    def lock_file(self) -> Path:
        """The file that is locked during a build, a use and a removal."""
        return self.folder.with_name(f"{self.digest}.lock")

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.digest}.log")

    @property
    def requirements(self) -> Path:
        return self.folder / "requirements.txt"

    @property
    def constraints(self) -> Path:
        return self.folder / "constraints.txt"

    @property
    def overrides(self) -> Path:
        return self.folder / "overrides.txt"

    @property
    def locked(self) -> Path:
        """The file with the exact packages and their hashes."""
        return self.folder / "lock.txt"

    @property
    def record(self) -> Path:
        return self.folder / "environment.json"

    def built(self) -> Built | None:
        """Return what is known of the finished build.

        Return None if the environment is not built, or if the interpreter that it was made with was removed. So it is if the
        file of a container's image was changed.
        """
        try:
            built = load(Built, reading.read_bytes(self.record, limit=reading.RECORD_BYTES))
        except (OSError, ValueError):
            return None
        return built if (built.image.is_there() if built.image else self.interpreter.exists()) else None

    def names(self) -> tuple[str, ...]:
        """Return the names under which the environment was built, without repetition. A failed build has the name of its log."""
        name = self.asked()[0]
        return self._noted_names() or ((name,) if name else ())

    def _noted_names(self) -> tuple[str, ...]:
        with suppress(OSError, ValueError):
            return tuple(dict.fromkeys(reading.read_text(self._names, limit=reading.CLAIM_BYTES).split("\n")[:-1]))
        return ()

    def begin_log(self, request: EnvironmentRequest) -> None:
        """Begin a new log with the name and the request of the build. Of a build that fails, only the log stays."""
        image = request.container.image if request.container else ""
        asked = image or "; ".join((*request.requirements, *(["the packages of a lock"] if request.lock else [])))
        writing.replace(
            self.log, f"# environment {one_line(request.name, longest=100)}: {one_line(asked, longest=1000)}\n"
        )

    def asked(self) -> tuple[str, str]:
        """Return the name and the request of the last build, as its log has them; two empty texts if they are unknown."""
        with suppress(OSError, ValueError):
            with self.log.open("rb") as file:
                first = file.readline(_LONGEST_LINE).decode(errors="replace")
            if match := _HEADING.fullmatch(first.strip()):
                return match[1], match[2]
        return "", ""

    def last_line(self) -> str:
        """Return the last line of the log of a build."""
        with suppress(OSError, ValueError):
            lines = reading.read_text(self.log, limit=reading.LOG_BYTES).strip().splitlines()[1:]
            return one_line(lines[-1], longest=300) if lines else ""
        return ""

    def add_name(self, name: str) -> None:
        """Note one more name of the environment. It is only shown, so errors are ignored."""
        if (name := printable(" ".join(name.split()))) not in self._noted_names():
            with suppress(OSError):
                writing.append(self._names, f"{name}\n")

    @property
    def _names(self) -> Path:
        return self.folder / "names.txt"


def discard(place: Place) -> None:
    """Remove an environment's folder. The record goes first: if this is interrupted, the rest does not count as built.

    Raise BuildError if the folder stays, such as one with a file system that is mounted in it.
    """
    folder = place.folder
    if not folder.is_symlink() and (mounted := mounted_in(folder)):
        why = f"a file system is mounted at {mounted[0]}; unmount it, and repeat the command"
        raise BuildError(f"{folder} is kept, because {why}")
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            place.record.unlink()
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
    except OSError as error:  # the error of rmtree does not name the whole path
        raise BuildError(f"{folder} could not be removed: {reading.reason(error)}") from error


def environments_folder() -> Path:
    """Return the folder of all environments: `$TUNEBENCH_ENVIRONMENTS`, else `environments` in Tunebench's cache folder."""
    if own := os.environ.get("TUNEBENCH_ENVIRONMENTS"):
        return Path(own).absolute()
    return cache_folder() / "environments"


def place_of(request: EnvironmentRequest) -> Place:
    """Return the paths of the environment that a request asks for. Two names with one request share one environment."""
    return Place(environments_folder() / digest(request))


def place_with(interpreter: Path) -> Place | None:
    """Return the paths of the environment that has this interpreter. Return None for an interpreter that Tunebench did not make."""
    if len(interpreter.parents) > 2 and interpreter.parents[1].name == _VENV:
        place = Place(interpreter.parents[2])
        return place if IS_DIGEST.fullmatch(place.digest) else None
    return None
