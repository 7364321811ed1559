"""The table at the end of a run and of `tunebench report`, for a terminal of any width.

It shows what distinguishes the experiments, the few numbers that people ask for first, and how each experiment ended. The
failures follow, each with its kind and cause. Columns that do not fit are listed below the table. All texts are made printable.
`cli` prints the result and the table's warnings.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.files.printable_text import counted, printable
from orchestrator.measure.metrics import METRICS
from orchestrator.measure.metrics import show as shown_value
from orchestrator.report.highlights import Highlight, HighlightKind
from orchestrator.report.highlights.failures import Way, ways
from orchestrator.report.tables.as_markdown import (
    distinguishing,
    heading,
    headings,
    is_number,
    of_calls,
    same_for_all,
    without_ends,
    words,
)
from orchestrator.report.tables.columns import OUTCOME, PADDED, Marks, given, in_order, is_padded, marks
from orchestrator.results.table.column_choice import (
    DEFAULT_DROP,
    DETAILS,
    Split,
    always_shown,
    cells,
    has_values,
    headline,
    matches,
    only,
    speeds,
    varying,
)

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

Texts = Callable[[str], list[str]]

MAX_ROWS = 200
MAX_FAILURES = 20
# The number of ways that are shown of an experiment whose repeats failed differently.
MOST_WAYS = 3
# Metrics that only scenarios define, and that have a place before the columns that distinguish rows.
MOST_OWN = 3
_WIDEST = 28
# The number of blanks between two columns.
GAP = 3

_BELOW = (
    *("failure_kind", "failure_cause", "failure_hint", "warnings", "device", "trainer", "python", "monitors"),
    "environment_lock",
)


def summary(
    table: ResultsTable,
    *,
    width: int,
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    highlights: Sequence[Highlight] = (),
) -> RenderableType:
    """Return the summary of a table for a terminal of `width` columns. `keep` and `drop` override the choice of columns.

    The highlights follow the table. Each failed experiment has its own lines with kind, cause and advice.
    """
    frame, keep, drop = table.experiments, tuple(keep), tuple(drop)
    if not len(frame):
        return Text("No experiments.")
    usual = always_shown(frame, drop=drop)
    empty = [str(name) for name in frame.columns if not has_values(frame, str(name))]
    split = varying(
        frame,
        keep=(*keep, *usual, *of_calls(frame), *table.own_metrics),
        drop=(*drop, *DEFAULT_DROP, *DETAILS, *_BELOW, *_counts(frame), *empty),
    )
    names = _names(frame, split, table.own_metrics)
    in_doubt = marks(table)
    texts = _texts(frame[:MAX_ROWS], in_doubt)
    facts = distinguishing(frame, names, given(table))
    fitting = _fitting(frame, names, width, facts=facts, keep=keep, own=table.own_metrics[:MOST_OWN], texts=texts)
    parts: list[RenderableType] = [Text(heading(frame), style="bold")]
    same = same_for_all(split, device=only(frame, "device"), marks=in_doubt)
    if same:
        parts.append(Text(printable(f"Same for all: {same}")))
    parts.append(_grid(frame, {name: fitting[name] for name in names if name in fitting}, texts))
    if len(frame) > MAX_ROWS:
        parts.append(Text(f"… and {len(frame) - MAX_ROWS} more experiments in benchmarks.csv", style="dim"))
    parts += unshown([name for name in names if name not in fitting])
    return Group(*parts, *_findings(highlights), *_failures(table))


def text(table: ResultsTable, *, width: int, highlights: Sequence[Highlight] = ()) -> str:
    """Return the summary as plain text."""
    return plain(summary(table, width=width, highlights=highlights), width=width)


def plain(view: RenderableType, *, width: int) -> str:
    """Return, as plain text, the output on a terminal of `width` columns."""
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    console.print(view)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def show(name: str, value: object) -> str:
    """Return a value as people read it, without characters that control a terminal."""
    return printable(shown_value(name, value))


def _counts(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the columns to leave out: the counts of runs, if each experiment has only one run.

    They would only repeat the status.
    """
    return ("runs", "runs_ok") if int(frame["runs"].max()) <= 1 else ()


def _names(frame: pd.DataFrame, split: Split, own: Sequence[str]) -> list[str]:
    """Return the columns in order. If no fact distinguishes the experiments, their ids come first."""
    names = in_order(frame, map(str, split.shown.columns), own=own)
    is_fact = names and not {names[0]}.intersection((*METRICS, *OUTCOME, *own))
    return without_ends(names if is_fact else ["id", *names])


def _texts(frame: pd.DataFrame, in_doubt: Marks) -> Texts:
    """Return a function from a column's name to its texts. A speed in doubt has a mark, because it must not be compared."""
    return lambda name: words(frame, name, marks=in_doubt)


def _fitting(
    frame: pd.DataFrame,
    names: Sequence[str],
    width: int,
    *,
    facts: Sequence[str],
    keep: Sequence[str],
    own: Sequence[str],
    texts: Texts,
) -> dict[str, int]:
    """Return the columns that fit next to each other, with their widths.

    If the user keeps columns, the columns that distinguish rows (`facts`) and the kept columns come first. Then come a speed of
    each row, the first metrics that only scenarios define, and the status if an experiment is not ok. The `facts`, the speed-up and
    other metrics follow.
    """
    kept = [name for name in names if matches(name, keep)]
    measured = [name for name in headline(frame) if name in names][:12]
    ended = ("status",) if any(value != "ok" for value in cells(frame["status"])) else ()
    first = (*facts, *kept) if kept else ()
    wanted = (
        *first,
        *speeds(frame, first=PADDED if is_padded(frame) else ()),
        *own,
        *ended,
        *facts,
        "speedup",
        "tokens_per_s",
        *measured,
        "status",
        "id",
    )
    fitting: dict[str, int] = {}
    left = width + GAP
    for name in dict.fromkeys((*(name for name in wanted if name in names), *names)):
        for shown in (texts(name), list(map(_in_two_lines, texts(name)))):
            needed = _width(frame, name, shown)
            if needed + GAP <= left:
                fitting[name] = needed
                left -= needed + GAP
                break
    return fitting


def _in_two_lines(text: str) -> str:
    """Return a value with its interval below it, for a narrow column."""
    return text.replace("× (", "×\n(", 1)


def _width(frame: pd.DataFrame, name: str, texts: Sequence[str]) -> int:
    values = [cell_len(line) for text in texts for line in printable(text).splitlines()]
    longest = max(map(cell_len, _words(headings([name])[0])), default=0)
    return max(longest, min(max(values, default=1), _WIDEST if not is_number(frame, name) else 100))


def _words(heading: str) -> list[str]:
    """Return the parts of a heading between which a line may end: words, and the parts of a name with underscores."""
    return re.findall(r"[^\s_]*_+|[^\s_]+", printable(heading))


def _title(heading: str, width: int) -> str:
    """Return a heading in lines of at most `width` columns."""
    lines = [""]
    for word in _words(heading):
        gap = "" if not lines[-1] or lines[-1].endswith("_") else " "
        if cell_len(lines[-1] + gap + word) <= width:
            lines[-1] += gap + word
        else:
            lines.append(word)
    return "\n".join(lines)


def empty_table() -> Table:
    """Return a table without columns, in the style that all tables of reports share."""
    return Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)


def unshown(names: Sequence[str]) -> Iterator[Text]:
    """Yield the line that lists the columns that do not fit, if there are any."""
    if names:
        yield Text(printable(f"Columns that do not fit here: {', '.join(names)}"), style="dim")


def _grid(frame: pd.DataFrame, widths: Mapping[str, int], texts: Texts) -> Table:
    """Return the table of columns of these widths."""
    grid, names = empty_table(), list(widths)
    for (name, width), title_text in zip(widths.items(), headings(names), strict=True):
        title, right = Text(_title(title_text, width)), is_number(frame, name)
        grid.add_column(title, justify="right" if right else "left", overflow="fold", min_width=width, max_width=width)
    columns = [[_cell(name, text, width) for text in texts(name)] for name, width in widths.items()]
    for row in zip(*columns, strict=True):
        grid.add_row(*row)
    return grid


def _cell(name: str, text: str, width: int) -> Text:
    style = "" if name != "status" else "green" if text == "ok" else "red"
    return Text(printable(_in_two_lines(text) if cell_len(text) > width else text), style=style)


def _findings(highlights: Sequence[Highlight]) -> Iterator[RenderableType]:
    shown = [highlight for highlight in highlights if highlight.kind is not HighlightKind.FAILURE]
    if shown:
        yield Text("")
    for highlight in shown:
        sign, style = _SIGNS[highlight.kind]
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(sign), Text(printable(highlight.text), style=style))
        yield grid


_SIGNS = {
    HighlightKind.BEST: ("•", "bold"),
    HighlightKind.GAIN: ("•", ""),
    HighlightKind.NOTE: ("note:", ""),
    HighlightKind.WARNING: ("!", "yellow"),
}


def _failures(table: ResultsTable) -> Iterator[RenderableType]:
    """Yield the lines of each experiment that is not ok: its id, the kinds and counts of failures, the causes, and the advice."""
    frame = table.experiments
    rows = zip(table.failed, *(cells(frame[name]) for name in ("id", "runs", "runs_ok")), strict=True)
    found = ((identity, runs, ok, ways(failed)) for failed, identity, runs, ok in rows)
    shown = [row for row in found if any(way.kind or way.cause for way in row[3])]
    for identity, runs, ok, ended in shown[:MAX_FAILURES]:
        often = f", {ok} of {runs} runs ok" if isinstance(runs, int) and runs > 1 else ""
        how = _how(ended[0]) if len(ended) == 1 else f"failed in {len(ended)} ways"
        yield Text("")
        yield Text.assemble((printable(f"{identity}"), "bold"), " ", (printable(f"{how}{often}"), "red"))
        if len(ended) == 1:
            yield from _cause(ended[0], indent=2)
            continue
        for way in ended[:MOST_WAYS]:
            yield Padding(Text(printable(f"{way.runs}× {_how(way)}"), style="red"), (0, 0, 0, 2))
            yield from _cause(way, indent=4)
        if rest := sum(way.runs for way in ended[MOST_WAYS:]):
            yield Padding(Text(f"… and {counted(rest, 'run')} in other ways", style="red"), (0, 0, 0, 2))
    if len(shown) > MAX_FAILURES:
        yield Text(f"… and {len(shown) - MAX_FAILURES} more that are not ok", style="red")


def _how(way: Way) -> str:
    return f"{way.status}: {way.kind}" if way.kind and way.kind != way.status else way.status


def _cause(way: Way, *, indent: int) -> Iterator[RenderableType]:
    if way.cause:
        yield Padding(Text(printable(way.cause)), (0, 0, 0, indent))
    if way.hint:
        yield Padding(Text(printable(f"→ {way.hint}"), style="cyan"), (0, 0, 0, indent))
