"""Replaces the names of people and machines in a text by fixed words: `hidden-host`, `hidden-user`. Pure.

The names of hosts and users come from the campaign's files and from this process (`gathering`). IP, hardware and mail addresses are
recognised by their form. A name is hidden only as a whole word, between characters that are not ASCII letters or digits. The fixed
words need no escaping in JSON, CSV, HTML or a shell. No replacement begins directly after a backslash, so that JSON stays JSON.

A host with a short name or an ordinary word for a name is hidden only where it is the value of a key or a column for hosts.

Not hidden: hosts that are in no record, and the names of projects, models and data. Users other than the current user are found
only if a text names their home folder. A name that is also a word of Tunebench's own files (`step`, `gpu`) is hidden only in
home folders.
"""

from __future__ import annotations

import csv
import ipaddress
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from io import StringIO

from orchestrator import records
from orchestrator.measure.failure_kinds import KINDS
from orchestrator.measure.metrics import FACTS, METRICS, SETTINGS

# Names that do not identify a person or machine, and words that a bundle's files need.
_GENERIC = frozenset(
    (
        *("root", "user", "users", "admin", "ubuntu", "debian", "centos", "ec2-user", "azureuser", "opc", "runner"),
        *("jovyan", "vscode", "coder", "docker", "nobody", "default", "public", "shared", "home", "linuxbrew", "data"),
        *("localhost", "ip6-localhost", "localdomain", "none", "unknown", "local", "node", "worker", "linux", "test"),
        *("true", "false", "null", "auto", "json", "jsonl", "yaml", "html", "bash", "tunebench", "huggingface"),
        *("transformers", "accelerate", "slurm", "nvidia", "h100", "h200", "a100", "models", "datasets", "train"),
    )
)

_OWN_WORDS = frozenset(
    part
    for name in (
        *(field.name for kind in (records.Experiment, records.RunRecord, records.Job) for field in fields(kind)),
        *(*KINDS, *METRICS, *FACTS, *SETTINGS, *records.Status, *records.JobState),
    )
    for part in re.findall(r"[a-z0-9]+", name.lower())
)
_KEPT = _GENERIC | _OWN_WORDS

_SHORTEST = 3
_NUMBER_LIKE = re.compile(r"[\d._+-]+([eE][+-]?\d+)?")
# The start of a word; an escape of JSON, of a terminal or of a URL may precede it.
_START = r"(?:(?<![A-Za-z0-9\\])|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=[0-9\[]m)|(?<=%2F))"
_END = r"(?![A-Za-z0-9])"
_LETTER = r"""(?:[^/\s"'`\\:;,<>|&(){}\[\]$*?=%#@]|\\u[0-9A-Fa-f]{4}|%(?!2[Ff])[0-9A-Fa-f]{2})"""
_HOME = re.compile(
    rf"(?P<above>(?:/|%2F)(?:home|Users|users)(?:/|%2F))(?!(?:{'|'.join(_GENERIC)})(?!{_LETTER}))(?P<name>{_LETTER}{{1,64}})"
)
_MAIL = re.compile(
    rf"{_START}(?!git@)[A-Za-z0-9][\w.+-]{{0,63}}@(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,24}}{_END}"
)
_HARDWARE = r"[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}"
_V6 = r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}"
_V4 = r"(?:\d{1,3}\.){3}\d{1,3}"
_ADDRESS = re.compile(
    rf"{_START}(?:(?<![.:-])(?:{_HARDWARE}(?![:-])|{_V6}(?![:.\w]))|(?<![.-])(?<!==){_V4}(?!\.?\d)){_END}"
)

# Keys of JSON and columns of CSV whose values are names of hosts.
_HOST_OF_JSON = re.compile(
    r'(?P<key>"(?:host|node|provenance_host_name)"\s*:\s*(?:\{[^{}]*?"name"\s*:\s*)?)"(?P<host>(?:[^"\\]|\\.)+)"'
)
_HOST_COLUMNS = ("host", "node", "provenance_host_name", "provenance_nodes")
_CELL = re.compile(r'(?P<cell>"(?:[^"]|"")*"|[^,\r\n]*)(?P<end>,|\r?\n|\Z)')


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The gathered names.

    `versions` of packages may look like IP addresses. `identifiers` (commits, UUIDs) may look like secrets.
    """

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    identifiers: frozenset[str] = frozenset()


def users_in(text: str) -> frozenset[str]:
    """Return the users whose home folders a text names."""
    return frozenset(_plain(match["name"]) for match in _HOME.finditer(text))


def _plain(name: str) -> str:
    with suppress(ValueError):
        return str(json.loads(f'"{name}"'))
    return name


class Names:
    """The names that a bundle hides. `found` has the names of each kind that were replaced."""

    def __init__(self, known: Known) -> None:
        self.found: dict[str, set[str]] = defaultdict(set)
        self._versions = known.versions
        self._hosts = {_host(host) for host in known.hosts if not _NUMBER_LIKE.fullmatch(host)}
        domain = r"(?:\.(?=[A-Za-z0-9-]*[A-Za-z])[A-Za-z0-9-]+)*"
        hosts = _one_of((host.partition(".")[0] for host in known.hosts), behind=domain, flags=re.IGNORECASE)
        self._patterns = (
            ("mail", _MAIL, "hidden-mail"),
            ("user", _HOME, r"\g<above>hidden-user"),
            *([("host", hosts, "hidden-host")] if hosts else []),
            *([("user", users, "hidden-user")] if (users := _one_of(known.users)) else []),
        )

    def hide(self, text: str, *, is_csv: bool = False) -> str:
        """Return the text with a fixed word in place of every name."""
        text = self._without_hosts_in_columns(text) if is_csv else _HOST_OF_JSON.sub(self._value, text)
        for kind, pattern, word in self._patterns:
            text = pattern.sub(partial(self._replaced, kind, word), text)
        return _ADDRESS.sub(self._address, text)

    def _replaced(self, kind: str, word: str, match: re.Match[str]) -> str:
        name = _plain(match["name"] if "name" in match.groupdict() else match[0])
        self.found[kind].add(_host(name) if kind == "host" else name)
        return match.expand(word)

    def _value(self, match: re.Match[str]) -> str:
        return f'{match["key"]}"{self._host_or_text(match["host"])}"'

    def _without_hosts_in_columns(self, text: str) -> str:
        """Return a table without the hosts in its columns of hosts. A cell may have several, with commas between them."""
        header = next(csv.reader(StringIO(text, newline="")), [])
        wanted, column = {at for at, name in enumerate(header) if name in _HOST_COLUMNS}, 0

        def cell(match: re.Match[str]) -> str:
            nonlocal column
            at, column = column, column + 1 if match["end"] == "," else 0
            words = re.split('([", ]+)', match["cell"]) if at in wanted else [match["cell"]]
            return "".join(map(self._host_or_text, words) if at in wanted else words) + match["end"]

        return _CELL.sub(cell, text) if wanted else text

    def _host_or_text(self, text: str) -> str:
        if (host := _host(_plain(text))) not in self._hosts:
            return text
        self.found["host"].add(host)
        return "hidden-host"

    def _address(self, match: re.Match[str]) -> str:
        if match[0] in self._versions or not (match[1] or _is_of_a_machine(match[0])):
            return match[0]
        self.found["address"].add(match[0])
        return "hidden-address"


def _host(name: str) -> str:
    """Return the name of a host without its domain. Capitals do not matter."""
    return name.partition(".")[0].lower()


def _is_of_a_machine(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # such as a time of day
        return False
    is_mask = text.startswith("255.") or text.endswith("::")
    return not (address.is_loopback or address.is_unspecified or is_mask)


def _one_of(names: Iterable[str], *, behind: str = "", flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str] | None:
    """Return a pattern that matches the names, both plain and escaped as in JSON.

    Return None if every name is too short or an ordinary word.
    """
    special = {
        name
        for name in names
        if len(name) >= _SHORTEST and not _NUMBER_LIKE.fullmatch(name) and name.lower() not in _KEPT
    }
    forms = special | {json.dumps(name)[1:-1] for name in special}
    if not forms:
        return None
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.compile(rf"{_START}(?:{'|'.join(map(re.escape, longest_first))}){behind}{_END}", flags)
