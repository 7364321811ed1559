"""Names of people and machines in a text, each by the same stand-in everywhere: `host-1`, `user-2`, `address-1`, `mail-1`. Pure.

Known are the names that were gathered: hosts from where records name them, users from the paths of home folders, both of this
process too. Addresses and mail addresses are known by their look. A name counts as a whole word, between signs that are no letter
or digit, and as JSON, a URL or Python's repr write it. Stand-ins hold nothing that JSON, CSV or a shell would have to escape.

What is not found: a host that no record names, a user who has no home folder in any text and is not the one who bundles, what is
written in another way (whether `\\nick` outside of JSON is a folder nobody knows), names of projects, models and data. A name that
is also a word of our files' own language, or of a GPU's name (`step`, `cuda`, `h100`), is hidden in home folders alone, and told.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from urllib.parse import quote, unquote

from orchestrator import claims, records, rows
from orchestrator.failure_kinds import KINDS
from orchestrator.metrics import FACTS, METRICS, SETTINGS
from orchestrator.monitors import MONITORS
from orchestrator.trainers import TRAINERS


class Kind(StrEnum):
    """What a name is of; its stand-ins begin with this word."""

    HOST = "host"
    USER = "user"
    ADDRESS = "address"
    MAIL = "mail"


NOBODY = frozenset(
    (
        *("root", "user", "users", "admin", "ubuntu", "debian", "centos", "ec2-user", "azureuser", "opc", "runner"),
        *("jovyan", "vscode", "coder", "docker", "nobody", "default", "public", "shared", "home", "linuxbrew"),
    )
)
"""User names that tell nobody from anybody."""

NOWHERE = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "localdomain", "none", "unknown"))

_SHORTEST_USER, _SHORTEST_HOST = 3, 2
_ESCAPE = re.compile(r"(?:\\[nrtbf0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|[0-9\[]m)\Z")
"""What may stand before a word though it ends in a letter or digit: an escape of JSON, Python, a URL or a terminal."""

_ESCAPED, _LONGEST_ESCAPE, _MOST_BACKSLASHES = frozenset("nrtbfux0"), 6, 64

_AFTER = r"(?![A-Za-z0-9])"
_SLASH = r"(?:/|%2F|\\{1,4})"
_LETTER = r"""(?:[^/\s"'`\\:;,<>|&(){}\[\]$*?=%#@]|\\u[0-9A-Fa-f]{4}|%(?!2[Ff])[0-9A-Fa-f]{2})"""
_HOME = re.compile(rf"(?P<above>{_SLASH}(?:home|Users|users){_SLASH})(?P<name>{_LETTER}{{1,64}})")
_MAIL = re.compile(rf"(?!git@)[A-Za-z0-9][\w.+-]{{0,63}}@(?:[A-Za-z0-9-]{{1,63}}\.){{1,8}}[A-Za-z]{{2,24}}{_AFTER}")
_V4 = re.compile(rf"(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?!\.?\d){_AFTER}")
_V6 = re.compile(r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![:.\w])")
_HARDWARE = re.compile(rf"(?:[0-9A-Fa-f]{{2}}([:-]))(?:[0-9A-Fa-f]{{2}}\1){{4}}[0-9A-Fa-f]{{2}}(?![:-]){_AFTER}")

_DOMAINS = re.compile(rf"({Kind.HOST}-\d+)(?:\.(?=[A-Za-z0-9-]*[A-Za-z])[A-Za-z0-9-]+)+")
_NUMBER_LIKE = re.compile(r"[\d._+-]+([eE][+-]?\d+)?")
_COUNTED = re.compile(r"(rank|r|t|gpu|gpus|exp|schema)\d*")
_LAYOUT = """\
experiments runs asked probes batches suite requirements benchmarks raw summary ranks devices report worker steps samples
blocks cost stdout stderr log json jsonl csv txt sh yaml html md owner neighbours stacks accelerate run one true false null
nan none yes no auto training train python torch transformers local slurm step s t loss tokens real labelled squares micro
after evaluate save wait compute config tiny llama qwen builtin synthetic stdlib docs bin bash usr opt work tmp var lib site
packages home users"""
"""Words of the files' names, of the lines of steps, and of every command; beside the names of fields and metrics."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """Names that texts are to be searched for. `versions` look like addresses and are none; `words` are those of GPUs' names."""

    hosts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


def users_in(text: str) -> frozenset[str]:
    """Users by the home folders that a text names."""
    return frozenset(_plain(found["name"]) for found in _HOME.finditer(text)) - NOBODY


def _plain(name: str) -> str:
    """A name as it is, from how JSON or a URL writes it."""
    with suppress(ValueError):
        name = str(json.loads(f'"{name}"'))
    return unquote(name)


class StandIns:
    """The stand-ins of one bundle: numbered as names turn up, remembered, counted."""

    def __init__(self, known: Known) -> None:
        hosts = {name.partition(".")[0].lower() for name in known.hosts} - NOWHERE
        users = known.users - NOBODY
        ours = {name for name in (*hosts, *users) if _is_ours(name) or name.lower() in known.words}
        self.kept = len(ours)
        """How many names stand as they are but in home folders, being words of our files."""
        self._hosts = _Words.of((name for name in hosts - ours if _is_word(name, _SHORTEST_HOST)), of_hosts=True)
        self._users = _Words.of(name for name in users - ours if _is_word(name, _SHORTEST_USER))
        self._versions = known.versions
        self._given: dict[tuple[Kind, str], str] = {}
        self._names: Counter[Kind] = Counter()
        self._places: Counter[Kind] = Counter()

    def hide(self, text: str) -> str:
        """The text with every name by its stand-in."""
        text = _MAIL.sub(self._mail, text) if "@" in text else text
        text = _HOME.sub(self._in_a_home, text)
        text = _DOMAINS.sub(r"\1", self._hosts.replaced(text, lambda name: self._of(Kind.HOST, name)))
        text = self._users.replaced(text, lambda name: self._of(Kind.USER, name))
        for pattern in (_HARDWARE, _V6, _V4):
            text = pattern.sub(self._address, text)
        return text

    def counts(self) -> dict[str, dict[str, int]]:
        """For each kind that was there: how many names, and in how many places."""
        return {
            kind.value: {"names": self._names[kind], "places": self._places[kind]} for kind in Kind if self._names[kind]
        }

    def _of(self, kind: Kind, name: str) -> str:
        self._places[kind] += 1
        if (kind, name) not in self._given:
            self._names[kind] += 1
            self._given[kind, name] = f"{kind}-{self._names[kind]}"
        return self._given[kind, name]

    def _in_a_home(self, found: re.Match[str]) -> str:
        name = _plain(found["name"])
        return found[0] if name in NOBODY else found["above"] + self._of(Kind.USER, name)

    def _mail(self, found: re.Match[str]) -> str:
        start = _start_of_word(found)
        return found[0] if start is None else found[0][:start] + self._of(Kind.MAIL, found[0][start:].lower())

    def _address(self, found: re.Match[str]) -> str:
        start, before = _start_of_word(found), found.string[max(0, found.start() - 2) : found.start()]
        if start is None or before.endswith((".", ":", "-")) or before == "==":
            return found[0]
        text = found[0][start:]
        if text in self._versions or not _is_address(text):
            return found[0]
        return found[0][:start] + self._of(Kind.ADDRESS, text.lower())


def _start_of_word(found: re.Match[str]) -> int | None:
    """Where in a match its word begins: 1 where a backslash makes an escape of the first letter; None amid a longer word.

    Looked at once something was found: as part of the patterns it would cost ten times as much.
    """
    text, start = found.string, found.start()
    before = text[start - 1 : start]
    if before == "\\" and text[start] in _ESCAPED:
        head = text[max(0, start - _MOST_BACKSLASHES) : start]
        return (len(head) - len(head.rstrip("\\"))) % 2
    if not (before.isascii() and before.isalnum()):
        return 0
    return 0 if _ESCAPE.search(text, max(0, start - _LONGEST_ESCAPE), start) else None


def _is_address(text: str) -> bool:
    if _HARDWARE.fullmatch(text):
        return True
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # a time of day, five numbers
        return False
    is_mask = text.startswith("255.") or text.endswith("::")
    return not (address.is_loopback or address.is_unspecified or is_mask)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Words:
    """Names as one pattern, in every form that they are written in; `names` gives each form's name."""

    pattern: re.Pattern[str] | None
    names: Mapping[str, str]

    @staticmethod
    def of(names: Iterable[str], *, of_hosts: bool = False) -> _Words:
        """`of_hosts`: in any case of letters."""
        forms = {form: name for name in sorted(names) for form in _written(name)}
        if not forms:
            return _Words(pattern=None, names={})
        longest_first = "|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form)))
        flags = re.IGNORECASE if of_hosts else re.NOFLAG
        return _Words(pattern=re.compile(rf"(?:{longest_first}){_AFTER}", flags), names=forms)

    def replaced(self, text: str, stand_in: Callable[[str], str]) -> str:
        if self.pattern is None:
            return text
        return self.pattern.sub(
            lambda found: stand_in(self._name(found[0])) if _start_of_word(found) == 0 else found[0], text
        )

    def _name(self, form: str) -> str:
        return self.names.get(form) or self.names.get(form.lower(), form.lower())


def _written(name: str) -> set[str]:
    forms = (
        json.dumps(name)[1:-1],
        json.dumps(name, ensure_ascii=False)[1:-1],
        ascii(name)[1:-1],
        quote(name, safe=""),
    )
    return {name, *forms}


def _is_word(name: str, shortest: int) -> bool:
    """Whether a name may be looked for anywhere: one of digits is hidden in home folders and as an address, or not at all."""
    return len(name) >= shortest and not _NUMBER_LIKE.fullmatch(name)


def _is_ours(name: str) -> bool:
    return name.lower() in _our_words() or bool(_COUNTED.fullmatch(name.lower()))


@cache
def _our_words() -> frozenset[str]:
    """What the files of a run call things: to hide such a word would make them unreadable."""
    kinds = (
        *(records.Experiment, records.RunRecord, records.Framework, records.DataSpec, records.Measure, records.Repeats),
        *(records.MetricSource, records.CustomCommand, records.Reason, records.Measurement, claims.Claim, claims.Owner),
    )
    words = {field.name for kind in kinds for field in fields(kind)} | {
        *KINDS,
        *METRICS,
        *FACTS,
        *SETTINGS,
        *rows.PACKAGES,
    }
    words |= {
        *TRAINERS,
        *MONITORS,
        *(word for kind in (records.Status, records.Device, records.JobState) for word in kind),
    }
    return frozenset(part for word in (*words, *_LAYOUT.split()) for part in re.findall(r"[a-z0-9]+", word.lower()))
