"""The places that packages come from, as variables for uv and pip: the request's own places, then those of pip's configuration.

uv reads neither pip.conf nor the variables PIP_*, so they are passed on. An address may contain a password. Variables do not show
it in the list of processes, as arguments would. pip's constraints are not passed on: the request has its own.

`${NAME}` in an address is the value of a variable. uv and pip put it into requirements themselves, and only into these.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from orchestrator.errors import BuildError, LaunchError
from orchestrator.machine import process
from orchestrator.records.environment import EnvironmentRequest

Variables = Mapping[str, str | None]
_CONFIG_S = 60.0
_SECTIONS = ("global", "install", ":env:")
_UV_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL")
# A variable as uv and pip write it in requirements, a user and a password that are only such variables, and a part of a path that
# may be a token: it is long, and has letters and digits.
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_ONLY_VARIABLES = re.compile(r"(?<=://)([\w.-]*:?)(?<=[/:])@")
_MAY_BE_TOKEN = re.compile(r"(?=[^/]*[A-Za-z])(?=[^/]*\d)[\w-]{15,}")
_NO = ("", "0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True, slots=True)
class PipSettings:
    """The parts of pip's configuration that say where packages come from."""

    find_links: tuple[str, ...] = ()
    index: str | None = None
    extra_indexes: tuple[str, ...] = ()
    no_index: bool = False
    certificates: str | None = None


def pip_settings(environ: Mapping[str, str] = os.environ) -> PipSettings:
    """Return pip's configuration: its files, if Tunebench's interpreter has pip, and the variables PIP_*."""
    values: dict[str, str] = {}
    with suppress(LaunchError):  # an interpreter that uv made has no pip
        values = _configured(process.capture([sys.executable, "-P", "-m", "pip", "config", "list"], _CONFIG_S))
    names = ("find-links", "index-url", "extra-index-url", "no-index", "cert")
    values |= {name: environ[key] for name in names if (key := f"PIP_{name.upper().replace('-', '_')}") in environ}
    return PipSettings(
        find_links=tuple(values.get("find-links", "").split()),
        index=values.get("index-url") or None,
        extra_indexes=tuple(values.get("extra-index-url", "").split()),
        no_index=values.get("no-index", "").lower() not in _NO,
        certificates=values.get("cert") or None,
    )


def _configured(listing: str) -> dict[str, str]:
    """Return the values that `pip config list` prints, such as `global.find-links='/wheels'`.

    A value of a later section replaces a value of an earlier one.
    """
    values: dict[str, str] = {}
    for section in _SECTIONS:
        for line in listing.splitlines():
            key, equals, written = line.partition("=")
            of, _, name = key.rpartition(".")
            if equals and of == section:
                with suppress(ValueError, SyntaxError):
                    values[name] = str(ast.literal_eval(written))
    return values


def for_uv(request: EnvironmentRequest, pip: PipSettings, environ: Mapping[str, str] = os.environ) -> Variables:
    """Return the variables for uv. Variables of uv that the user has set come before pip's configuration."""
    own_links = [*environ.get("UV_FIND_LINKS", "").split(",")] if "UV_FIND_LINKS" in environ else [*pip.find_links]
    links = dict.fromkeys(filter(None, (*_resolved(request.find_links, environ), *own_links)))
    variables: dict[str, str | None] = {"UV_FIND_LINKS": ",".join(links)} if links else {}
    if pip.certificates and "SSL_CERT_FILE" not in environ:
        variables["SSL_CERT_FILE"] = pip.certificates
    if not request.indexes and any(name in environ for name in _UV_INDEXES):
        return variables
    own = _resolved(request.indexes, environ)
    first, others = (own[0], own[1:]) if own else (pip.index, pip.extra_indexes)
    others = tuple(address for address in others if _answers(address))
    variables |= dict.fromkeys(_UV_INDEXES) if first or others else {}
    variables |= {"UV_DEFAULT_INDEX": first} if first else {}
    if others:
        # Without this strategy, uv takes a package only from the first index that has any version of it. pip compares all indexes.
        variables |= {"UV_INDEX": " ".join(others), "UV_INDEX_STRATEGY": "unsafe-best-match"}
    return variables


def uv_options(request: EnvironmentRequest, pip: PipSettings) -> tuple[str, ...]:
    """Return uv's options about indexes. uv has no variable for this option."""
    return ("--no-index",) if pip.no_index and not request.indexes else ()


def for_pip(
    request: EnvironmentRequest, pip: PipSettings, constraints: Path, environ: Mapping[str, str] = os.environ
) -> Variables:
    """Return the variables for pip. pip reads the rest of its configuration itself, except the user's constraints."""
    variables: dict[str, str | None] = {"PIP_CONSTRAINT": str(constraints), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if request.find_links:
        variables["PIP_FIND_LINKS"] = " ".join((*_resolved(request.find_links, environ), *pip.find_links))
    if request.indexes:
        first, *others = _resolved(request.indexes, environ)
        variables |= {"PIP_INDEX_URL": first, "PIP_NO_INDEX": None, "PIP_EXTRA_INDEX_URL": " ".join(others)}
    return variables


def _resolved(addresses: tuple[str, ...], environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(_VARIABLE.sub(lambda name: environ.get(name[1], name[0]), address) for address in addresses)


def without_variables(entry: str) -> str:
    """Return a requirement without its variables, and without a password that is only a variable: what is left is written out."""
    return _ONLY_VARIABLES.sub(r"\1/", _VARIABLE.sub("", entry))


def named_variables(request: EnvironmentRequest, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that the request names, with their values. Raise BuildError if one of them is not set."""
    lines = (*request.requirements, *request.constraints, *request.overrides, request.lock or "")
    names = dict.fromkeys(_VARIABLE.findall("\n".join((*lines, *request.indexes, *request.find_links))))
    for name in names:
        if not environ.get(name):
            raise BuildError(f"environment {request.name!r}: the variable {name} is not set; set it, or leave it out")
    return {name: environ[name] for name in names}


def secret_parts(request: EnvironmentRequest, pip: PipSettings) -> Iterator[str]:
    """Yield the parts of addresses that may be tokens, such as `https://host/TOKEN/simple`."""
    for address in filter(None, (*request.indexes, *request.find_links, pip.index, *pip.extra_indexes)):
        if "://" in address and not address.startswith("file:"):
            yield from filter(_MAY_BE_TOKEN.fullmatch, urlsplit(address).path.split("/"))


def _answers(address: str) -> bool:
    """Return whether an index may exist. uv fails if a folder is missing, and pip goes on."""
    parts = urlsplit(address)
    return parts.scheme != "file" or os.path.isdir(unquote(parts.path))
