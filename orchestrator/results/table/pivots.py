"""A table seen from another side: `--pivot ROWS,COLUMNS[:METRIC]` and `--group-by COLUMNS`, as pandas users expect them.

Functions from a table to a frame with its notes; `report.views` writes them down. A cell is the mean over the experiments that fall
into it and have the number: of logarithms for what is compared by ratios (docs/metrics.md says of which). What more than one
experiment went into is said, and how many.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SelectionError
from orchestrator.measure.metrics import METRICS, Show, metric, show
from orchestrator.results.table.aggregate import mean
from orchestrator.results.table.columns import DETAILS, cells, matches, no_such
from orchestrator.results.table.rows import Value

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

ALSO, BY, TIMES = "+", ":", "×"
HEADLINES = ("tokens_per_s", "train_tokens_per_second")
NOT_AVERAGED = ("*_low", "*_high", "*_low_s", "*_high_s", "tokens_per_s_spread", "tokens_per_s_runs")
"""Ends of intervals, and what is said of repeats: a mean of them would mean nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A frame and how to read it: `named` says of which metric or fact the values of a column are, where its name does not."""

    frame: pd.DataFrame
    title: str
    named: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def means(self, column: str) -> str:
        return self.named.get(column, column)


def pivot(table: ResultsTable, asked: str) -> View:
    """Means of a metric, a row for each value of ROWS and a column for each of COLUMNS; several are joined by `+`.

    Sorted as pandas does, what is missing last. Without a METRIC it is tokens_per_s (the Trainer's own where there is none).
    Raises SelectionError for what is no pivot, and for a column that is not there.
    """
    rows, columns, name = _parsed(table, asked)
    values = _numbers(table.experiments, name, asked)
    found: dict[tuple[tuple[Value, ...], tuple[Value, ...]], list[float]] = defaultdict(list)
    row_keys, column_keys = _keys(table.experiments, rows), _keys(table.experiments, columns)
    for row, column, value in zip(row_keys, column_keys, values, strict=True):
        if value is not None:
            found[row, column].append(value)
    order, across = _in_order(row_keys), _in_order(column_keys)
    headings = _headings(columns, across, taken=rows)
    frame = _framed(
        {name: [key[place] for key in order] for place, name in enumerate(rows)}
        | {
            heading: [_mean(name, found.get((row, column), ())) for row in order]
            for heading, column in zip(headings, across, strict=True)
        }
    )
    most = max(map(len, found.values()), default=0)
    kind = "geometric mean" if metric(name).by_ratio else "mean"
    notes = (f"a value is the {kind} of up to {most} experiments: they differ in what is neither row nor column",)
    return View(
        frame=frame,
        title=f"{name} by {_joined(rows)} and {_joined(columns)}",
        named=dict.fromkeys(headings, name),
        notes=notes if most > 1 else (),
    )


def group_by(table: ResultsTable, asked: str) -> View:
    """A row for each combination of the columns named: how many experiments, how many of them ok, the mean of every number.

    Raises SelectionError for a column that is not there.
    """
    frame = table.experiments
    names = _columns_of(frame, asked.split(","), f"--group-by {asked}")
    keys = _keys(frame, names)
    order, sizes = _in_order(keys), Counter(keys)
    ok = Counter(key for key, status in zip(keys, _column(frame, "status"), strict=True) if status == "ok")
    columns: dict[str, list[Value]] = {name: [key[place] for key in order] for place, name in enumerate(names)}
    columns["experiments"] = [sizes[key] for key in order]
    columns["experiments_ok"] = [ok[key] for key in order]
    for name in _averaged(frame, names):
        grouped: dict[tuple[Value, ...], list[float]] = defaultdict(list)
        for key, value in zip(keys, _column(frame, name), strict=True):
            if value is not None:
                grouped[key].append(float(value))
        columns[name] = [_mean(name, grouped[key]) for key in order]
    return View(frame=_framed(columns), title=f"means by {_joined(names)}")


def shown_to_people(view: View) -> View:
    """Without what only files hold: a table of eighty columns is read by nobody."""
    names = [str(name) for name in view.frame.columns]
    kept = [name for name in names if view.named or name in HEADLINES or not matches(name, DETAILS)]
    return View(frame=view.frame[kept], title=view.title, named=view.named, notes=view.notes)


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
    raise SelectionError(f"{option}: no experiment has a speed here; name a metric behind {BY!r}")


def _columns_of(frame: pd.DataFrame, words: Iterable[str], option: str) -> list[str]:
    names = [word.strip() for word in words]
    known = [str(name) for name in frame.columns]
    for name in names:
        if name not in known:
            raise SelectionError(f"{option}: {no_such(name, known)}")
    return list(dict.fromkeys(names))


def _numbers(frame: pd.DataFrame, name: str, asked: str) -> list[float | None]:
    _columns_of(frame, [name], f"--pivot {asked}")
    values = _column(frame, name)
    if not all(value is None or _is_number(value) for value in values):
        raise SelectionError(f"--pivot {asked}: {name!r} holds words, of which there is no mean; name a metric")
    return [None if value is None else float(value) for value in values]


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _column(frame: pd.DataFrame, name: str) -> list[Any]:
    return cells(frame[name])


def _averaged(frame: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Metrics that are numbers and are there; in the table's order."""
    names = [str(name) for name in frame.columns if name in METRICS and name not in keys]
    return [
        name
        for name in names
        if metric(name).show is not Show.TEXT
        and not matches(name, NOT_AVERAGED)
        and str(frame[name].dtype) in ("Int64", "Float64")
        and frame[name].notna().any()
    ]


def _keys(frame: pd.DataFrame, names: Sequence[str]) -> list[tuple[Value, ...]]:
    return list(zip(*(_column(frame, name) for name in names), strict=True))


def _in_order(keys: Iterable[tuple[Value, ...]]) -> list[tuple[Value, ...]]:
    return sorted(set(keys), key=lambda key: [_rank(value) for value in key])


def _rank(value: Value) -> tuple[int, float, str]:
    """Numbers by size, then words by letters, then what is missing."""
    if value is None:
        return 2, 0.0, ""
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, value)


def _headings(names: Sequence[str], keys: Sequence[tuple[Value, ...]], *, taken: Sequence[str]) -> list[str]:
    """What the columns are called: their values; with the column's name before it where a value has the name of another column."""
    found: list[str] = []
    for key in keys:
        text = " / ".join(show(name, value) for name, value in zip(names, key, strict=True))
        while text in (*taken, *found):
            text = f"{_joined(names)} {text}"
        found.append(text)
    return found


def _joined(names: Sequence[str]) -> str:
    return ALSO.join(names)


def _mean(name: str, values: Sequence[float]) -> float | None:
    return mean(values, by_ratio=metric(name).by_ratio) if values else None


def _framed(columns: dict[str, list[Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: pd.Series(values, dtype=_dtype(values)) for name, values in columns.items()})


def _dtype(values: Sequence[Value]) -> Any:
    kinds = {type(value) for value in values if value is not None}
    known = {bool: "boolean", int: "Int64", float: "Float64"}
    return known.get(next(iter(kinds)), "string") if len(kinds) == 1 else "Float64" if not kinds else "string"
