"""Write a comparison as Markdown for a comment on a pull request: conclusion, environment, rows worst first, details folded.

It begins with a mark (`<!-- tunebench compare -->`), so that the comment can be found and replaced. It fits into one comment:
rows that do not fit are counted. Text from names and logs is only text in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from orchestrator.compare.comparison import Comparison
from orchestrator.compare.view import wording
from orchestrator.compare.view.wording import Block, Which
from orchestrator.files.markdown import escaped, folded, sentence, table
from orchestrator.files.printable_text import one_line

MARK = "<!-- tunebench compare -->"

# Characters; GitHub takes 65,536 a comment.
LONGEST = 60_000

MAX_ROWS, MAX_DIFFERENCES, MAX_WARNINGS = 100, 20, 20
_WIDEST = 400
_CELLS = ("experiment", "metric", "verdict", "change", "95 %", "base → new", "")


def text(comparison: Comparison, *, conclusion: str, everything: bool = False) -> str:
    """Return the comment. `conclusion` is the sentence of its first line. `everything`: also the unchanged rows, folded."""
    parts = [
        f"{MARK}\n### tunebench compare: {escaped(conclusion)}",
        f"{escaped(_short(comparison.base))} → {escaped(_short(comparison.new))} · {wording.stand(comparison)} · "
        f"{wording.counted(comparison)}",
        *_environment(comparison),
        *_fleet(comparison),
    ]
    ends = [*_differences(comparison), *_warnings(comparison), _rules(comparison)]
    left = LONGEST - sum(len(part) + 2 for part in (*parts, *ends)) - 200
    main = _rows(wording.blocks(comparison, Which.TELLING))
    parts += _bounded(main, left, most=MAX_ROWS)
    if everything:
        left -= sum(map(len, parts[-1:]))
        unchanged = _rows(wording.blocks(comparison, Which.FOLDED))
        parts += [
            folded(f"{len(unchanged)} unchanged rows: the same, untested, or failed on both sides", inside)
            for inside in _bounded(unchanged, left)
        ]
    return "\n\n".join([*parts, *ends]) + "\n"


def _environment(comparison: Comparison) -> Iterator[str]:
    found = wording.environment(comparison)
    if not found:
        return
    rows = [(*wording.differing(difference), often) for difference, often in found[:MAX_DIFFERENCES]]
    yield "**The environment differs**"
    yield table(("", "base", "new", "pairs"), rows)
    if len(found) > MAX_DIFFERENCES:
        yield f"and in {len(found) - MAX_DIFFERENCES} more"


def _fleet(comparison: Comparison) -> Iterator[str]:
    rows = [
        (
            wording.heading(line.metric),
            wording.words(line.verdict),
            wording.percent(line.ratio.value),
            wording.interval(line.ratio),
            str(line.pairs),
        )
        for line in comparison.fleet
    ]
    if rows:
        yield "**All experiments** (geometric mean of the ratios)"
        yield table(("metric", "verdict", "change", "95 %", "pairs"), rows, right=("change", "pairs"))


def _rows(blocks: Iterable[Block]) -> list[tuple[str, ...]]:
    """Return the cells of each row; each experiment is named once."""
    return [
        (
            _short(block.pair.label) if number == 0 else "",
            wording.heading(row.metric) if row.metric else "",
            wording.words(row.verdict),
            wording.percent(row.ratio.value) if row.ratio else "",
            wording.interval(row.ratio) if row.ratio else "",
            wording.values(row),
            _short(wording.note(row)),
        )
        for block in blocks
        for number, row in enumerate(block.rows)
    ]


def _bounded(rows: Sequence[tuple[str, ...]], left: int, *, most: int | None = None) -> Iterator[str]:
    """Yield a table of the rows that fit, and the number of the others."""
    shown: list[tuple[str, ...]] = []
    for row in rows[:most]:
        left -= sum(len(escaped(cell)) + 3 for cell in row) + 2
        if left < 0:
            break
        shown.append(row)
    if shown:
        yield table(_CELLS, shown, right=("change",)) + _more(len(rows) - len(shown))
    elif rows:
        yield f"{len(rows)} rows do not fit here"


def _more(count: int) -> str:
    return f"\n\nand {count} more rows" if count else ""


def _differences(comparison: Comparison) -> Iterator[str]:
    """Yield the arguments that differ between the experiments whose rows are shown."""
    blocks = wording.blocks(comparison, Which.TELLING)
    found = [(block.pair, wording.own_differences(block.pair, comparison)) for block in blocks[:MAX_DIFFERENCES]]
    rows = [
        (_short(pair.label) if number == 0 else "", *wording.differing(one))
        for pair, differences in found
        for number, one in enumerate(differences[:MAX_DIFFERENCES])
    ][:MAX_ROWS]
    if rows:
        yield folded("What differs besides", table(("experiment", "", "base", "new"), rows))


def _warnings(comparison: Comparison) -> Iterator[str]:
    if not comparison.warnings:
        return
    lines = [f"- {sentence(_short(warning))}" for warning in comparison.warnings[:MAX_WARNINGS]]
    more = len(comparison.warnings) - len(lines)
    yield folded(f"{len(comparison.warnings)} warnings", "\n".join([*lines, *([f"- and {more} more"] if more else [])]))


def _rules(comparison: Comparison) -> str:
    said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in comparison.rules.items())
    return f"<sub>Judged by: {escaped(_short(said))}.</sub>"


def _short(value: str) -> str:
    return one_line(value, longest=_WIDEST)
