"""A table as Markdown for people, for example in a pull request: findings, a readable table, notes and warnings.

It has short headings, rounded values with units, and a dash for a missing value. benchmarks.csv has all digits and all columns.
Texts from elsewhere (names, arguments, errors) are escaped: they cannot become markup, and cannot control a terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.files.markdown import escaped, folded, sentence, table
from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import DASH, FACTS, METRICS, Show, metric, show
from orchestrator.records import Device
from orchestrator.report.highlights import Highlight, HighlightKind
from orchestrator.report.tables.columns import Marks, facts_and
from orchestrator.results.table.baseline import STEP_TIME
from orchestrator.results.table.column_choice import WHOLE_SPEEDS, Split, cells, for_people, has_values, matches, speeds
from orchestrator.results.table.rows import PREFIX, Value
from orchestrator.trainers.external.operators import WORK

if TYPE_CHECKING:
    import pandas as pd


# A longer list of warnings is folded, and so is a table with more columns.
MOST_UNFOLDED, MOST_COLUMNS = 5, 8
# So many columns that tell the experiments apart leave room for numbers.
MOST_FACTS = 5
_SPEEDUP = ("speedup", "speedup_low", "speedup_high")
_DISTINGUISHING = (
    "results",
    "environment",
    "framework_config",
    "model_name_or_path",
    "num_gpus",
    "num_nodes",
    "peft_method",
    "scenario",
)
_LATER = ("scaling_efficiency", "mfu")
_ENDS_OF_RUNS = ("status", "runs", "runs_ok", "failure_kind", "failure_cause")


def text(
    split: Split,
    warnings: Sequence[str],
    *,
    highlights: Sequence[Highlight] = (),
    kept: Sequence[str] = (),
    always: Sequence[str] = (),
    given: Sequence[str] = (),
    marks: Marks | None = None,
) -> str:
    """Return how many experiments there are, the findings, the shared values, the table, and the warnings.

    The table has the columns that distinguish the experiments, the first of the `kept` metrics, and the columns that `always`
    names. If there are more, a folded table has all facts and all `kept` metrics. `given` are the arguments of `columns.given`.
    `marks` says which values are in doubt.
    """
    parts = [f"### {escaped(heading(split.shown))}"] if "status" in split.shown else []
    parts += [findings(highlights)] if highlights else []
    same = same_for_all(split, marks=marks)
    if same:
        parts.append(f"Same for all: {escaped(same)}.")
    names = for_people(str(name) for name in split.shown.columns)
    chosen = facts_and((*kept, *always), names)
    facts = distinguishing(split.shown, chosen, given)
    first = _first(split.shown, chosen, facts=facts, kept=kept, always=always)
    parts.append(grid(split.shown, first, marks=marks) if len(split.shown) else "No experiments.")
    if len(split.shown) and len(first) < len(without_ends(chosen)):
        parts.append(folded(f"All {len(without_ends(chosen))} columns", grid(split.shown, chosen, marks=marks)))
    left_out = [name for name in names if name not in chosen]
    if left_out:
        parts.append(f"Also in benchmarks.csv: {escaped(', '.join(left_out))}.")
    if warnings:
        lines = "\n".join(f"- {sentence(line)}" for line in warnings)
        parts.append(lines if len(warnings) <= MOST_UNFOLDED else folded(f"{len(warnings)} warnings", lines))
    return "\n\n".join(parts) + "\n"


def heading(frame: pd.DataFrame) -> str:
    """Return how many experiments there are, and how they ended."""
    ended = Counter(str(value) for value in cells(frame["status"]))
    counts = ", ".join(f"{number} {status}" for status, number in ended.most_common())
    return f"{counted(len(frame), 'experiment')}: {counts}"


def _first(
    frame: pd.DataFrame, names: Sequence[str], *, facts: Sequence[str], kept: Sequence[str], always: Sequence[str]
) -> list[str]:
    """Return at most MOST_COLUMNS columns of the first table, in reading order, and the columns that `always` names.

    The `facts` come first.
    """
    ended = ["status"] if "status" in frame and any(value != "ok" for value in cells(frame["status"])) else []
    # If there is a steady speed, its reciprocal and speeds that include warm-up are left to the folded table, unless a row has only
    # such a speed.
    others = {STEP_TIME, *WHOLE_SPEEDS}.difference(speeds(frame)) if "tokens_per_s" in names else ()
    measured = [name for name in kept if name in METRICS and name not in others]
    measured.sort(key=lambda name: name in _LATER)
    wanted = [*facts, *ended, *measured]
    few = [name for name in without_ends(list(dict.fromkeys(wanted))) if name in names][:MOST_COLUMNS]
    few = few or without_ends(names)[:MOST_COLUMNS]
    return [name for name in without_ends(names) if name in few or matches(name, always)]


def distinguishing(frame: pd.DataFrame, names: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return a few of these columns that make all rows different, if that is possible.

    Further arguments in `given` follow, up to MOST_FACTS columns. One that follows from another of them is left out.
    """
    facts = [name for name in names if name not in METRICS and name not in (*_ENDS_OF_RUNS, "id")]
    chosen: list[str] = []
    different = 1
    for name in dict.fromkeys(name for name in (*_DISTINGUISHING, *facts) if name in facts):
        count = len(frame[[*chosen, name]].astype(str).drop_duplicates())
        if count > different:
            chosen.append(name)
            different = count
    for name in (name for name in given if name in facts and name not in chosen):
        if len(chosen) < MOST_FACTS and not any(_follows(frame, name, other) for other in chosen if other in given):
            chosen.append(name)
    return chosen


def _follows(frame: pd.DataFrame, name: str, other: str) -> bool:
    """Return whether the values of a column follow from those of another."""
    return len(frame[[other, name]].astype(str).drop_duplicates()) == frame[other].astype(str).nunique()


def without_ends(names: Sequence[str]) -> list[str]:
    """Return the columns without the ends of the speed-up's interval if the speed-up is there: its cells have the interval."""
    return [name for name in names if name not in _SPEEDUP[1:] or _SPEEDUP[0] not in names]


def words(frame: pd.DataFrame, name: str, *, named: str | None = None, marks: Marks | None = None) -> list[str]:
    """Return a column as people read it. A value in doubt has a mark: `1,104 ?`.

    A speed-up has its interval: `1.21× (1.17 to 1.25) ?`.
    """
    ratios = [show(named or name, value) for value in cells(frame[name])]
    if name != _SPEEDUP[0]:
        return _marked(ratios, (marks or {}).get(name))
    if set(_SPEEDUP) <= {*map(str, frame.columns)}:  # single runs have no interval
        ratios = [with_interval(*row) for row in zip(*(cells(frame[one]) for one in _SPEEDUP), strict=True)]
    doubts = cells(frame["doubt"]) if "doubt" in frame else [None] * len(ratios)
    return _marked(ratios, [bool(doubt) for doubt in doubts])


def _marked(texts: Sequence[str], marks: Sequence[bool] | None) -> list[str]:
    """Return the texts, each with a mark if `marks` says so. A missing value has none."""
    if marks is None:
        return [*texts]
    return [f"{text} ?" if mark and text != DASH else text for text, mark in zip(texts, marks, strict=False)]


def with_interval(ratio: Value, low: Value, high: Value) -> str:
    """Return a speed-up in words, with its interval if it has one."""
    if not isinstance(ratio, float):
        return show(_SPEEDUP[0], ratio)
    ends = f" ({low:.2f} to {high:.2f})" if isinstance(low, float) and isinstance(high, float) else ""
    return f"{ratio:.2f}×{ends}"


def findings(highlights: Sequence[Highlight]) -> str:
    """Return a list with one line for each finding; notes, warnings and failures are marked."""
    return "\n".join(f"- {_MARKED[highlight.kind]}{sentence(highlight.text)}" for highlight in highlights)


_MARKED = {
    HighlightKind.BEST: "**Best:** ",
    HighlightKind.GAIN: "",
    HighlightKind.NOTE: "**Note:** ",
    HighlightKind.WARNING: "**Warning:** ",
    HighlightKind.FAILURE: "**Failed:** ",
}


def same_for_all(split: Split, *, device: Value = None, marks: Marks | None = None) -> str:
    """Return the facts and metrics that are the same in all rows, in reading order. A value in doubt in any row has a mark.

    `device` is that of all rows, if the split lacks it.

    Of calls of operators, the arguments that make the work are facts too, and `none` as their model and framework is not said.
    """
    are_calls = split.constant.get(WORK[0]) is not None or has_values(split.shown, WORK[0])
    on_cpu = split.constant.get("device", device) == Device.CPU.value
    known = {*FACTS, *METRICS, *(WORK if are_calls else ())} - {*_NOT_SHARED, *(_NOT_OF_CALLS if are_calls else ())}
    labels = {"num_gpus": "CPU processes"} if on_cpu else {}
    return ", ".join(
        f"{labels.get(name, metric(name).label.removeprefix(PREFIX))} {show(name, split.constant[name])}"
        + (" ?" if any((marks or {}).get(name, ())) else "")
        for name in for_people(known & {*split.constant})
        if split.constant[name] is not None
    )


_NOT_SHARED = ("runs", "runs_ok", "attempt", "python", "environment_lock", "monitors", "warnings", "world_size")
_NOT_OF_CALLS = ("model_name_or_path", "framework_config")


def of_calls(frame: pd.DataFrame) -> tuple[str, ...]:
    """Return the column that names a row if the rows are calls of operators: the implementation, else the operator."""
    return tuple(name for name in ("implementation", *WORK[:1]) if has_values(frame, name))[:1]


def headings(names: Sequence[str]) -> list[str]:
    """Return short headings. If two columns would have the same heading, use the names of these columns instead."""
    labels = [metric(name).label for name in names]
    return [label if labels.count(label) == 1 else name for label, name in zip(labels, names, strict=True)]


def grid(
    frame: pd.DataFrame,
    names: Sequence[str] | None = None,
    *,
    named: Mapping[str, str] | None = None,
    marks: Marks | None = None,
) -> str:
    """Return columns of a frame as a table. `named` maps a column to the metric or fact that formats it, if the names differ."""
    named = named or {}
    names = without_ends([str(name) for name in frame.columns] if names is None else names)
    titles = headings(names)
    right = [title for title, name in zip(titles, names, strict=True) if is_number(frame, name, named=named)]
    columns = [words(frame, name, named=named.get(name), marks=marks) for name in names]
    return table(titles, zip(*columns, strict=True), right=right)


def is_number(frame: pd.DataFrame, name: str, *, named: Mapping[str, str] | None = None) -> bool:
    """Return whether a column has numbers, and is thus aligned to the right."""
    is_text = metric((named or {}).get(name, name)).show is Show.TEXT
    return not is_text and str(frame[name].dtype) in ("Int64", "Float64")
