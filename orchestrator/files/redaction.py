"""Mask tokens, keys and passwords, which must not reach a file or a terminal. A secret is recognised in three ways.

- By the name before it: `HF_TOKEN`, `--hub_token`, `password=…`.
- By its value, if an environment variable with such a name has the same value.
- By its form, if its kind has one: `hf_…`, `ghp_…`, `sk-…`, `AKIA…`, a JSON web token, a password in a URL, an `Authorization`
  header.

Secrets stay in the environment of the person who runs the benchmark: the runs inherit them.

Not found: a secret without a known form under a harmless name; a secret of fewer than eight characters; and encodings other
than those of JSON, URLs and Python's repr. A mask neither contains nor removes quotes, so that a redacted record is still JSON.
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
# Words that make a following `KEY` or `TOKENS` secret. Without such a word, tokens may be counts and keys may be names.
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
_SHORTEST_NAMED_SECRET = 6
LONGEST_SECRET = 8192
MASK = "***"
Redactor = Callable[[str], str]

_FREE = r"(?<![A-Za-z0-9])"
# The kind of secret, a hint that every such secret contains, and its form. The group `secret`, if any, is masked.
# `re` compiles a form at its first use and keeps it: `--help` and most plans need none.
_FORMS: tuple[tuple[str, str, str], ...] = (
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
        "a key of Weights & Biases",  # it looks like a commit of git, so a word before it must name it
        "(?i:api[ _-]?key|wandb[ -]login)",
        r"""(?i:api[ _-]?key|wandb[ -]login)[\s:\\"']{1,6}(?P<secret>(?:local-)?[0-9a-f]{40})(?![0-9a-f])""",
    ),
    (
        "a private key",
        "-----BEGIN",
        r"""-----BEGIN [A-Z ]*PRIVATE KEY-----[^"']{0,10000}?-----END [A-Z ]*PRIVATE KEY-----""",
    ),
)

# A text without a match contains none of these forms.
_HINT = "|".join(dict.fromkeys(hint for _, hint, _ in _FORMS))

_NAME = r"(?P<name>[A-Za-z_][\w.-]{0,80})"
_NAMED = rf"""(?<![\w.-]){_NAME}(?P<closed>\\*["'])?\s*[=:]\s*"""
_OPTION = rf"""--{_NAME}(?P<closed>\\*["'],)?\s+"""
_VALUE = r"""(?P<opened>\\*["'])?(?P<value>(?!--)[^\s"'\\,;&)}\]<>]+)"""
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


def redactor(environ: Mapping[str, str] = os.environ) -> Redactor:
    """Return a function like `redact` for many texts. It reads the environment once, and remembers results."""
    variables = secret_variables(environ)
    return lru_cache(maxsize=65536)(lambda text: redact(text, variables))


def redact_end(text: str, *, cut: bool, environ: Mapping[str, str] = os.environ) -> str:
    """Return the redacted end of a log. If `cut`, leave out its first LONGEST_SECRET characters: they may begin inside a secret."""
    masked = redact(text, environ)
    return masked[LONGEST_SECRET:] if cut else masked


def secrets(text: str, environ: Mapping[str, str] = os.environ, *, stored: bool = False) -> tuple[Secret, ...]:
    """Return the secrets of a text in order, without overlaps.

    `stored` means that the text is an argument, which is stored unchanged or refused. In an argument, `token=x` is a secret
    only if x is quoted: without quotes it may be a line of code.
    """
    every = (*_by_value(text, environ), *_by_form(text), *_by_name(text, quoted=stored))
    apart: list[Secret] = []
    for secret in sorted(every, key=lambda secret: (secret.start, -secret.end)):
        if not apart or secret.start >= apart[-1].end:
            apart.append(secret)
        elif secret.end > apart[-1].end:  # two that overlap have one mask
            first = apart.pop()
            apart.append(Secret(start=first.start, end=secret.end, what=first.what))
    return tuple(apart)


def kind_of_secret(text: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the kind of secret in an argument (`a token of Hugging Face`, `the value of HF_TOKEN`), or None."""
    return next((secret.what for secret in secrets(text, environ, stored=True)), None)


def secret_words(words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield each secret of a command line that is the value of an option.

    Each item is the index of a word, the position in this word at which the value starts, and the option's name.

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
    """Return whether a word is, or begins with, the name of a secret. Results are cached: a plan has very many words."""
    return is_secret_name(word.partition("=")[0])


def redact_words(words: Sequence[str], masked: Redactor = redact) -> list[str]:
    """Return the words of a command line with every secret masked."""
    hidden = {place: begin for place, begin, _ in secret_words(words)}
    if not hidden:
        return list(map(masked, words))
    return [f"{word[: hidden[at]]}{MASK}" if at in hidden else masked(word) for at, word in enumerate(words)]


def secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that contain secrets."""
    return {name: value for name, value in environ.items() if len(value) >= _SHORTEST_SECRET and is_secret_name(name)}


def _by_value(text: str, environ: Mapping[str, str]) -> Iterator[Secret]:
    for name, value in secret_variables(environ).items():
        for form in _written(value):
            start = text.find(form)
            while start >= 0:
                whole = name if form == value else None
                yield Secret(start=start, end=start + len(form), what=f"the value of {name}", variable=whole)
                start = text.find(form, start + len(form))


@lru_cache(maxsize=256)
def _written(value: str) -> frozenset[str]:
    """Return the forms that a value can have in a text: plain, JSON, URL, Python's repr, and each line of a long value.

    Bytes that are not UTF-8 appear in a text as `?` or as a replacement character.
    """
    lines = [line for line in value.splitlines() if len(line) >= 2 * _SHORTEST_SECRET] if "\n" in value else []
    plain = {value, *lines}
    plain |= {text.encode("utf-8", "replace").decode() for text in plain}
    plain |= {text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in plain}
    forms = set(plain)
    for text in plain:
        forms |= {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}
        forms.add(quote(text, safe="", errors="surrogateescape"))
    return frozenset(forms)


def _by_form(text: str) -> Iterator[Secret]:
    if not re.search(
        _HINT, text
    ):  # this saves time: a plan may have a hundred thousand commands, redacted word by word
        return
    for what, _, pattern in _FORMS:
        for match in re.finditer(pattern, text):
            group = "secret" if "secret" in match.re.groupindex else 0
            yield Secret(start=match.start(group), end=match.end(group), what=what)


def _by_name(text: str, *, quoted: bool) -> Iterator[Secret]:
    for pattern, signs in ((_NAMED, "=:"), (_OPTION, ("--",))):
        if not any(sign in text for sign in signs):
            continue
        done = 0
        for named in re.finditer(pattern, text):
            if named.start() < done or not _says_secret(named["name"]):
                continue
            match = re.compile(_VALUE).match(text, named.end())
            if match is None or ((named["closed"] or quoted) and not match["opened"]):
                continue  # in JSON a bare word is a number or null, and a mask would make it invalid
            done = match.end()
            value = match["value"]
            if len(value) >= _SHORTEST_NAMED_SECRET and value.lower() not in _NO_VALUES:
                yield Secret(start=match.start("value"), end=match.end("value"), what=f"the value of {named['name']}")


@lru_cache(maxsize=4096)
def _says_secret(name: str) -> bool:
    """Return whether a name in a log is the name of a secret. In `cache_key = …` it is not: that is a line of code."""
    words = _words(name)
    if words[-1] in ("KEY", "KEYS"):
        return len(words) > 1 and words[-2] in _QUALIFIED
    return is_secret_name(name) and words[-1] not in ("AUTH", "PAT")
