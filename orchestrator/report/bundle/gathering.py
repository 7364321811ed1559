"""The names that a campaign's files reveal: the hosts where it ran, and the users whose home folders are in its paths.

All files of the bundle are read before any file is written, because a file may mention a host before a record names it.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.report.bundle.contents import Piece, content
from orchestrator.report.bundle.names import Known, users_in

# Keys whose values identify an experiment, a commit, a GPU or a file. These values look like secrets.
_IDENTIFIERS = ("id", "experiment_id", "commit", "uuid", "digest", "boot_id")
_VERSION = re.compile(r"==\s*([\w.+!-]+)")


def gather(pieces: Iterable[Piece], *, whole_logs: bool) -> Known:
    """Return the names to hide: the names in the files, and the names of this machine and its user."""
    hosts = {socket.gethostname(), platform.node(), os.environ.get("HOSTNAME", "")} - {""}
    users, versions, identifiers = {*_this_user()}, set[str](), set[str]()
    for piece in pieces:
        if piece.path.endswith(".html"):
            continue  # a page is made from the records, and its scripts contain paths of other people
        try:
            text = content(piece, whole_logs=whole_logs).text
        except (OSError, reading.Unreadable):
            continue
        users |= users_in(text)
        if piece.path.endswith("requirements.txt"):
            versions |= {*_VERSION.findall(text)}
        if piece.path.endswith(".json"):
            with suppress(ValueError):
                parsed = reading.parse_json(text.encode("utf-8", "replace"), finite=False)
                hosts |= {*_hosts(parsed)}
                identifiers |= {*_identifiers(parsed)}
    sets = {"hosts": hosts, "users": users, "versions": versions, "identifiers": identifiers}
    return Known(**{name: frozenset(found) for name, found in sets.items()})


def _this_user() -> Iterator[str]:
    yield from filter(None, map(os.environ.get, ("USER", "LOGNAME", "USERNAME")))
    with suppress(ImportError, KeyError):  # the module or the user's entry may be missing
        import pwd

        yield pwd.getpwuid(os.getuid()).pw_name
    with suppress(RuntimeError):
        yield Path.home().name


def _hosts(value: Any) -> Iterator[str]:
    """Yield the value of every key `host` or `node`. If the host is an object, yield the object's `name` instead.

    Search at any depth up to the limit of `files.reading`.
    """
    if isinstance(value, dict):
        host = value.get("host")
        name = host.get("name") if isinstance(host, dict) else host
        yield from (word for word in (name, value.get("node")) if isinstance(word, str) and word)
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _hosts(child)


def _identifiers(value: Any) -> Iterator[str]:
    """Yield every text that is the value of a key in _IDENTIFIERS, at any depth."""
    if isinstance(value, dict):
        yield from (text for key in _IDENTIFIERS if isinstance(text := value.get(key), str))
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _identifiers(child)
