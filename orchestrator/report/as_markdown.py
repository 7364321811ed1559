"""A table as Markdown for people: short headings, values with units, a dash where one is missing.

Text in, text out. Values are rounded here; benchmarks.csv has them whole. A name, an argument or an error of a trainer is text in
it and nothing else: no tag, link, entity, heading or further column, and nothing that steers a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.columns import Split, cells, for_people
from orchestrator.metrics import FACTS, METRICS, Show, metric, show
from orchestrator.printable import printable

if TYPE_CHECKING:
    import pandas as pd


def text(split: Split, warnings: Sequence[str]) -> str:
    """The table, what is the same for all in a line above it, warnings in a list below."""
    parts = []
    same = same_for_all(split)
    if same:
        parts.append(f"Same for all: {_escaped(same)}.")
    parts.append(_table(split.shown) if len(split.shown) else "No experiments.")
    if warnings:
        parts.append("\n".join(f"- {_as_sentence(sentence)}" for sentence in warnings))
    return "\n\n".join(parts) + "\n"


def same_for_all(split: Split) -> str:
    """What all rows share of what people ask first: registered facts and metrics, in reading order."""
    asked = [name for name in split.constant if (name in FACTS or name in METRICS) and name not in _NOT_ASKED]
    return ", ".join(f"{metric(name).label} {show(name, split.constant[name])}" for name in for_people(asked))


_NOT_ASKED = ("runs", "runs_ok", "attempt", "python", "monitors", "warnings", "world_size")


def headings(names: Sequence[str]) -> list[str]:
    """Short headings; the full name where two columns would have the same."""
    labels = [metric(name).label for name in names]
    return [label if labels.count(label) == 1 else name for label, name in zip(labels, names, strict=True)]


def _table(frame: pd.DataFrame) -> str:
    names = for_people(str(name) for name in frame.columns)
    aligned = ["---:" if is_number(frame, name) else "---" for name in names]
    columns = [[show(name, value) for value in cells(frame[name])] for name in names]
    return "\n".join(_line(row) for row in (headings(names), aligned, *zip(*columns, strict=True)))


def is_number(frame: pd.DataFrame, name: str) -> bool:
    """Whether a column is aligned to the right."""
    return metric(name).show is not Show.TEXT and str(frame[name].dtype) in ("Int64", "Float64")


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(value) for value in row) + " |"


def _as_sentence(text: str) -> str:
    """Escaped for the beginning of a line, where a mark makes a heading, a list, or a line across the page."""
    return re.sub(r"^(?=[#+=~-])", r"\\", re.sub(r"^(\d+)(?=[.)])", r"\1\\", _escaped(text)))


_MARKS = re.compile(r"[\\|`*\[~]|(?<![^\W_])_|_(?![^\W_])")
_ENTITY = re.compile(r"&(?=#|\w+;)")


def _escaped(value: str) -> str:
    """One line of text that Markdown shows as it is. Tags become entities: not every reader knows `\\<`."""
    line = " ".join(printable(value).split())
    line = _ENTITY.sub("&amp;", line).replace("<", "&lt;").replace(">", "&gt;")
    return _MARKS.sub(r"\\\g<0>", line)
