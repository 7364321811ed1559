"""Find the values of secret environment variables in a text, in any encoding that the text may use.

An ordinary word or a number under a secret name (`API_KEY=disabled`) is hidden only next to its name. Otherwise the mask would
replace this word in all texts, including the keys and numbers of a JSON document.
"""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any
from urllib.parse import quote, quote_plus

from orchestrator.files.redaction.names import is_secret_name, says_secret
from orchestrator.files.redaction.notations import FINGERPRINT
from orchestrator.files.redaction.secret import Secret

_SHORTEST_SECRET = 8
_LONGEST_WORD = 15
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(r"[\d\s.,:+eE-]+")
_IDENTIFIER = re.compile(r"[a-z_.-]+|[A-Z_.-]+")
# A line end or a colour inside a value, plain or as JSON writes it. Backslashes of the value may come before the line end.
_LINE_END = re.compile(r"\r?\n|(\\+)(?:r\\+)?n|(?:\x1b|\\+u001b)\[[0-9;:]*m")


def secret_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables whose values are secrets, except short values, ordinary words and numbers."""
    return {name: value for name, value in environ.items() if is_secret_name(name) and not _is_ordinary(name, value)}


def named_secrets(value: Any, name: str = "") -> dict[str, str]:
    """Return the texts under names of secrets in a nested value, as `secret_variables` does. `name` is the value's own name."""
    named = enumerate(_named(value, name))
    return {f"{own}_{number}": text for number, (own, text) in named if not _is_ordinary(own, text)}


def _named(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield each text of a nested value, and the nearest name of a secret above it. Leave out texts without such a name."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(item, key if isinstance(key, str) and is_secret_name(key) else name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _named(item, name)
    elif isinstance(value, str) and is_secret_name(name):
        yield name, value


@lru_cache(maxsize=1024)
def _is_ordinary(name: str, value: str) -> bool:
    """Return whether the value is short, a word, a number or the digest of a file.

    Under a name such as `CACHE_KEY`, an identifier is ordinary, too.
    """
    if len(value) < _SHORTEST_SECRET or re.fullmatch(FINGERPRINT, value):
        return True
    word = len(value) <= _LONGEST_WORD and _WORD.fullmatch(value)
    return bool(word or _NUMBER.fullmatch(value) or (not says_secret(name) and _IDENTIFIER.fullmatch(value)))


def by_value(text: str, variables: Mapping[str, str]) -> Iterator[Secret]:
    """Yield each place where the text contains the value of one of these variables, in any encoding."""
    if not variables:
        return
    for name, value in variables.items():
        for form in _written(value):
            start = text.find(form) if len(form) <= len(text) else -1
            while start >= 0:
                whole = name if form == value else None
                yield Secret(start=start, end=start + len(form), what=f"the value of {name}", variable=whole)
                start = text.find(form, start + len(form))
    if any(sign in text for sign in ("\n", "\\n", "\x1b", "\\u001b")):
        begun = {name: value for name, value in variables.items() if _has_a_piece(text, value)}
        yield from _across_lines(text, begun)


def _has_a_piece(text: str, value: str) -> bool:
    return any(value[at : at + 4] in text for at in range(len(value) - 3))


def _across_lines(text: str, variables: Mapping[str, str]) -> Iterator[Secret]:
    """Yield each value that a line end or a colour interrupts in this text."""
    if not variables:
        return
    breaks = list(_line_ends(text))
    kept = zip([0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(text)], strict=True)
    joined = "".join(text[start:end] for start, end in kept)
    left_out = [0, *accumulate(end - start for start, end in breaks)]
    places = [start - before for (start, _), before in zip(breaks, left_out, strict=False)]
    for name, value in variables.items():
        for form in {value, *_in_json(value)}:
            at = joined.find(form)
            while at >= 0:
                last = at + len(form) - 1
                begin, end = at + left_out[bisect_right(places, at)], last + left_out[bisect_right(places, last)] + 1
                if end - begin > len(form):
                    yield Secret(start=begin, end=end, what=f"the value of {name}")
                at = joined.find(form, at + len(form))


def _line_ends(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each line end or colour.

    JSON writes a line end with one backslash, JSON inside JSON with two.
    """
    for match in _LINE_END.finditer(text):
        start, end = match.span()
        yield (match.end(1) - (2 - len(match[1]) % 2) if match[1] else start), end


@lru_cache(maxsize=1024)
def _written(value: str) -> frozenset[str]:
    """Return the forms that a value can have in a text: plain, encoded or quoted. Each long line of a value has forms, too.

    Bytes that are not UTF-8 appear in a text as `?` or as a replacement character. A log in UTF-16 is read as UTF-8, too.
    """
    lines = [line for line in value.splitlines() if len(line) >= 2 * _SHORTEST_SECRET] if "\n" in value else []
    plain = {value, *lines}
    plain |= {text.encode("utf-8", "replace").decode() for text in plain}
    plain |= {text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in plain}
    plain |= {text.encode("utf-16-le", "surrogatepass").decode("utf-8", "replace").strip("\0") for text in plain}
    forms = set(plain)
    for text in plain:
        quoted = {*_in_json(text), repr(text)[1:-1]}
        forms |= quoted.union(*map(_in_json, quoted))
        forms |= {html.escape(text), html.escape(text, quote=False), html.escape(text).replace("&#x27;", "&#39;")}
        forms |= {text.replace('"', '""'), text.replace("'", "'\"'\"'"), text.replace("'", "'\\''")}
        forms |= _encoded(text)
    return frozenset(forms)


def _in_json(text: str) -> set[str]:
    """Return the text as JSON writes it. Some programs, such as PHP, also write a backslash before each slash."""
    forms = {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
    return forms | {form.replace("/", "\\/") for form in forms}


def _encoded(text: str) -> set[str]:
    """Return the text as it appears in a URL, in base64 and in hexadecimal digits."""
    quoted = {quote(text, safe=safe, errors="surrogateescape") for safe in ("", "/")}
    quoted.add(quote_plus(text, errors="surrogateescape"))
    quoted |= {re.sub("%..", lambda code: code[0].lower(), form) for form in quoted}
    data = text.encode("utf-8", "surrogateescape")
    return quoted | {data.hex(), data.hex().upper(), *_base64(data)}


def _base64(data: bytes) -> Iterator[str]:
    """Yield the base64 digits of the data. The digits depend on where the data begin in a longer text, so there are three forms."""
    for before in range(3):
        bits = 8 * (before + len(data))
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + data).decode()[-(-8 * before // 6) : bits // 6]
