"""Mask tokens, keys and passwords, which must not reach a file or a terminal. A secret is recognised in three ways.

- By the name before it (`names`): `HF_TOKEN`, `--hub_token`, `password=…`.
- By its value, if an environment variable whose name says that it is secret has the same value (`values`).
- By its own form, if secrets of its kind have a fixed form (`forms`): `hf_…`, `ghp_…`, a password in a URL, the address of a
  webhook.

Secrets stay in the environment of the person who runs the benchmark: the runs inherit them.

A text with colours, or in the notation of URLs, HTML or JSON, is also searched in these three ways as the plain text that it
represents (`decoded`).

These secrets are not found:

- a secret under a harmless name, if the secret has no known form;
- a secret of fewer than eight characters, or an ordinary word, if its name is not next to it;
- a secret in an encoding that `values` does not know;
- a secret in a notation that is none of these: XML, a block of YAML, or `-u user:password` in a line of a log.

A mask neither contains nor removes quotes, so that a redacted record is still JSON.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.files import reading, writing
from orchestrator.files.redaction import decoded
from orchestrator.files.redaction.forms import by_form
from orchestrator.files.redaction.names import is_secret_name, says_secret
from orchestrator.files.redaction.notations import DIGEST, LISTED, NAMED, OPTION, QUOTED, REPLACED, REST, VALUE
from orchestrator.files.redaction.secret import Secret
from orchestrator.files.redaction.values import by_value, named_secrets, secret_variables
from orchestrator.files.redaction.words import secret_words

__all__ = [
    "LONGEST_SECRET",
    "MASK",
    "Finder",
    "Redactor",
    "Secret",
    "by_value",
    "is_secret_name",
    "kind_of_secret",
    "masker",
    "named_secrets",
    "redact",
    "redact_cells",
    "redact_end",
    "redact_file",
    "redact_values",
    "redact_words",
    "redactor",
    "secret_variables",
    "secret_words",
    "secrets",
]

_SHORTEST_NAMED_SECRET = 6
LONGEST_SECRET = 8192
MASK = "***"
Redactor = Callable[[str], str]
Finder = Callable[[str], Iterable[Secret]]
_Cell = TypeVar("_Cell")

# Only a text with one of these signs may be a line of code. In such a text, a value without quotes may be code: a call, a part of
# a list or a regular expression, or words without digits.
_OF_CODE = re.compile(r"[(\[{$`]")
_CALL, _WORDS = re.compile(r"[\w.]*[(\[]"), re.compile(r"(?:[^\W\d]|[.|+=])+")
# Every form, name and encoding of a secret has a letter, except a password or codes in a URL, and HTML. Numbers have none.
_MAY_HAVE_NAMES = re.compile("[A-Za-z]|://|&#|%[2-7]")
_NO_VALUES = frozenset(
    (
        *("none", "null", "true", "false", "string", "optional", "invalid", "missing", "expired"),
        *("bearer", "basic", "negotiate", "tokenizer", "self"),
    )
)


def redact(text: str, environ: Mapping[str, str] = os.environ, *, also: Finder | None = None) -> str:
    """Return the text with masked secrets, as valid UTF-8. JSON stays JSON. The function `also` finds further secrets."""
    text = text.encode("utf-8", "replace").decode()
    return _masked(text, [*_found(text, environ), *(also(text) if also else ())])


def redact_file(path: Path, *, limit: int, also: Finder | None = None) -> None:
    """Redact a file in place. Leave a file that is missing or has more than `limit` bytes."""
    with suppress(OSError, ValueError):
        text = reading.read_text(path, limit=limit)
        if (masked := redact(text, also=also)) != text:
            writing.replace(path, masked)


def redact_values(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with the values of these variables masked. This is much faster than `redact`, for very long texts."""
    return _masked(text, by_value(text, variables))


def _masked(text: str, every: Iterable[Secret]) -> str:
    pieces, at = [], 0
    for secret in _apart(every):
        pieces += [text[at : secret.start], MASK]
        at = secret.end
    return "".join((*pieces, text[at:]))


def redactor(environ: Mapping[str, str] = os.environ) -> Redactor:
    """Return a function like `redact` for many texts. The environment is read once, and results are remembered."""
    named = {name: value for name, value in environ.items() if is_secret_name(name)}
    return lru_cache(maxsize=65536)(lambda text: redact(text, named))


def masker(masked: Redactor | None = None) -> Callable[[Any], Any]:
    """Return a function that masks all texts in a nested value. Under the name of a secret, it masks the whole value.

    The function caches the texts in mappings, because a large plan has millions of such texts.
    """
    redact = masked or redactor()

    @lru_cache(maxsize=65536)
    def named(name: str, text: str) -> str:
        return MASK if text and is_secret_name(name) else redact(text)

    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: named(name, item) if type(item) is str else MASK if item and is_secret_name(name) else whole(item)
                for name, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [whole(item) for item in value]
        return redact(value) if isinstance(value, str) else value

    return whole


def redact_cells(cells: Mapping[str, _Cell], masked: Redactor) -> dict[str, _Cell]:
    """Return the cells of a table with masked names and texts. Under the name of a secret, mask the whole text.

    A word, a number and an identifier stay, even under such a name: a column `cache_key` may only tell experiments apart.
    """
    return {
        masked(name): _redacted(name, cell, masked) if isinstance(cell, (str, tuple)) else cell
        for name, cell in cells.items()
    }


def _redacted(name: str, cell: Any, masked: Redactor) -> Any:
    if isinstance(cell, tuple):
        return tuple(_redacted(name, item, masked) for item in cell)
    return MASK if is_secret_name(name) and named_secrets(cell, name) else masked(cell)


def redact_end(text: str, *, cut: bool, environ: Mapping[str, str] = os.environ, also: Finder | None = None) -> str:
    """Return a log's redacted end. If the log was `cut`, drop the first LONGEST_SECRET characters: they may be half a secret."""
    masked = redact(text, environ, also=also)
    return masked[LONGEST_SECRET:] if cut else masked


def secrets(text: str, environ: Mapping[str, str] = os.environ, *, stored: bool = False) -> tuple[Secret, ...]:
    """Return the secrets of a text in order, without overlaps.

    `stored` means that the text is an argument, which is stored unchanged or refused. An argument may have lines of code. So
    `token=self.token` and `TOKEN=$x` are not secrets there, but `token=hunter2`, `token="x"`, `--token=x` and `TOKEN=x` are.
    """
    return _apart(_found(text, environ, stored=stored))


def _found(text: str, environ: Mapping[str, str], *, stored: bool = False) -> Iterator[Secret]:
    variables = secret_variables(environ)
    yield from by_value(text, variables)
    if not _MAY_HAVE_NAMES.search(text):
        return
    yield from _by_look(text, environ, quoted=stored)
    for rounds in decoded.views(text):
        view = rounds[-1].text
        for secret in (*by_value(view, variables), *_by_look(view, environ, quoted=stored)):
            for once in reversed(rounds):
                secret = once.original(secret)
            yield secret


def _by_look(text: str, environ: Mapping[str, str], *, quoted: bool) -> Iterator[Secret]:
    yield from by_form(text)
    yield from _by_name(text, environ, quoted=quoted)
    yield from _in_lists(text)


def _apart(every: Iterable[Secret]) -> tuple[Secret, ...]:
    """Return the secrets in order. Two secrets that overlap become one."""
    apart: list[Secret] = []
    for secret in sorted(every, key=lambda secret: (secret.start, -secret.end)):
        if not apart or secret.start >= apart[-1].end:
            apart.append(secret)
        elif secret.end > apart[-1].end:
            first = apart.pop()
            apart.append(Secret(start=first.start, end=secret.end, what=first.what))
    return tuple(apart)


def kind_of_secret(text: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the kind of secret in an argument (`a token of Hugging Face`, `the value of HF_TOKEN`), or None.

    A secret is what `redact` masks. If the text may be code, what may be code in it is not a secret.
    """
    return next((secret.what for secret in secrets(text, environ, stored=bool(_OF_CODE.search(text)))), None)


def redact_words(words: Sequence[str], masked: Redactor = redact) -> list[str]:
    """Return the words of a command line with every secret masked."""
    hidden = {place: begin for place, begin, _ in secret_words(words)}
    if not hidden:
        return list(map(masked, words))
    return [f"{word[: hidden[at]]}{MASK}" if at in hidden else masked(word) for at, word in enumerate(words)]


def _may_be_code(named: re.Match[str], value: str) -> bool:
    """Return whether a value after a name may be code: `get(x)` or `self.token`.

    A value after an option is not code. After a variable that a shell sets, as in `TOKEN=x`, only a call is code.
    """
    if named[0].startswith("--"):
        return False
    is_variable = named["name"].isupper() and named[0].endswith("=")
    return bool(_CALL.match(value) or (not is_variable and _WORDS.fullmatch(value)))


def _in_quotes(text: str, named: re.Match[str], value: re.Match[str]) -> tuple[int, int] | None:
    """Return the span of a value in plain quotes, which contain only the value or its name, too. Such a value may have blanks."""
    if value["opened"]:
        whole = None if "\\" in value["opened"] else QUOTED.match(text, value.end("opened") - 1)
        return (whole.start() + 1, whole.end() - 1) if whole else None
    before = text[max(0, named.start() - 2) : named.start()]
    quote = before if before.startswith("\\") else before[-1:]
    rest = REST.get(quote) if named[0].endswith("=") else None
    found = rest.match(text, named.end()) if rest else None
    return found.span() if found else None


def _in_lists(text: str) -> Iterator[Secret]:
    """Yield the values whose names are values, too, as in the environment of a container."""
    for hint, pattern in LISTED:
        for found in re.finditer(pattern, text) if re.search(hint, text) else ():
            name, value = found["name"], found["value"]
            if says_secret(name) and value.lower() not in _NO_VALUES and named_secrets(value, name):
                yield Secret(start=found.start("value"), end=found.end("value"), what=f"the value of {name}")


def _by_name(text: str, environ: Mapping[str, str], *, quoted: bool) -> Iterator[Secret]:
    """Yield the values next to names of secrets. Skip a short value unless the variable with that name has the same value."""
    for pattern, signs in ((NAMED, "=:"), (OPTION, ("--",))):
        if not any(sign in text for sign in signs):
            continue
        done = 0
        for named in re.finditer(pattern, text):
            if named.start() < done or not says_secret(named["name"]):
                continue
            match = VALUE.match(text, named.end())
            if match is None or (quoted and REPLACED.match(match["value"])):
                continue
            if named["name"].endswith(".py") and DIGEST.fullmatch(match["value"]):
                continue
            is_no_text = named["closed"] or (quoted and _may_be_code(named, match["value"]))
            if is_no_text and not match["opened"]:
                continue  # in JSON, a word without quotes is a number or null; a mask there would make the JSON invalid
            if match["value"].lower() in _NO_VALUES:
                done = match.end()
                continue
            start, done = _in_quotes(text, named, match) or match.span("value")
            value = text[start:done]
            if len(value) >= _SHORTEST_NAMED_SECRET or value.rstrip(".") == environ.get(named["name"]):
                yield Secret(start=start, end=done, what=f"the value of {named['name']}")
