"""Masks for tokens, keys and passwords, which must not reach a file or a terminal. A secret is recognised in three ways.

By the name before it (`HF_TOKEN`, `--hub_token`, `password=…`); by its value, if an environment variable with such a name has it;
and by its form, if its maker gave it one (`hf_…`, `ghp_…`, `sk-…`, `AKIA…`, a JSON web token, a password in a URL, an
`Authorization` header). A secret stays in the environment of the person who runs the benchmark: the runs inherit it.

Not found: a secret without a form of its own under a harmless name; a secret of fewer than eight characters; and other encodings
than those of JSON, URLs and Python's repr. Masks contain and remove no quotes, so that a redacted record is still JSON.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

# Words that make a name secret wherever they are in it.
_ALWAYS = frozenset(
    ("SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "APITOKEN")
)

_AT_THE_END = frozenset(("TOKEN", "KEY", "KEYS", "PAT", "AUTHORIZATION", "BEARER", "AUTH"))
_PLURAL = "TOKENS"
# Words that make a secret of a following `KEY` or `TOKENS`. Without them, tokens may be counts and keys may be names.
_QUALIFIED = frozenset(
    (
        *("API", "ACCESS", "AUTH", "HF", "HUB", "GITHUB", "GITLAB", "SESSION", "REFRESH", "BEARER", "PRIVATE"),
        *("SIGNING", "ENCRYPTION", "SECRET", "ACCOUNT", "STORAGE", "DEPLOY", "SERVICE", "LICENSE", "WANDB", "OPENAI"),
    )
)

_HARMLESS = frozenset(
    (
        *(f"{kind}_TOKEN" for kind in ("PAD", "EOS", "BOS", "UNK", "MASK", "SEP", "CLS", "IMAGE", "RESPONSE", "STOP")),
        *(f"{kind}_KEY" for kind in ("TEXT", "LABEL", "SORT", "PRIMARY", "DATASET", "MESSAGES")),
        *("USE_AUTH_TOKEN", "USE_AUTH", "KEY", "KEYS"),
    )
)
_SHORTEST_SECRET = 8
_SHORTEST_BESIDE_ITS_NAME = 6
LONGEST_SECRET = 8192
MASK = "***"

_FREE = r"(?<![A-Za-z0-9])"
# The kind of secret, a hint that every such secret contains, and its form. The group `secret`, if any, is masked.
_LOOKS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (what, hint, re.compile(pattern))
    for what, hint, pattern in (
        ("a password in a URL", "://", r"""(?<=://)[^/\s@:"'\\<>]*:[^/\s"'\\<>]*(?=@)"""),
        ("a token in a URL", "://", r"""(?:(?<=https://)|(?<=http://))[^/\s:"'\\<>]+(?=@)"""),
        ("a token of Hugging Face", "hf_|api_org_", _FREE + r"(?:hf|api_org)_[A-Za-z0-9]{16,}"),
        ("a token of GitHub", "gh[pousr]_|github_pat_", _FREE + r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,})"),
        ("a token of GitLab", "glpat-", _FREE + r"glpat-[\w-]{16,}"),
        ("a key of an API", "sk-", _FREE + r"sk-(?:(?:proj|ant|svcacct|admin|or)-[\w-]{16,}|[A-Za-z0-9]{16,})"),
        ("a key of Google", "AIza", _FREE + r"AIza[\w-]{30,}"),
        ("a key of AWS", "AKIA|ASIA", _FREE + r"A(?:KIA|SIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
        ("a token of Slack", "xox", _FREE + r"xox[abeoprs]-[\w-]{10,}"),
        ("a JSON web token", "eyJ", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
        (
            "an Authorization header",
            "(?i:authorization)",
            r"""(?i:authorization)(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?(?i:(?:bearer|basic|token|negotiate)\s+)?"""
            r"""(?P<secret>(?!(?i:bearer|basic|token|negotiate)\b)[^\s"'\\,;}<>]{6,})""",
        ),
        ("a bearer token", "(?i:bearer)", r"(?i:bearer)\s+(?P<secret>(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,})"),
        (
            "a key of Weights & Biases",  # like a commit of git, so that the word before it must say so
            "(?i:api[ _-]?key|wandb[ -]login)",
            r"""(?i:api[ _-]?key|wandb[ -]login)[\s:\\"']{1,6}(?P<secret>(?:local-)?[0-9a-f]{40})(?![0-9a-f])""",
        ),
        (
            "a private key",
            "-----BEGIN",
            r"""-----BEGIN [A-Z ]*PRIVATE KEY-----[^"']{0,10000}?-----END [A-Z ]*PRIVATE KEY-----""",
        ),
    )
)

# A text without a match contains none of these forms.
_HINT = re.compile("|".join(dict.fromkeys(hint for _, hint, _ in _LOOKS)))

_NAME = r"(?P<name>[A-Za-z_][\w.-]{0,80})"
_NAMED = re.compile(rf"""(?<![\w.-]){_NAME}(?P<closed>\\*["'])?\s*[=:]\s*""")
_OPTION = re.compile(rf"""--{_NAME}(?P<closed>\\*["'],)?\s+""")
_VALUE = re.compile(r"""(?P<opened>\\*["'])?(?P<value>(?!--)[^\s"'\\,;&)}\]<>]+)""")
_NO_VALUES = frozenset(
    (
        *("none", "null", "true", "false", "string", "optional", "invalid", "missing", "expired"),
        *("bearer", "basic", "negotiate", "tokenizer", "self"),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """A secret in a text: its place, its kind in words, and the environment variable that contains it, if any."""

    start: int
    end: int
    what: str
    variable: str | None = None


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a variable or argument of this name contains a secret: `HF_TOKEN`, `wandb-api-key`; not `pad_token`."""
    words = _words(name)
    if "_".join(words) in _HARMLESS or words[-2:-1] == ["PER"]:  # flops_per_token
        return False
    plural = words[-1] == _PLURAL and bool(_QUALIFIED.intersection(words[:-1]))
    return plural or words[-1] in _AT_THE_END or not _ALWAYS.isdisjoint(words)


def _words(name: str) -> list[str]:
    return re.split(r"[_.-]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-+")).upper())


def redact(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the text with masked secrets, as valid UTF-8. JSON stays JSON."""
    text = text.encode("utf-8", "replace").decode()
    pieces, at = [], 0
    for secret in secrets(text, environ):
        pieces += [text[at : secret.start], MASK]
        at = secret.end
    return "".join((*pieces, text[at:]))


def redactor(environ: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """Return `redact` for the many texts of a plan: it reads the environment once, and remembers results."""
    known = held(environ)
    return lru_cache(maxsize=65536)(lambda text: redact(text, known))


def redact_end(text: str, *, cut: bool, environ: Mapping[str, str] = os.environ) -> str:
    """Return the redacted end of a log. `cut`: it is the end of a longer log and may begin inside a secret, so its first
    LONGEST_SECRET characters are left out."""
    masked = redact(text, environ)
    return masked[LONGEST_SECRET:] if cut else masked


def secrets(text: str, environ: Mapping[str, str] = os.environ, *, stored: bool = False) -> tuple[Secret, ...]:
    """Return the secrets of a text in order, without overlaps.

    `stored`: the text is one that must be kept as it is or not at all (an argument), so that `token=x` counts only where
    x is quoted: else it may as well be a line of code.
    """
    every = (*_by_value(text, environ), *_by_look(text), *_by_name(text, quoted=stored))
    found = sorted(every, key=lambda one: (one.start, -one.end))
    apart: list[Secret] = []
    for one in found:
        if not apart or one.start >= apart[-1].end:
            apart.append(one)
        elif one.end > apart[-1].end:  # they overlap: masked as one
            first = apart.pop()
            apart.append(Secret(start=first.start, end=one.end, what=first.what))
    return tuple(apart)


def holds_secret(text: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the kind of secret in an argument (`a token of Hugging Face`, `the value of HF_TOKEN`), or None."""
    return next((secret.what for secret in secrets(text, environ, stored=True)), None)


def in_words(words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the secrets of a command line by their options: the word's place, the start of the value in it, the option's name.

    An option is `--name` with its value in the next word, `--name=value`, or a whole word `name=value`.
    """
    if not any(map(_names_secret, words)):
        return
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and value and re.fullmatch(r"[\w.+-]+", name) and is_secret_name(name):
            yield place, len(name) + 1, name
        elif place and words[place - 1].startswith("--") and not word.startswith("--") and word:
            option = words[place - 1]
            if "=" not in option and is_secret_name(option):
                yield place, 0, option


@lru_cache(maxsize=65536)
def _names_secret(word: str) -> bool:
    """Return whether a word is an option of a secret, or begins with its name. Every word of a plan's commands is checked."""
    return is_secret_name(word.partition("=")[0])


def redact_words(words: Sequence[str], masked: Callable[[str], str] = redact) -> list[str]:
    """Return a command line to show: the same words, with every secret masked."""
    hidden = {place: begin for place, begin, _ in in_words(words)}
    if not hidden:
        return list(map(masked, words))
    return [f"{word[: hidden[at]]}{MASK}" if at in hidden else masked(word) for at, word in enumerate(words)]


def held(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that contain secrets."""
    return {name: value for name, value in environ.items() if len(value) >= _SHORTEST_SECRET and is_secret_name(name)}


def _by_value(text: str, environ: Mapping[str, str]) -> Iterator[Secret]:
    for name, value in held(environ).items():
        for form in _written(value):
            start = text.find(form)
            while start >= 0:
                whole = name if form == value else None
                yield Secret(start=start, end=start + len(form), what=f"the value of {name}", variable=whole)
                start = text.find(form, start + len(form))


@lru_cache(maxsize=256)
def _written(value: str) -> frozenset[str]:
    """Return the forms of a value in a text: plain, in JSON, in a URL, in Python's repr, and each line of a long value.

    Bytes that are not UTF-8 appear in a text as `?` or as a replacement character.
    """
    lines = [line for line in value.splitlines() if len(line) >= 2 * _SHORTEST_SECRET] if "\n" in value else []
    every = [value, *lines]
    every += [readable for one in every for readable in _decoded(one) if readable != one]
    known = [json.dumps(one)[1:-1] for one in every] + [json.dumps(one, ensure_ascii=False)[1:-1] for one in every]
    known += [quote(one, safe="", errors="surrogateescape") for one in every]
    return frozenset((*every, *known, *(repr(one)[1:-1] for one in every)))


def _decoded(value: str) -> tuple[str, str]:
    kept = value.encode("utf-8", "surrogateescape")
    return value.encode("utf-8", "replace").decode(), kept.decode("utf-8", "replace")


def _by_look(text: str) -> Iterator[Secret]:
    if not _HINT.search(text):  # plans are redacted word by word, a hundred thousand commands of them
        return
    for what, _, pattern in _LOOKS:
        group = "secret" if "secret" in pattern.groupindex else 0
        for match in pattern.finditer(text):
            yield Secret(start=match.start(group), end=match.end(group), what=what)


def _by_name(text: str, *, quoted: bool) -> Iterator[Secret]:
    for pattern, signs in ((_NAMED, "=:"), (_OPTION, ("--",))):
        if not any(sign in text for sign in signs):
            continue
        done = 0
        for named in pattern.finditer(text):
            if named.start() < done or not _says_secret(named["name"]):
                continue
            found = _VALUE.match(text, named.end())
            if found is None or ((named["closed"] or quoted) and not found["opened"]):
                continue  # in JSON a bare word is a number or null, and a mask would be neither
            done = found.end()
            if _is_value(found["value"]):
                yield Secret(start=found.start("value"), end=found.end("value"), what=f"the value of {named['name']}")


def _is_value(text: str) -> bool:
    return len(text) >= _SHORTEST_BESIDE_ITS_NAME and text.lower() not in _NO_VALUES


@lru_cache(maxsize=4096)
def _says_secret(name: str) -> bool:
    """Return the same as `is_secret_name` for a log, in which `cache_key = …` is a line of code."""
    words = _words(name)
    if words[-1] in ("KEY", "KEYS"):
        return len(words) > 1 and words[-2] in _QUALIFIED
    return is_secret_name(name) and words[-1] not in ("AUTH", "PAT")
