"""Write text from anywhere as Markdown that shows it unchanged: no tag, link, mention, entity, heading or further column. Pure.

A name, an argument or an error of a trainer may contain any character. Tags become entities, since not every reader knows `\\<`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orchestrator.files.printable_text import printable

NOTHING = "<!-- -->"
"""Shows as nothing, and keeps `@name` from notifying anybody and an address from becoming a link."""

_MARKS = re.compile(r"[\\|`*\[~@]|(?<![^\W_])_|_(?![^\W_])|(?<=://)|(?<=www)(?=\.)")
_ENTITY = re.compile(r"&(?=#|\w+;)")


def escaped(text: str) -> str:
    """Return the text as one line of Markdown."""
    line = " ".join(printable(text).split())
    line = _ENTITY.sub("&amp;", line).replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(_as_it_is, line)


def _as_it_is(found: re.Match[str]) -> str:
    """Return a mark after a backslash, or, if that does not help, with an empty comment after it."""
    if found[0] == "@":
        return f"@{NOTHING}"
    return f"\\{found[0]}" if found[0] else NOTHING


def sentence(text: str) -> str:
    """Return the text escaped for the beginning of a line, where a mark makes a heading, a list, or a rule."""
    return re.sub(r"^(?=[#+=~-])", r"\\", re.sub(r"^(\d+)(?=[.)])", r"\1\\", escaped(text)))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> str:
    """Return a table of escaped cells; the columns in `right` are aligned to the right."""
    aligned = ["---:" if heading in set(right) else "---" for heading in headings]
    lines = [_line(map(escaped, headings)), _line(aligned), *(_line(map(escaped, row)) for row in rows)]
    return "\n".join(lines)


def folded(summary: str, inside: str) -> str:
    """Return what a reader sees only after opening it; `summary` is escaped, `inside` is Markdown."""
    return f"<details><summary>{escaped(summary)}</summary>\n\n{inside}\n\n</details>"


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
