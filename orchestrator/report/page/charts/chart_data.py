"""The experiments as the charts need them: the panel, the name of the row, and the numbers.

A panel contains what can be compared: one scenario and model (and folder, device, data, trainer, if these vary). In it a
row is named by the framework configuration, and by the arguments that distinguish experiments that are otherwise alike.
Pure; reads the frame of experiments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval, mean_of_logs
from orchestrator.measure.metrics import METRICS, metric
from orchestrator.records import Device
from orchestrator.report.caveats import doubts
from orchestrator.report.page.texts import one_line
from orchestrator.results.table.baseline import ok_runs, pairs_of
from orchestrator.results.table.columns import BOOKKEEPING, FILE_NAMES, column, for_people, number
from orchestrator.results.table.rows import ARGUMENT_FACTS, Value

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

_PANEL = ("results", "scenario", "model_name_or_path", "device", "data", "trainer", "python")
_NO_ARGUMENTS = (*BOOKKEEPING, *FILE_NAMES)
_MOST_ARGUMENTS = 3
_DIGEST = 6
_NAME_WIDTH, _PANEL_WIDTH = 120, 90
ALL = "all"

SPEEDS = ("real_tokens_per_s", "tokens_per_s", "train_tokens_per_second", "samples_per_s", "train_samples_per_second")
ENERGY = "energy_per_real_token_j"


Key = tuple[str | None, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One experiment, known by its id and the name of its results folder (None if there is one folder).

    `rest` is its name without the framework. `numbers` are its values by column, and `intervals` are over its runs. `base` is the
    key of the experiment that differs only by having the baseline framework; `speedup` is the ratio to its speed. `doubts` speak
    against its speed.
    """

    results: str | None
    id: str
    panel: str
    framework: str
    rest: str
    gpus: int
    on_cpu: bool
    status: str
    kind: str | None
    doubts: tuple[str, ...]
    numbers: Mapping[str, float]
    intervals: Mapping[str, Interval]
    base: Key | None = None
    speedup: float | None = None

    @property
    def key(self) -> Key:
        return self.results, self.id

    @property
    def name(self) -> str:
        return f"{self.framework} · {self.rest}" if self.rest else self.framework

    @property
    def full_name(self) -> str:
        """Return the name outside its panel."""
        return " · ".join((*((self.panel,) if self.panel != ALL else ()), self.name, self.where))

    @property
    def where(self) -> str:
        """Return the number of GPUs or processes: `2 GPUs`."""
        return counted(self.gpus, "process", "processes") if self.on_cpu else counted(self.gpus, "GPU")

    @property
    def ended_badly(self) -> bool:
        return self.status not in ("ok", "skipped", "pending", "running", "silent")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Columns:
    """The columns of a frame as lists; a missing column is a list of None."""

    frame: pd.DataFrame
    found: dict[str, list[Value]]

    def __getitem__(self, name: str) -> list[Value]:
        if name not in self.found:
            self.found[name] = column(self.frame, name)
        return self.found[name]


def read(table: ResultsTable, *, most: int, baseline: str | None = None) -> list[Cell]:
    """Return the first `most` experiments of a table. Raise SelectionError for a baseline that no experiment has."""
    columns = _Columns(frame=table.experiments.iloc[:most], found={})
    frameworks, counts = map(_word, columns["framework_config"]), map(_count, columns["num_gpus"])
    alike = list(zip(_panels(columns), frameworks, counts, strict=True))
    rests, doubted = _rests(columns, alike, table), doubts(table)
    numbers = {name: columns[name] for name in METRICS if name in columns.frame.columns}
    intervals = _intervals(table, most)
    found = [
        Cell(
            results=_word(columns["results"][at]) or None,
            id=str(columns["id"][at]),
            panel=panel,
            framework=framework,
            rest=rests[at],
            gpus=gpus,
            on_cpu=columns["device"][at] == Device.CPU.value,
            status=_word(columns["status"][at]),
            kind=_word(columns["failure_kind"][at]) or None,
            doubts=tuple(doubt.kind.value for doubt in doubted[at]),
            numbers={name: v for name, of in numbers.items() if (v := number(of[at])) is not None},
            intervals=intervals[at],
        )
        for at, (panel, framework, gpus) in enumerate(alike)
    ]
    return _in_fewer_panels(_told_apart(_beside(found, table, baseline)))


def _beside(found: Sequence[Cell], table: ResultsTable, baseline: str | None) -> list[Cell]:
    """Return each cell with its baseline, if both are there."""
    pairs = {one.new: one for one in pairs_of(table, baseline=baseline) if max(one.new, one.base) < len(found)}
    return [
        replace(cell, base=found[one.base].key, speedup=one.speed.ratio.value if one.speed else None)
        if (one := pairs.get(at))
        else cell
        for at, cell in enumerate(found)
    ]


def _intervals(table: ResultsTable, most: int) -> list[dict[str, Interval]]:
    """Return for each experiment the intervals over its ok runs, for metrics with at least two values."""
    names = [name for name in (*SPEEDS, ENERGY) if name in table.runs.columns]
    summaries = (
        {name: mean_of_logs(values).interval for name, values in of.items() if len(values) > 1}
        for of in ok_runs(table, names)[:most]
    )
    return [{name: interval for name, interval in one.items() if interval is not None} for one in summaries]


def panel_word(frame: pd.DataFrame) -> str:
    """Return the label of the choice of a panel."""
    return " · ".join(metric(name).label for name in _varied(_Columns(frame=frame, found={}))).capitalize()


def gpu_counts(cells: Sequence[Cell]) -> list[int]:
    return sorted({cell.gpus for cell in cells})


def by_panel(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells of each panel, in their order."""
    groups: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[cell.panel].append(cell)
    return dict(groups)


def of_gpus(cells: Sequence[Cell], count: int) -> list[Cell]:
    return [cell for cell in cells if cell.gpus == count]


def first_measured(cells: Sequence[Cell], names: Sequence[str]) -> str | None:
    """Return the first of several metrics that any cell has."""
    return next((name for name in names if any(name in cell.numbers for cell in cells)), None)


def noun(cells: Sequence[Cell]) -> str:
    """Return the noun for the counts in `gpus`."""
    return "CPU processes" if cells and all(cell.on_cpu for cell in cells) else "GPUs"


def _varied(columns: _Columns) -> list[str]:
    return [name for name in _PANEL if len(set(columns[name])) > 1] or ["model_name_or_path"]


def _panels(columns: _Columns) -> list[str]:
    """Return each row's panel: the values that differ between rows; the model if none does."""
    parts = [[_word(value) for value in columns[name]] for name in _varied(columns)]
    return [one_line(" · ".join(filter(None, row)), width=_PANEL_WIDTH) for row in zip(*parts, strict=True)]


def _rests(columns: _Columns, alike: Sequence[tuple[str, str, int]], table: ResultsTable) -> list[str]:
    """Return for each row the arguments that distinguish it in its panel, framework and GPU count."""
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for at, key in enumerate(alike):
        groups[key].append(at)
    arguments = for_people({*ARGUMENT_FACTS, *table.arguments} - {*_NO_ARGUMENTS})
    names = [name for name in arguments if len(set(columns[name])) > 1]
    telling: dict[str, list[str]] = defaultdict(list)
    for key, rows in groups.items():
        if len(rows) > 1:
            known = telling[key[0]]
            known += [name for name in names if name not in known and len({columns[name][at] for at in rows}) > 1]
    own = {framework: table.framework_arguments.get(framework, frozenset()) for _, framework, _ in groups}
    return [
        _rest(columns, at, [name for name in telling[panel] if name not in own[framework]][:_MOST_ARGUMENTS])
        for at, (panel, framework, _) in enumerate(alike)
    ]


def _rest(columns: _Columns, at: int, names: Sequence[str]) -> str:
    said = [f"{metric(name).label} {_word(columns[name][at]) or '-'}" for name in names]
    return one_line(" · ".join(said), width=_NAME_WIDTH)


def _told_apart(found: Sequence[Cell]) -> list[Cell]:
    """Add the end of the id to equal names, since two rows of one name would be one row in a chart."""
    counts = Counter((cell.panel, cell.name, cell.gpus) for cell in found)
    unclear = {(panel, name) for (panel, name, _), count in counts.items() if count > 1}
    return [
        replace(cell, rest=" · ".join(filter(None, (cell.rest, cell.id[-_DIGEST:]))))
        if (cell.panel, cell.name) in unclear
        else cell
        for cell in found
    ]


def _in_fewer_panels(found: Sequence[Cell]) -> list[Cell]:
    """Put all cells into one panel if there would be hardly more rows than panels."""
    panels = {cell.panel for cell in found}
    names = {(cell.panel, cell.name) for cell in found}
    if len(panels) < 2 or len(names) >= 2 * len(panels):
        return list(found)
    return [replace(cell, panel=ALL, rest=" · ".join(filter(None, (cell.panel, cell.rest)))) for cell in found]


def _word(value: Value) -> str:
    return "" if value is None else one_line(value, width=_NAME_WIDTH)


def _count(value: Value) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
