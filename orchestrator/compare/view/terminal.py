"""Show a comparison on a terminal of 80 columns or more: differences of environment, the verdict over all experiments, the rows.

The worst rows come first. Unchanged rows (the same, untested, failed on both sides) are counted, but shown only if requested. A
line that is too wide continues, indented, on the next line; nothing is cut. `cli` prints the view and the warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from orchestrator.compare.comparison import Comparison, Verdict
from orchestrator.compare.view import wording
from orchestrator.compare.view.wording import Block, Which
from orchestrator.files.printable_text import printable
from orchestrator.report.tables.terminal import plain

MAX_BLOCKS, MAX_DIFFERENCES = 100, 12
STYLES = {
    **dict.fromkeys((Verdict.FAILED, Verdict.REGRESSED, Verdict.MISSING), "red"),
    **dict.fromkeys((Verdict.UNKNOWN, Verdict.NOT_COMPARABLE, Verdict.INCONCLUSIVE), "yellow"),
    **dict.fromkeys((Verdict.IMPROVED, Verdict.NEW), "green"),
    **dict.fromkeys((Verdict.UNTESTED, Verdict.SAME), "dim"),
}
_GAP, _INDENT = 2, 2


def view(comparison: Comparison, *, width: int, everything: bool = False) -> RenderableType:
    """Return the comparison as it is printed. `everything` adds the unchanged rows, and removes the limit on the number of rows."""
    blocks = wording.blocks(comparison, Which.ALL if everything else Which.NOTABLE)
    shown = blocks if everything else blocks[:MAX_BLOCKS]
    parts = [*_heading(comparison), *_machines(comparison), *_environment(comparison, everything=everything)]
    parts += _fleet(comparison, width=width)
    widths = _widths([wording.cells(row) for block in shown for row in block.rows if row.metric])
    for block in shown:
        parts += _block(block, comparison, widths=widths, width=width)
    return Group(*parts, *_end(comparison, len(blocks) - len(shown), everything=everything))


def text(comparison: Comparison, *, width: int = 80, everything: bool = False) -> str:
    """Return the view as plain text."""
    return plain(view(comparison, width=width, everything=everything), width=width)


def _heading(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(printable(f"base  {comparison.base}"), style="bold", overflow="fold")
    yield Text(printable(f"new   {comparison.new}"), style="bold", overflow="fold")
    yield Text(wording.experiments(comparison))


def _machines(comparison: Comparison) -> Iterator[RenderableType]:
    if not comparison.machines:
        return
    yield Text("")
    yield Text("Figures of the machines (run --screen):", style="bold")
    for sentence in comparison.machines[:MAX_DIFFERENCES]:
        yield _indented(Text(printable(sentence), style="yellow", overflow="fold"))
    if len(comparison.machines) > MAX_DIFFERENCES:
        yield _indented(Text(f"… and {len(comparison.machines) - MAX_DIFFERENCES} more", style="dim"))


def _environment(comparison: Comparison, *, everything: bool) -> Iterator[RenderableType]:
    differences = wording.environment(comparison)
    if not differences:
        return
    yield Text("")
    yield Text("Environment differs:", style="bold")
    shown = differences if everything else differences[:MAX_DIFFERENCES]
    for difference, pairs in shown:
        where = "" if pairs == "all" else f"  ({pairs} pairs)"
        yield _indented(Text(f"{wording.difference(difference)}{where}", style="yellow", overflow="fold"))
    if len(differences) > len(shown):
        yield _indented(Text(f"… and {len(differences) - len(shown)} more: --all", style="dim"))


def _fleet(comparison: Comparison, *, width: int) -> Iterator[RenderableType]:
    if not comparison.fleet:
        return
    yield Text("")
    yield Text("All experiments (geometric mean of the ratios, 95 %):", style="bold")
    rows = [(*wording.fleet_cells(line), "", wording.fleet_note(line)) for line in comparison.fleet]
    widths = _widths(rows)
    for line, cells in zip(comparison.fleet, rows, strict=True):
        yield _line(cells, widths=widths, width=width, style=STYLES[line.verdict])


def _block(block: Block, comparison: Comparison, *, widths: Sequence[int], width: int) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(printable(block.pair.label), style="bold", overflow="fold")
    for row in block.rows:
        yield _line(wording.cells(row), widths=widths, width=width, style=STYLES[row.verdict])
    differences = wording.own_differences(block.pair, comparison)
    for difference in differences[:MAX_DIFFERENCES]:
        yield _indented(Text(f"differs in {wording.difference(difference)}", style="dim", overflow="fold"))
    if len(differences) > MAX_DIFFERENCES:
        yield _indented(Text(f"… and in {len(differences) - MAX_DIFFERENCES} more", style="dim"))


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column), default=0) for column in zip(*rows, strict=True)] or [0] * 6


def _line(cells: Sequence[str], *, widths: Sequence[int], width: int, style: str) -> RenderableType:
    """Return one row: verdict, metric, change and interval in columns. The rest is on the same line if it fits, else below."""
    *columns, values, note = cells
    if not columns[1]:  # a pair without numbers
        return _indented(Text(f"{columns[0]}: {note}", style=style, overflow="fold"))
    line = Text(style=style)
    for place, (cell, wide) in enumerate(zip(columns, widths, strict=False)):
        if wide:
            blanks = " " * (wide - cell_len(cell))
            line.append(f"{blanks}{cell}" if place == 2 else f"{cell}{blanks}")
            line.append(" " * _GAP)
    below: list[str] = []
    for extra in filter(None, (values, note)):
        if not below and cell_len(line.plain) + cell_len(extra) + _INDENT <= width:
            line.append(extra + " " * _GAP)
        else:
            below.append(extra)
    line.rstrip()
    rest = Padding(Text("  ".join(below), style="dim", overflow="fold"), (0, 0, 0, widths[0] + _GAP), expand=False)
    return _indented(Group(line, rest) if below else line)


def _indented(inside: RenderableType) -> RenderableType:
    return Padding(inside, (0, 0, 0, _INDENT), expand=False)


def _end(comparison: Comparison, hidden: int, *, everything: bool) -> Iterator[RenderableType]:
    yield Text("")
    if hidden:
        yield Text(f"… and {hidden} more experiments; show them with --all, or write a file with --output", style="dim")
    yield Text(f"Rows: {wording.counted(comparison)}", style="bold")
    old = wording.old_failures(comparison)
    if not everything and any(wording.is_unchanged(row, old) for row in comparison.rows):
        has_untested = any(row.verdict is Verdict.UNTESTED for row in comparison.rows)
        reasons = ", and untested rows with the reason" if has_untested else ""
        yield Text(f"Use --all to include unchanged rows{reasons}.", style="dim")
