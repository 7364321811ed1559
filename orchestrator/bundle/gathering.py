"""The names that a campaign's own files give away: where it ran, and whose home folders its paths lead through.

Reads every file that goes into the bundle once, before any is written: a name may turn up long before what tells that it is one.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator import untrusted
from orchestrator.bundle.contents import Piece, content
from orchestrator.bundle.names import Known, users_in

_VERSION = re.compile(r"==\s*([\w.+!-]+)")


def gather(pieces: Iterable[Piece], *, whole_logs: bool) -> Known:
    """All names that are to be hidden, with those of this machine and of who asks."""
    hosts, users, versions, words = {*_this_host()}, {*_this_user()}, set[str](), set[str]()
    for piece in pieces:
        if piece.path.endswith(".html"):
            continue  # made of the records, with programs that hold paths of other people's
        try:
            text = content(piece, whole_logs=whole_logs).text
        except (OSError, untrusted.Unreadable):
            continue
        users |= users_in(text)
        if piece.path.endswith("requirements.txt"):
            versions |= {*_VERSION.findall(text)}
        if piece.path.endswith(".json"):
            with suppress(ValueError):
                parsed = untrusted.parse_json(text.encode("utf-8", "replace"), finite=False)
                hosts |= {*_hosts(parsed)}
                versions |= {*_versions(parsed)}
                words |= {*_gpu_words(parsed)}
    return Known(hosts=frozenset(hosts), users=frozenset(users), versions=frozenset(versions), words=frozenset(words))


def _this_host() -> Iterator[str]:
    yield from (name for name in (socket.gethostname(), platform.node(), os.environ.get("HOSTNAME", "")) if name)


def _this_user() -> Iterator[str]:
    yield from (name for variable in ("USER", "LOGNAME", "USERNAME") if (name := os.environ.get(variable, "")))
    with suppress(ImportError, KeyError):  # no such module on some systems, no such user in some containers
        import pwd

        yield pwd.getpwuid(os.getuid()).pw_name
    with suppress(RuntimeError):
        yield Path.home().name


def _hosts(value: Any) -> Iterator[str]:
    """What stands under `host` anywhere: a name, or an object with one."""
    for mapping in _mappings(value):
        host = mapping.get("host")
        name = host.get("name") if isinstance(host, dict) else host
        if isinstance(name, str) and name:
            yield name


def _versions(value: Any) -> Iterator[str]:
    for mapping in _mappings(value):
        for known in ("packages", "versions", "driver", "worker_versions"):
            held = mapping.get(known)
            yield from (str(version) for version in held.values()) if isinstance(held, dict) else ()


def _gpu_words(value: Any) -> Iterator[str]:
    for mapping in _mappings(value):
        gpus = mapping.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else ():
            name = gpu.get("name") if isinstance(gpu, dict) else None
            yield from re.findall(r"[a-z0-9]+", name.lower()) if isinstance(name, str) else ()


def _mappings(root: Any) -> Iterator[Mapping[str, Any]]:
    """Every object of a JSON value, at any depth (`untrusted` has bounded it)."""
    level = [root]
    while level:
        yield from (value for value in level if isinstance(value, dict))
        level = [child for value in level for child in _children(value)]


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
