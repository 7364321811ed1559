"""The data of a page's table for the script: columns with values, and the runs, command, log ends and files of each row.

Numbers are stored twice: once for sorting, and once as text. Each distinct word is stored once, and each row has the index of
its word. Columns without information are left out, as in benchmarks.csv. If details do not fit, rows that ended well lose their
details first, and a note says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import TYPE_CHECKING, Any

from orchestrator.measure.metrics import DASH, OVER_REPEATS, Direction, Metric, Show, Where, columns, metric
from orchestrator.measure.metrics import shown as forms
from orchestrator.records import Device
from orchestrator.report.highlights.highlight import Known, known_of
from orchestrator.report.highlights.scaling import doubtful_scalings
from orchestrator.report.page.charts.chart_data import SPEEDS, Key
from orchestrator.report.page.folders import Folders, command, files, link, log_ends
from orchestrator.report.page.runs import NUMBERS, Run
from orchestrator.report.page.texts import one_line, rounded, shown
from orchestrator.report.tables.columns import DOUBTFUL, Marks, marks
from orchestrator.results.table.baseline import MEMORIES, pairs_of, shown_ranks
from orchestrator.results.table.column_choice import choose, column, for_people, has_values, needed, speeds, varying
from orchestrator.results.table.rows import Value

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

MOST_ROWS, MOST_COLUMNS = 3000, 80
MOST_RUNS_SHOWN, MOST_REMARKS = 20, 4
_CELL_WIDTH = 200
_ALWAYS = ("framework_config", "status", "tokens_per_s")
_MOST_ARGUMENTS = 4
_FILTERS = (
    *("results", "scenario", "model_name_or_path", "environment", "framework_config", "num_gpus", "num_nodes"),
    "status",
)
# If these columns come first, they stay in sight when the table scrolls sideways.
_STICKY = ("model_name_or_path", "framework_config", "num_gpus")
_NOT_HERE = ("failure_cause", "failure_hint", "warnings")
# The columns whose cells are grey if their row is in doubt.
_GREY = (*DOUBTFUL, "speedup", "scaling_efficiency")
# The columns whose cells are shaded by their value, and the least ratio that has the full shade. Without it, noise would be as
# colourful as a gain.
_SPEEDUP = "speedup"
_SHADED = (_SPEEDUP, "memory_ratio")
FULL_SHADE = 1.25


@dataclass(frozen=True, kw_only=True, slots=True)
class TableData:
    """The data for the script, the values that all rows share, and sentences about omissions.

    `calls`: rows are calls of operators, so the values that they share say what was called.
    """

    data: Mapping[str, Any]
    constant: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    calls: bool = False


@dataclass(kw_only=True, slots=True)
class _Space:
    """The space that the page still has for the details of rows. `without` is the number of rows without details."""

    bytes: int
    without: int = 0
    sets: dict[tuple[str, ...], int] = field(default_factory=dict)
    remarks: dict[tuple[str, ...], int] = field(default_factory=dict)

    def take(self, texts: Sequence[str]) -> bool:
        """Take space for these texts. Return False if the space is too small."""
        size = sum(len(text.encode("utf-8", "replace")) + 60 for text in texts)
        if size > self.bytes:
            self.without += 1
            return False
        self.bytes -= size
        return True

    def place(self, names: tuple[str, ...]) -> int:
        """Return the index of a set of file names. Even a thousand runs have only a few different sets."""
        return self.sets.setdefault(names, len(self.sets))

    def place_of_remarks(self, remarks: tuple[str, ...]) -> int:
        """Return the index of a run's remarks, since many runs have the same."""
        return self.remarks.setdefault(remarks, len(self.remarks))


def of(table: ResultsTable, runs: Mapping[Key, Sequence[Run]], folders: Folders, *, detail_bytes: int) -> TableData:
    """Return the table of the first MOST_ROWS experiments, with as many details as fit into `detail_bytes`."""
    frame, visible, known = table.experiments, _visible(table), known_of(table)
    keep, drop = choose()
    split = varying(frame, keep=keep, drop=(*drop, *_NOT_HERE))
    filled = [name for name in for_people(split.shown.columns) if frame[name].notna().any()]
    kept = {*sorted(filled, key=lambda name: name not in visible)[:MOST_COLUMNS]}
    names = [name for name in filled if name in kept]
    frame = frame.head(MOST_ROWS)
    space, numbers = _Space(bytes=detail_bytes), _numbers_of_runs(runs)
    details = _details(frame, runs, folders, space, numbers)
    doubted, withheld = _doubts(known, len(frame)), _withheld(known)
    unclaimed = {*withheld, *(row for row, doubt in enumerate(doubted) if doubt)}
    data = {
        "rows": len(frame),
        "columns": [_column(frame, name, unclaimed) | {"hidden": name not in visible} for name in names],
        "doubts": doubted,
        "withheld": withheld,
        "unscaled": dict.fromkeys(sorted(doubtful_scalings(known)), "the smallest count or this one is in doubt"),
        "filters": [name for name in _FILTERS if name in names],
        "sticky": _STICKY,
        "ids": [str(value) for value in column(frame, "id")],
        "runColumns": ["run", "status", *(metric(name).label for name in numbers)],
        "details": details,
        "remarks": [list(sentences) for sentences in space.remarks],
        "fileSets": [list(names) for names in space.sets],
        "linked": folders.linked,
    }
    return TableData(
        data=data,
        constant=tuple(_constant(frame, split.constant, marks(table))),
        notes=tuple(_notes(len(table.experiments), len(frame), len(filled) - len(names), space.without, folders)),
        calls=has_values(frame, "operator"),
    )


def _constant(frame: pd.DataFrame, values: Mapping[str, Value], in_doubt: Marks) -> Iterator[tuple[str, str]]:
    """Yield the label and the text of each value that all rows share."""
    for name in for_people(name for name, value in values.items() if value is not None):
        yield _label(frame, name), shown(name, values[name]) + (" (in doubt)" if any(in_doubt.get(name, ())) else "")


def _doubts(known: Known, height: int) -> list[str]:
    """Return why each row's speed is in doubt; an empty text if it is not. Neighbours by themselves are not a doubt."""
    return [
        ", ".join(doubt.kind.value for doubt in known.doubts[row]) if known.in_doubt(row) else ""
        for row in range(height)
    ]


def _withheld(known: Known) -> dict[int, str]:
    """Return for each row without a claim about its speed-up the reason, which may be a doubt about the other experiment."""
    pairs = pairs_of(known.table)
    ranks = shown_ranks(pairs)
    of_base = {True: "its baseline is in doubt", False: "the comparison is in doubt"}
    return {
        pair.new: of_base[known.in_doubt(pair.base)]
        for pair in pairs
        if pair.in_doubt and pair.match.rank == ranks[pair.new]
    }


def _notes(rows: int, height: int, left_out: int, without: int, folders: Folders) -> Iterator[str]:
    if height < rows:
        yield f"The page has room for {height:,} of {rows:,} rows; benchmarks.csv has all rows."
    if left_out:
        yield f"{left_out} more columns are in benchmarks.csv."
    if without:
        yield f"The page has no room for the commands and logs of {without:,} rows; their files are linked."
    if not folders.linked:
        yield "The page covers several results folders, so files are named, not linked."


def _column(frame: pd.DataFrame, name: str, unclaimed: Collection[int]) -> dict[str, Any]:
    known, values = metric(name), column(frame, name)
    head = {"name": name, "label": _label(frame, name), "title": one_line(_title(known)), "speed": name in _GREY}
    if str(frame[name].dtype) in ("Int64", "Float64"):
        numbers = [value if isinstance(value, (int, float)) else None for value in values]
        form = known.show if known.show is not Show.TEXT else Show.NUMBER
        texts = [DASH if number is None else forms.text(number, form) for number in numbers]
        if name in _SHADED:
            head["shades"] = _shades(numbers, known.direction, unclaimed if name == _SPEEDUP else ())
        if (low := f"{name}_low") in OVER_REPEATS and low in frame:
            head["after"] = [*map(_interval, *(column(frame, f"{name}{end}") for end in ("", "_low", "_high")))]
        return head | {"raw": [_number(number) for number in numbers], "shown": texts}
    return head | in_words(None if value is None else shown_word(name, value) for value in values)


def _label(frame: pd.DataFrame, name: str) -> str:
    on_cpu = name == "num_gpus" and {*column(frame, "device")} == {Device.CPU.value}
    return "CPU processes" if on_cpu else one_line(metric(name).label)


def _shades(ratios: Sequence[float | None], better: Direction, unclaimed: Collection[int]) -> list[float | None]:
    """Return the shade of each ratio, from -1 (worst) to 1 (best); None for a missing ratio and for a row without a claim."""
    sign = 1 if better is Direction.HIGHER else -1
    logs = {row: sign * log2(ratio) for row, ratio in enumerate(ratios) if ratio and ratio > 0 and row not in unclaimed}
    reach = max(log2(FULL_SHADE), *map(abs, logs.values())) if logs else 1.0
    return [rounded(logs[row] / reach, digits=2) if row in logs else None for row in range(len(ratios))]


def in_words(cells: Iterable[str | None]) -> dict[str, Any]:
    """Return a column of words for the script. It has each distinct word once, and the index of the word in each row."""
    places: dict[str, int] = {}
    at = [None if cell is None else places.setdefault(cell, len(places)) for cell in cells]
    return {"words": list(places), "at": at}


def _visible(table: ResultsTable) -> set[str]:
    """Return the columns that the page shows first: the important ones, and arguments that distinguish rows.

    Constant columns and copies of other columns are left out.
    """
    frame = table.experiments
    set_by_frameworks = {name for names in table.framework_arguments.values() for name in names}
    own = [name for name in for_people(table.arguments - set_by_frameworks) if _distinguishes(frame, name)]
    visible = {*columns(Where.PAGE), *own[:_MOST_ARGUMENTS]}
    if column(frame, "real_tokens_per_s") == column(frame, "tokens_per_s"):  # no row has padding
        visible.discard("real_tokens_per_s")
    if "tokens_per_s" in frame:
        visible.discard("train_tokens_per_second")
    visible.update(speeds(frame))
    return {name for name in visible if name in _ALWAYS or len(frame) == 1 or _varies(frame, name)}


def _distinguishes(frame: pd.DataFrame, name: str) -> bool:
    """Return whether an argument says more than which trainer a row has. One trainer may take defaults that another does not."""
    if not _varies(frame, name) or frame[name].nunique() > 1 or "trainer" not in frame:
        return _varies(frame, name)
    return bool((frame.groupby("trainer", dropna=False)[name].nunique(dropna=False) > 1).any())


def _varies(frame: pd.DataFrame, name: str) -> bool:
    return name in frame and frame[name].nunique(dropna=False) > 1


def shown_word(name: str, value: object) -> str:
    return one_line(shown(name, value), width=_CELL_WIDTH)


def _number(value: float | None) -> float | int | None:
    """Return a number to sort by. It is exact if a browser can represent it as an integer. Else it has nine digits."""
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return rounded(value, digits=9)


def _title(known: Metric) -> str:
    parts = (known.description, f"Unit: {known.unit}." if known.unit else "", known.name)
    return " ".join(part for part in parts if part)


def _interval(value: object, low: object, high: object) -> str:
    """Return the ends of an interval as shares of the value: `±5.4%`, or `-28.1% +39.1%`. It is empty if there is no interval."""
    if not (isinstance(value, float) and isinstance(low, float) and isinstance(high, float) and value > 0):
        return ""
    below, above = f"{1 - low / value:.1%}", f"{high / value - 1:.1%}"
    return f"±{above}" if below == above else f"-{below} +{above}"


def _numbers_of_runs(runs: Mapping[Key, Sequence[Run]]) -> list[str]:
    """Return the columns of the runs' numbers: a speed of each run, the first memory that any run has, and the times."""
    numbers = [run.numbers for some in runs.values() for run in some]
    measured = {name for of_run in numbers for name in of_run}
    memories = [name for name in MEMORIES if name in measured][:1]
    times = [name for name in NUMBERS if name in measured and name not in (*SPEEDS, *MEMORIES)]
    return [*needed(SPEEDS, numbers), *times[:-1], *memories, *times[-1:]]


def _details(
    frame: pd.DataFrame,
    runs: Mapping[Key, Sequence[Run]],
    folders: Folders,
    space: _Space,
    numbers: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the details of each row; rows that did not end well get space first."""
    names, ids, status = (column(frame, name) for name in ("results", "id", "status"))
    details: list[dict[str, Any]] = [{} for _ in ids]
    for row in sorted(range(len(ids)), key=lambda row: status[row] == "ok"):
        key = (None if names[row] is None else str(names[row]), str(ids[row]))
        details[row] = _detail(runs.get(key, ()), folders, space, numbers)
    return details


def _detail(runs: Sequence[Run], folders: Folders, space: _Space, numbers: Sequence[str]) -> dict[str, Any]:
    detail: dict[str, Any] = {"runs": [_run(run, folders, space, numbers) for run in runs[:MOST_RUNS_SHOWN]]}
    if len(runs) > MOST_RUNS_SHOWN:
        detail["more"] = len(runs) - MOST_RUNS_SHOWN
    chosen = next((run for run in reversed(runs) if run.status != "ok"), runs[-1] if runs else None)
    folder = chosen.folder(folders) if chosen else None
    if chosen is None or folder is None or space.bytes < 1000:
        space.without += chosen is not None
        return detail
    script, ends = command(folder, folders.environ), list(log_ends(folder, folders.environ))
    if space.take([script or "", *(text for _, text in ends)]):
        detail |= {"of": chosen.name, "command": script, "logs": [{"name": name, "end": text} for name, text in ends]}
    return detail


def _run(run: Run, folders: Folders, space: _Space, numbers: Sequence[str]) -> dict[str, Any]:
    folder = run.folder(folders)
    names = files(folder) if folder else ()
    data: dict[str, Any] = {
        "cells": [run.name, one_line(run.status), *(shown(name, run.numbers.get(name)) for name in numbers)],
        "remarks": space.place_of_remarks(tuple(map(one_line, run.remarks[:MOST_REMARKS]))),
    }
    return data | ({"files": space.place(names), "folder": link(run.key[1], run.name)} if names else {})
