"""Pivot tables and groups: `--pivot ROWS,COLUMNS[:METRIC]` and `--group-by COLUMNS`, as pandas users expect them.

These functions make a frame with notes from a table; `report/tables/views.py` writes the frame. A cell is the mean over its
experiments that have a value. For metrics that are compared by ratios (see docs/metrics.md), a cell is the geometric mean. A
note says if a mean is over several experiments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SelectionError
from orchestrator.measure.metrics import METRICS, Show, metric, show
from orchestrator.results.table.aggregate import mean
from orchestrator.results.table.column_choice import DETAILS, cells, matches, no_such, number
from orchestrator.results.table.rows import Value, columns_named

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

Key = tuple[Value, ...]
ALSO, BY, TIMES = "+", ":", "×"
HEADLINES = ("tokens_per_s", "train_tokens_per_second")
# The mean of these columns has no meaning: they are ends of intervals, or facts about repeats.
NOT_AVERAGED = ("*_low", "*_high", "*_low_s", "*_high_s", "tokens_per_s_spread", "tokens_per_s_runs")


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A frame with its title and notes.

    `named` maps a column to the metric of its values, if the column's name is not the metric's name.
    """

    frame: pd.DataFrame
    title: str
    named: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def means(self, column: str) -> str:
        return self.named.get(column, column)


def pivot(table: ResultsTable, asked: str) -> View:
    """Return the means of a metric, with a row for each value of ROWS and a column for each value of COLUMNS.

    Several columns are joined by `+`. Values are sorted as in pandas, missing values last. The default METRIC is tokens_per_s,
    or the Trainer's own speed. Raise SelectionError if `asked` is not a pivot, or names an unknown column.
    """
    rows, columns, name = _parsed(table, asked)
    values = _numbers(table.experiments, name, asked)
    by_cell: dict[tuple[Key, Key], list[float]] = defaultdict(list)
    row_keys, column_keys = _keys(table.experiments, rows), _keys(table.experiments, columns)
    for row, column, value in zip(row_keys, column_keys, values, strict=True):
        if value is not None:
            by_cell[row, column].append(value)
    order, across = _in_order(row_keys), _in_order(column_keys)
    headings = _headings(columns, across, taken=rows)
    cells_of = {
        heading: [_mean(name, by_cell.get((row, column), ())) for row in order]
        for heading, column in zip(headings, across, strict=True)
    }
    most = max(map(len, by_cell.values()), default=0)
    kind = "geometric mean" if metric(name).by_ratio else "mean"
    notes = (
        f"a value is the {kind} of up to {most} experiments, which differ in other columns than those of the pivot",
    )
    return View(
        frame=_framed(_key_columns(rows, order) | cells_of),
        title=f"{name} by {ALSO.join(rows)} and {ALSO.join(columns)}",
        named=dict.fromkeys(headings, name),
        notes=notes if most > 1 else (),
    )


def group_by(table: ResultsTable, asked: str) -> View:
    """Return a row for each combination of values: the number of experiments, the number that ended ok, and all means.

    Raise SelectionError for an unknown column.
    """
    frame = table.experiments
    names = _columns_of(frame, asked.split(","), f"--group-by {asked}")
    keys = _keys(frame, names)
    order, sizes = _in_order(keys), Counter(keys)
    ok = Counter(key for key, status in zip(keys, cells(frame["status"]), strict=True) if status == "ok")
    columns = _key_columns(names, order)
    columns["experiments"] = [sizes[key] for key in order]
    columns["experiments_ok"] = [ok[key] for key in order]
    for name in _averaged(frame, names):
        grouped: dict[Key, list[float]] = defaultdict(list)
        for key, value in zip(keys, cells(frame[name]), strict=True):
            if value is not None:
                grouped[key].append(float(value))
        columns[name] = [_mean(name, grouped[key]) for key in order]
    return View(frame=_framed(columns), title=f"means by {ALSO.join(names)}")


def shown_to_people(view: View) -> View:
    """Return the view without the columns that only files contain, because no one reads a table of eighty columns."""
    names = [str(name) for name in view.frame.columns]
    return replace(
        view, frame=view.frame[[n for n in names if view.named or n in HEADLINES or not matches(n, DETAILS)]]
    )


def _key_columns(names: Sequence[str], keys: Sequence[Key]) -> dict[str, list[Value]]:
    return {name: [key[place] for key in keys] for place, name in enumerate(names)}


def _parsed(table: ResultsTable, asked: str) -> tuple[list[str], list[str], str]:
    option = f"--pivot {asked}"
    axes, colon, name = asked.replace(TIMES, ",").partition(BY)
    parts = axes.split(",")
    if len(parts) != 2 or (colon and not name):
        raise SelectionError(
            f"{option}: ROWS,COLUMNS or ROWS,COLUMNS:METRIC is expected, such as "
            f"model_name_or_path,framework_config:tokens_per_s; join several rows or columns by {ALSO!r}"
        )
    rows, columns = (_columns_of(table.experiments, part.split(ALSO), option) for part in parts)
    twice = [name for name in rows if name in columns]
    if twice:
        raise SelectionError(f"{option}: {twice[0]!r} is named as a row and as a column; name it once")
    return rows, columns, name or _headline(table.experiments, option)


def _headline(frame: pd.DataFrame, option: str) -> str:
    for name in HEADLINES:
        if name in frame and frame[name].notna().any():
            return name
    raise SelectionError(f"{option}: no experiment has a speed here; write {BY!r} and a metric after the columns")


def _columns_of(frame: pd.DataFrame, words: Iterable[str], option: str) -> list[str]:
    names = [word.strip() for word in words]
    known = [str(name) for name in frame.columns]
    columns = [columns_named(name, known, lambda column: len({*cells(frame[column])}) > 1) for name in names]
    for name, found in zip(names, columns, strict=True):
        if not found:
            raise SelectionError(f"{option}: {no_such(name, known)}")
    return list(dict.fromkeys(found[0] for found in columns))


def _numbers(frame: pd.DataFrame, name: str, asked: str) -> list[float | None]:
    if name not in frame:
        raise SelectionError(f"--pivot {asked}: {no_such(name, map(str, frame.columns))}")
    values = cells(frame[name])
    if any(value is not None and number(value) is None for value in values):
        raise SelectionError(f"--pivot {asked}: {name!r} holds words, which have no mean; name a metric")
    return [None if value is None else float(value) for value in values]


def _averaged(frame: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the numeric metrics that have a value, in the table's order."""
    names = [str(name) for name in frame.columns if name in METRICS and name not in keys]
    return [
        name
        for name in names
        if metric(name).show is not Show.TEXT
        and not matches(name, NOT_AVERAGED)
        and str(frame[name].dtype) in ("Int64", "Float64")
        and frame[name].notna().any()
    ]


def _keys(frame: pd.DataFrame, names: Sequence[str]) -> list[Key]:
    return list(zip(*(cells(frame[name]) for name in names), strict=True))


def _in_order(keys: Iterable[Key]) -> list[Key]:
    return sorted(set(keys), key=lambda key: [_rank(value) for value in key])


def _rank(value: Value) -> tuple[int, float, str]:
    """Return a sort key: numbers by size, then words by letters, then missing values."""
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, value)


def _headings(names: Sequence[str], keys: Sequence[Key], *, taken: Sequence[str]) -> list[str]:
    """Return the headings of the columns: their values. If two headings would be the same, put the column's name before a value."""
    headings: list[str] = []
    for key in keys:
        text = " / ".join(show(name, value) for name, value in zip(names, key, strict=True))
        while text in (*taken, *headings):
            text = f"{ALSO.join(names)} {text}"
        headings.append(text)
    return headings


def _mean(name: str, values: Sequence[float]) -> float | None:
    return mean(values, by_ratio=metric(name).by_ratio) if values else None


def _framed(columns: dict[str, list[Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: pd.Series(values, dtype=_dtype(values)) for name, values in columns.items()})


def _dtype(values: Sequence[Value]) -> Any:
    kinds = {type(value) for value in values if value is not None} or {float}
    known = {bool: "boolean", int: "Int64", float: "Float64"}
    return known.get(kinds.pop(), "string") if len(kinds) == 1 else "string"
