"""Draw a comparison as a card, for a badge or a comment: the conclusion, what changed in three lines, a small forest plot. Pure.

The plot has the worst rows of the first metric that has ratios. Its middle is a ratio of 1, and an interval that does not fit ends
with an arrow. The card has its own colours on a light ground, so that it looks the same on every page. It has no script and loads
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from orchestrator.compare.comparison import Comparison, Row
from orchestrator.compare.view import in_words, wording
from orchestrator.compare.view.marks import MARKS
from orchestrator.files.printable_text import one_line, printable

MARK = "<!-- tunebench compare: card -->"
MOST_ROWS, MOST_LINES = 6, 3
WIDTH, MARGIN, LINE, ROW = 760, 24, 24, 22
_NAME, _VALUE = 300, 120  # the widths of the names and of the numbers next to the plot
_LONGEST_NAME = 42
_LETTER = 0.57  # the mean width of a letter, relative to the size of the font
_LEAST_REACH = math.log(1.03)
_COLOURS = {"@bad": "#b3261e", "@warn": "#8a5300", "@accent": "#0b5cad", "@muted": "#5b646f"}
_KINDS = {"failure": "@bad", "warning": "@warn", "gain": "@accent"}
_INK, _MUTED, _LINES = "#16191d", "#5b646f", "#d9dee4"


def text(comparison: Comparison, *, conclusion: str) -> str:
    """Return the card as the text of an SVG file. `conclusion` is the sentence with the exit code."""
    said = in_words.sentences(comparison)[:MOST_LINES]
    rows = _rows(comparison)
    top = MARGIN + LINE * (2 + len(said)) + 14
    height = top + ROW * len(rows) + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" role="img">'
    )
    title = f"tunebench: {one_line(comparison.base)} → {one_line(comparison.new)}"
    parts = [
        head,
        MARK,
        f"<title>{_text(f'{title}: {conclusion}', longest=400)}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff" stroke="{_LINES}"/>',
        _words(MARGIN, MARGIN + 14, title, fill=_MUTED, size=14),
        _words(MARGIN, MARGIN + 14 + LINE, conclusion, fill=_INK, size=17, weight=700),
    ]
    for number, one in enumerate(said, start=2):
        y = MARGIN + 14 + LINE * number
        parts.append(_words(MARGIN, y, one.head, fill=_COLOURS[_KINDS[one.kind]], size=14, weight=700))
        parts.append(_words(MARGIN + 130, y, one.text, fill=_INK, size=14))
    return "\n".join([*parts, *_forest(rows, top), "</svg>"]) + "\n"


def _rows(comparison: Comparison) -> list[Row]:
    """Return the worst rows of the first metric that has ratios."""
    with_ratio = [row for row in comparison.rows if row.ratio is not None]
    names = list(dict.fromkeys(row.metric for row in with_ratio))
    first = next((name for name in in_words.SPEEDS if name in names), names[0] if names else "")
    return sorted((row for row in with_ratio if row.metric == first), key=wording.badness)[:MOST_ROWS]


def _forest(rows: Sequence[Row], top: float) -> Iterator[str]:
    if not rows:
        return
    left, right = MARGIN + _NAME, WIDTH - MARGIN - _VALUE
    middle, half = (left + right) / 2, (right - left) / 2
    points = [abs(math.log(row.ratio.value)) for row in rows if row.ratio]
    reach = max(_LEAST_REACH, *points) * 1.6
    bottom = top + ROW * len(rows)
    yield f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{top}" y2="{bottom}" stroke="{_LINES}"/>'
    for number, row in enumerate(rows):
        assert row.ratio is not None
        y = top + ROW * (number + 0.5)
        colour = _COLOURS[MARKS[row.verdict].colour]

        def place(ratio: float) -> float:
            return middle + half * max(-1.0, min(1.0, math.log(ratio) / reach))

        yield _words(MARGIN, y + 5, one_line(row.label, longest=_LONGEST_NAME), fill=_INK, size=13)
        if row.ratio.interval is not None:
            low, high = row.ratio.interval.low, row.ratio.interval.high
            yield f'<line x1="{place(low):.1f}" x2="{place(high):.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2"/>'
            for end, tip in ((low, -1), (high, 1)):
                if abs(math.log(end)) > reach:
                    x, behind = place(end), place(end) - 5 * tip
                    arrow = f"M{behind:.1f},{y - 4} L{x:.1f},{y} L{behind:.1f},{y + 4}"
                    yield f'<path d="{arrow}" fill="none" stroke="{colour}"/>'
        yield f'<circle cx="{place(row.ratio.value):.1f}" cy="{y}" r="5" fill="{colour}"/>'
        value = f"{MARKS[row.verdict].sign} {wording.change(row.ratio)} {wording.heading(row.metric)}"
        yield _words(right + 14, y + 5, value, fill=colour, size=13)


def _words(x: float, y: float, words: str, *, fill: str, size: int, weight: int = 400) -> str:
    shown = _text(words, longest=round((WIDTH - MARGIN - x) / (_LETTER * size)))
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size}" font-weight="{weight}">{shown}</text>'


def _text(words: str, *, longest: int) -> str:
    return escape(printable(one_line(words, longest=longest)))
