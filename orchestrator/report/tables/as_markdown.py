"""A table as Markdown for people, for example in a pull request: findings, a readable table, notes and warnings.

It has short headings, rounded values with units, and a dash for a missing value. benchmarks.csv has all digits and all columns.
Texts from elsewhere (names, arguments, errors) are escaped: they cannot become markup, and cannot control a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.files.markdown import escaped, folded, sentence, table
from orchestrator.measure.metrics import FACTS, METRICS, Show, metric, show
from orchestrator.report.highlights import Highlight, HighlightKind
from orchestrator.results.table.column_choice import Split, cells, for_people, matches

if TYPE_CHECKING:
    import pandas as pd


# A longer list of warnings is folded.
MOST_UNFOLDED = 5


def text(
    split: Split, warnings: Sequence[str], *, highlights: Sequence[Highlight] = (), kept: Sequence[str] = ()
) -> str:
    """Return the findings, the shared values, a table of the facts and the `kept` metrics, and the warnings."""
    parts = [findings(highlights)] if highlights else []
    same = same_for_all(split)
    if same:
        parts.append(f"Same for all: {escaped(same)}.")
    names = for_people(str(name) for name in split.shown.columns)
    chosen = [name for name in names if name not in METRICS or matches(name, kept)]
    parts.append(grid(split.shown[chosen]) if len(split.shown) else "No experiments.")
    left_out = [name for name in names if name not in chosen]
    if left_out:
        parts.append(f"Also in benchmarks.csv: {escaped(', '.join(left_out))}.")
    if warnings:
        lines = "\n".join(f"- {sentence(line)}" for line in warnings)
        parts.append(lines if len(warnings) <= MOST_UNFOLDED else folded(f"{len(warnings)} warnings", lines))
    return "\n\n".join(parts) + "\n"


def findings(highlights: Sequence[Highlight]) -> str:
    """Return a list with one line for each finding; notes, warnings and failures are marked."""
    return "\n".join(f"- {_MARKED[highlight.kind]}{sentence(highlight.text)}" for highlight in highlights)


_MARKED = {
    HighlightKind.GAIN: "",
    HighlightKind.NOTE: "**Note:** ",
    HighlightKind.WARNING: "**Warning:** ",
    HighlightKind.FAILURE: "**Failed:** ",
}


def same_for_all(split: Split) -> str:
    """Return the facts and metrics that are the same in all rows, in reading order."""
    shown = [name for name in split.constant if (name in FACTS or name in METRICS) and name not in _NOT_SHARED]
    return ", ".join(f"{metric(name).label} {show(name, split.constant[name])}" for name in for_people(shown))


_NOT_SHARED = ("runs", "runs_ok", "attempt", "python", "monitors", "warnings", "world_size")


def headings(names: Sequence[str]) -> list[str]:
    """Return short headings. If two columns would have the same heading, use the names of these columns instead."""
    labels = [metric(name).label for name in names]
    return [label if labels.count(label) == 1 else name for label, name in zip(labels, names, strict=True)]


def grid(frame: pd.DataFrame, *, named: Mapping[str, str] | None = None) -> str:
    """Return a frame as a table. `named` maps a column to the metric or fact that formats it, if the names differ."""
    named = named or {}
    names = [str(name) for name in frame.columns]
    titles = headings(names)
    right = [title for title, name in zip(titles, names, strict=True) if is_number(frame, name, named=named)]
    columns = [[show(named.get(name, name), value) for value in cells(frame[name])] for name in names]
    return table(titles, zip(*columns, strict=True), right=right)


def is_number(frame: pd.DataFrame, name: str, *, named: Mapping[str, str] | None = None) -> bool:
    """Return whether a column has numbers, and is thus aligned to the right."""
    is_text = metric((named or {}).get(name, name)).show is Show.TEXT
    return not is_text and str(frame[name].dtype) in ("Int64", "Float64")
