"""Write a comparison as Markdown for a comment on a pull request: the conclusion, what changed in sentences, and folded details.

The text begins with a mark (`<!-- tunebench compare -->`), so that a program can find and replace the comment. The text fits into
one comment. Rows that do not fit are only counted. Markdown in names and logs is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.compare.comparison import Comparison
from orchestrator.compare.view import in_words, wording
from orchestrator.compare.view.wording import Block, Which
from orchestrator.files.markdown import escaped, folded, sentence, table
from orchestrator.files.printable_text import counted as number_of
from orchestrator.files.printable_text import one_line

MARK = "<!-- tunebench compare -->"

# The most characters of a comment. GitHub accepts 65,536.
LONGEST = 60_000

MAX_ROWS, MAX_DIFFERENCES, MAX_WARNINGS = 100, 20, 20
_WIDEST = 400
_CELLS = ("experiment", "metric", "verdict", "change", "95 %", "base → new", "")


def text(comparison: Comparison, *, conclusion: str, everything: bool = False) -> str:
    """Return the comment. `conclusion` is the sentence of its first line. `everything` adds the unchanged rows, folded."""
    parts = [
        f"{MARK}\n### tunebench compare: {escaped(conclusion)}",
        f"{escaped(_short(comparison.base))} → {escaped(_short(comparison.new))} · {wording.experiments(comparison)} · "
        f"{wording.counted(comparison)}",
        "\n".join(f"- **{escaped(one.head)}**: {escaped(one.text)}" for one in in_words.sentences(comparison)),
    ]
    ends = [*_environment(comparison), *_fleet(comparison), *_differences(comparison), *_warnings(comparison)]
    ends.append(_rules(comparison))
    left = LONGEST - sum(len(part) + 2 for part in (*parts, *ends)) - 200
    main = _rows(wording.blocks(comparison, Which.NOTABLE))
    parts += [folded(f"{number_of(len(main), 'row')} to look at", rows) for rows in _bounded(main, left, most=MAX_ROWS)]
    if everything:
        left -= sum(map(len, parts[-1:]))
        unchanged = _rows(wording.blocks(comparison, Which.UNCHANGED))
        parts += [
            folded(f"{len(unchanged)} unchanged rows: the same, untested, or failed on both sides", inside)
            for inside in _bounded(unchanged, left)
        ]
    return "\n\n".join([*parts, *ends]) + "\n"


def _environment(comparison: Comparison) -> Iterator[str]:
    differences = wording.environment(comparison)
    if not differences:
        return
    rows = [(*wording.difference_cells(difference), pairs) for difference, pairs in differences[:MAX_DIFFERENCES]]
    more = len(differences) - MAX_DIFFERENCES
    text = table(("", "base", "new", "pairs"), rows) + (f"\n\nand in {more} more" if more > 0 else "")
    yield folded(f"The environment differs in {number_of(len(differences), 'value')}", text)


def _fleet(comparison: Comparison) -> Iterator[str]:
    rows = []
    for line in comparison.fleet:
        verdict, metric, *numbers = wording.fleet_cells(line)
        rows.append((metric, verdict, *numbers, wording.fleet_note(line)))
    if rows:
        text = table(("metric", "verdict", "change", "95 %", ""), rows, right=("change",))
        yield folded("All experiments together (geometric mean of the ratios)", text)


def _rows(blocks: Iterable[Block]) -> list[tuple[str, ...]]:
    """Return the cells of each row. Only the first row of an experiment has its name."""
    rows = []
    for block in blocks:
        for number, row in enumerate(block.rows):
            verdict, metric, *numbers, note = wording.cells(row)
            label = _short(block.pair.label) if number == 0 else ""
            rows.append((label, metric, verdict, *numbers, _short(note)))
    return rows


def _bounded(rows: Sequence[tuple[str, ...]], left: int, *, most: int | None = None) -> Iterator[str]:
    """Yield a table of the rows that fit, and the number of the other rows."""
    shown: list[tuple[str, ...]] = []
    for row in rows[:most]:
        left -= sum(len(escaped(cell)) + 3 for cell in row) + 2
        if left < 0:
            break
        shown.append(row)
    if shown:
        more = len(rows) - len(shown)
        yield table(_CELLS, shown, right=("change",)) + (f"\n\nand {more} more rows" if more else "")
    elif rows:
        yield f"{len(rows)} rows do not fit here"


def _differences(comparison: Comparison) -> Iterator[str]:
    """Yield the arguments that differ between the experiments whose rows are shown."""
    blocks = wording.blocks(comparison, Which.NOTABLE)
    rows = [
        (_short(block.pair.label) if number == 0 else "", *wording.difference_cells(difference))
        for block in blocks[:MAX_DIFFERENCES]
        for number, difference in enumerate(wording.own_differences(block.pair, comparison)[:MAX_DIFFERENCES])
    ][:MAX_ROWS]
    if rows:
        yield folded("Other differences", table(("experiment", "", "base", "new"), rows))


def _warnings(comparison: Comparison) -> Iterator[str]:
    if not comparison.warnings:
        return
    lines = [f"- {sentence(_short(warning))}" for warning in comparison.warnings[:MAX_WARNINGS]]
    more = len(comparison.warnings) - len(lines)
    yield folded(f"{len(comparison.warnings)} warnings", "\n".join([*lines, *([f"- and {more} more"] if more else [])]))


def _rules(comparison: Comparison) -> str:
    return f"<sub>Judged by: {escaped(_short(wording.judged_by(comparison)))}.</sub>"


def _short(value: str) -> str:
    return one_line(value, longest=_WIDEST)
