"""Escape text from anywhere, so that Markdown shows it unchanged and finds no tag, link, mention, entity or heading in it. Pure.

A name, an argument or a trainer's error may contain any character. `<` becomes an entity, since not every program knows `\\<`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.files.printable_text import printable

# This comment is invisible. It keeps `@name` from notifying a person, and a web address from becoming a link.
EMPTY_COMMENT = "<!-- -->"

_MARKS = re.compile(r"[\\|`*\[~@]|(?<![^\W_])_|_(?![^\W_])|(?<=://)|(?<=www)(?=\.)")
_ENTITY = re.compile(r"&(?=#|\w+;)")


def escaped(text: str) -> str:
    """Return the text as one line of Markdown."""
    line = " ".join(printable(text).split())
    line = _ENTITY.sub("&amp;", line).replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(_escaped_mark, line)


def _escaped_mark(match: re.Match[str]) -> str:
    """Return a punctuation mark with a backslash before it, or with an empty comment if a backslash does not help."""
    if match[0] == "@":
        return f"@{EMPTY_COMMENT}"
    return f"\\{match[0]}" if match[0] else EMPTY_COMMENT


def sentence(text: str) -> str:
    """Return the text escaped for the beginning of a line. There, `#`, `-` or `1.` would make a heading or a list."""
    return re.sub(r"^(?=[#+=~-])", r"\\", re.sub(r"^(\d+)(?=[.)])", r"\1\\", escaped(text)))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> str:
    """Return a table of escaped cells; the columns in `right` are aligned to the right."""
    aligned = ["---:" if heading in set(right) else "---" for heading in headings]
    lines = [_line(map(escaped, headings)), _line(aligned), *(_line(map(escaped, row)) for row in rows)]
    return "\n".join(lines)


def folded(summary: str, inside: str) -> str:
    """Return a section that opens when a reader clicks on its summary. The summary is escaped; `inside` is Markdown."""
    return f"<details><summary>{escaped(summary)}</summary>\n\n{inside}\n\n</details>"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
