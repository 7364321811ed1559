"""The installed packages of an environment, and the digest of its lock: the same digest means the same packages."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from orchestrator.files import reading
from orchestrator.machine import provenance
from orchestrator.machine.environments.places import Place, place_of
from orchestrator.machine.environments.request_digest import entries, short_digest
from orchestrator.records.environment import EnvironmentRequest

_PINNED = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;]+)")
_HASH = re.compile(r"--hash[= ](\S+)")
_NAME = re.compile(r"(?P<name>.+?)-[^-]+\.dist-info")


def lock_digest(request: EnvironmentRequest) -> str | None:
    """Return the digest of the packages of a finished build, or None if the environment is not built.

    For an interpreter of the user, it is a digest of its packages' names and versions, and None if the interpreter does not start.
    """
    if request.existing is None:
        built = place_of(request).built()
        return built.lock if built else None
    if provenance.python_version(request.existing) is None:
        return None
    return digest_of(provenance.Machine().packages(request.existing), {}, {})


def digest_of(packages: Mapping[str, str], hashes: Mapping[str, frozenset[str]], origins: Mapping[str, str]) -> str:
    """Return the digest of packages: names and versions, the hashes of their files, and the content of those without a file."""
    lines = [
        [f"{name}=={version}", sorted(hashes.get(name, ())), origins.get(name)] for name, version in packages.items()
    ]
    return short_digest(json.dumps(sorted(lines, key=lambda line: str(line[0]))))


def installed(place: Place) -> dict[str, str]:
    """Return a dict from normalised package name to version."""
    return provenance.installed(list(map(str, _site_packages(place))))


def hashes_in(lock: str) -> dict[str, frozenset[str]]:
    """Return the hashes of each package in the text of a lock."""
    found: dict[str, frozenset[str]] = {}
    for entry in entries([lock]):
        if pinned := _PINNED.match(entry):
            found[_normal(pinned["name"])] = frozenset(_HASH.findall(entry))
    return found


def origins(place: Place, folders: Mapping[str, str]) -> dict[str, str]:
    """Return the commit of each package from git, and the digest of each local package."""
    found: dict[str, str] = {}
    for file in direct_urls(place):
        name = _NAME.fullmatch(file.parent.name)
        with suppress(OSError, ValueError):
            origin = _origin(reading.read_json(file, limit=reading.CLAIM_BYTES), folders)
            if name and origin:
                found[_normal(name["name"])] = origin
    return found


def direct_urls(place: Place) -> Iterator[Path]:
    """Yield the file of each package from an address: uv and pip note the address in it."""
    return (file for site in _site_packages(place) for file in site.glob("*.dist-info/direct_url.json"))


def _origin(direct_url: Any, folders: Mapping[str, str]) -> str | None:
    match direct_url:
        case {"vcs_info": {"commit_id": str(commit)}}:
            return commit
        case {"url": str(url)}:  # a folder or a wheel
            return folders.get(unquote(urlsplit(url).path).rstrip("/"))
    return None


def _site_packages(place: Place) -> Iterator[Path]:
    yield from sorted(place.venv.glob("lib*/python*/site-packages"))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def size(folder: Path) -> tuple[int, int]:
    """Return the bytes of a folder's files, and the bytes that its removal would free. A file with several links counts once.

    uv links the files of its cache into the environment. The removal frees only files whose links are all in this folder.
    """
    seen: dict[tuple[int, int], int] = {}
    files: dict[tuple[int, int], os.stat_result] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it was just removed
                status = os.lstat(os.path.join(root, name))
                file = (status.st_dev, status.st_ino)
                seen[file] = seen.get(file, 0) + 1
                files[file] = status
    freed = sum(status.st_size for file, status in files.items() if status.st_nlink <= seen[file])
    return sum(status.st_size for status in files.values()), freed
