"""Undo what hides a secret from the patterns: colours inside a text, and characters in the notation of URLs, HTML or JSON.

The patterns of names and forms are for plain text. A log may be coloured, and a text may have been encoded as a whole, twice at
most. Each position of the decoded text leads back to the original text, in which the secret is masked.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.files.redaction.secret import Secret

_ROUNDS = 2
# The escape character, also as JSON or Python writes it. A colour, or another command of a terminal, begins with it.
_ESCAPE = r"(?:\x1b|\\+(?:u001[bB]|x1[bB]|033))"
_SIGNS = ("\x1b", "\\", "%", "&")  # a text of ASCII without any of them has nothing to decode
_HIDDEN = re.compile(
    rf"{_ESCAPE}\[[0-?]{{0,32}}[ -/]{{0,4}}[@-~]|[\u00ad\u200b-\u200f\u2060\ufeff]"
    r"|%(?P<url>[2-7][0-9A-Fa-f])|(?<=%[0-9A-Fa-f]{2})(?P<space>\+)"
    r"|\\+(?:u00|x)(?P<json>[2-7][0-9A-Fa-f])|\\+(?P<slash>/)"
    r"|&(?P<html>quot|apos|amp|lt|gt|#0{0,3}\d{2,3}|#[xX]0{0,3}[2-7][0-9A-Fa-f]);"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoded:
    """A decoded text. `ends` has the positions after each character that was put in or left out, and `spans` its original place."""

    text: str
    ends: list[int]
    spans: list[tuple[int, int, int]]

    def original(self, secret: Secret) -> Secret:
        """Return the secret with its place in the original text. There it is encoded, so it is not the value of a variable."""
        start, end = self._span(secret.start)[0], self._span(secret.end - 1)[1]
        return replace(secret, start=start, end=end, variable=None)

    def _span(self, at: int) -> tuple[int, int]:
        """Return the start and the end, in the original text, of the character at a position of the decoded text."""
        index = bisect_right(self.ends, at)
        if index < len(self.ends) and self.spans[index][0] == at < self.ends[index]:
            return self.spans[index][1:]
        begin = at if index == 0 else at - self.ends[index - 1] + self.spans[index - 1][2]
        return begin, begin + 1


def views(text: str) -> Iterator[tuple[Decoded, ...]]:
    """Yield the text after one and two rounds of decoding, each as the rounds that lead to it. Yield nothing for plain text."""
    rounds: tuple[Decoded, ...] = ()
    for _ in range(_ROUNDS):
        once = _decoded(text)
        if once is None:
            return
        rounds, text = (*rounds, once), once.text
        yield rounds


def _decoded(text: str) -> Decoded | None:
    if text.isascii() and not any(sign in text for sign in _SIGNS):
        return None
    pieces: list[str] = []
    ends: list[int] = []
    spans: list[tuple[int, int, int]] = []
    done = length = 0
    for match in _HIDDEN.finditer(text):
        character = _character(match)
        start = length + match.start() - done
        pieces += (text[done : match.start()], character)
        length, done = start + len(character), match.end()
        ends.append(length)
        spans.append((start, *match.span()))
    return Decoded(text="".join((*pieces, text[done:])), ends=ends, spans=spans) if ends else None


def _character(match: re.Match[str]) -> str:
    """Return the character that was encoded; an empty text for a colour or an invisible character."""
    if match["space"] or match["slash"]:
        return " " if match["space"] else "/"
    if match["html"]:
        return html.unescape(match[0])
    digits = match["url"] or match["json"]
    return chr(int(digits, 16)) if digits else ""
