"""The digest of a request for a software environment: equal requests share one build. It needs no network.

The digest covers what can change the installed packages: the requirements, the constraints, the lock, the interpreter's version and
platform, and the addresses of package indexes. It leaves out what cannot: the name, the tool that installs, paths and credentials.
It also leaves out pip's own configuration and the date. What these two change is seen in the digest of the lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from orchestrator.errors import BuildError, LaunchError
from orchestrator.records.environment import EnvironmentRequest

DIGITS = 12
_START_S = 60.0
_COMMENT = re.compile(r"(^|\s)#.*")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_FOLDER_ENDS = r"/?(?=[\[\s;#]|$)"
_TAG = "[sys.implementation.name, list(sys.version_info[:2]), sysconfig.get_platform()]"


def digest(request: EnvironmentRequest) -> str:
    """Return the digest of a request: twelve hexadecimal digits. Raise BuildError if the request's interpreter does not start."""
    return short_digest(json.dumps(_content(request), sort_keys=True))


def short_digest(text: str) -> str:
    """Return the first hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:DIGITS]


def without_credentials(text: str) -> str:
    """Return the text without users and passwords in its addresses."""
    return _CREDENTIALS.sub("", text)


def entries(lines: Iterable[str]) -> Iterator[str]:
    """Yield the entries of a requirements file. Leave out comments and blank lines, and join the lines of one entry."""
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if entry := " ".join(_COMMENT.sub("", line).split()):
            yield entry


def _content(request: EnvironmentRequest) -> dict[str, Any]:
    if request.container is not None:
        return {"container": asdict(request.container)}
    content: dict[str, Any] = {
        "requirements": _normalised(request.requirements, request.folders),
        "constraints": _normalised(request.constraints, request.folders),
        "lock": _normalised([request.lock or ""], request.folders),
        "folders": sorted([os.path.basename(path), content] for path, content in request.folders.items()),
        "find_links": [without_credentials(address).rstrip("/") for address in request.find_links],
        "indexes": [without_credentials(address).rstrip("/") for address in request.indexes],
        "python": _python_tag(request),
    }
    if request.overrides:  # digests of other requests must not change
        content["overrides"] = _normalised(request.overrides, request.folders)
    return content if request.existing is None else {**content, "existing": True}


def _normalised(lines: Iterable[str], folders: Mapping[str, str]) -> list[str]:
    """Return the entries of a requirements file, sorted, each in one spelling."""
    return sorted({_one_spelling(_without_path(entry, folders)) for entry in entries(lines)})


def _without_path(entry: str, folders: Mapping[str, str]) -> str:
    """Return an entry with the name of a local package's folder instead of the folder's path."""
    for path in sorted(folders, key=len, reverse=True):
        for written in {path, quote(path)}:
            name = f"folder:{os.path.basename(path)}"
            # A function, since the name may contain a backslash.
            entry = re.sub(rf"(?:file://)?{re.escape(written)}{_FOLDER_ENDS}", lambda _, name=name: name, entry)  # type: ignore[misc]
    return entry


def _one_spelling(entry: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        requirement = Requirement(without_credentials(entry))
    except InvalidRequirement:  # an option of pip, or a path
        return without_credentials(entry)
    requirement.name = canonicalize_name(requirement.name)
    requirement.extras = {canonicalize_name(extra) for extra in requirement.extras}
    return str(requirement)


def _python_tag(request: EnvironmentRequest) -> str:
    """Return the implementation, the version without its patch number, and the platform of an environment's interpreter."""
    python, key = request.existing or request.python, "interpreter:" if request.existing else "python:"
    if python is None or _is_own(python):
        own = (sys.implementation.name, list(sys.version_info[:2]), sysconfig.get_platform())
        return _tag(*own)
    tag = _asked(os.path.abspath(os.path.expanduser(python)))
    if tag is None:
        raise BuildError(
            f"environment {request.name!r}: the interpreter {python} does not start; name another with {key}"
        )
    return tag


def _is_own(python: str) -> bool:
    return os.path.realpath(os.path.expanduser(python)) == os.path.realpath(sys.executable)


def _tag(implementation: str, version: list[int], platform: str) -> str:
    return f"{implementation}-{'.'.join(map(str, version))}-{platform}"


@cache
def _asked(python: str) -> str | None:
    """Ask an interpreter for its tag. Return None if it does not start, or is another program than Python."""
    from orchestrator.machine import process

    try:
        argv = [python, "-I", "-c", process.question(_TAG, "import sysconfig")]
        match process.answer(process.capture(argv, _START_S)):
            case [str(implementation), [int(major), int(minor)], str(platform)]:
                return _tag(implementation, [major, minor], platform)
    except (LaunchError, ValueError):  # another program may answer anything
        pass
    return None


def starts(python: Path) -> bool:
    """Return whether the interpreter starts."""
    return _is_own(str(python)) or _asked(os.path.abspath(python)) is not None
