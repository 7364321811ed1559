"""The experiments in the form that charts need: the panel, the name of the row, and the numbers. Pure.

A panel contains comparable experiments. They have the same values in the columns of _PANEL. The name of a row in a panel is the
framework configuration, with the arguments that distinguish otherwise equal experiments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval, Ratio, mean_of_logs
from orchestrator.measure.metrics import METRICS, metric
from orchestrator.records import Device
from orchestrator.report.highlights.scaling import scalings
from orchestrator.report.page.texts import one_line
from orchestrator.results.table.baseline import ENERGY, TIMES, ok_runs, pairs_of, shown_ranks
from orchestrator.results.table.column_choice import BOOKKEEPING, FILE_NAMES, Numbers, column, for_people, number
from orchestrator.results.table.doubts import doubts, forbid_claim
from orchestrator.results.table.references import FRAMEWORK
from orchestrator.results.table.rows import ARGUMENT_FACTS, NO_FRAMEWORK, PREFIX, Value

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.results.table.load import ResultsTable

_PANEL = ("results", "scenario", "model_name_or_path", "device", "data", "trainer", "python", "environment")
_NO_ARGUMENTS = (*BOOKKEEPING, *FILE_NAMES)
_MOST_ARGUMENTS = 3
_DIGEST = 6
_NAME_WIDTH, _PANEL_WIDTH = 120, 90
_BATCH = "per_device_train_batch_size"
# Arguments of operators whose values need no name.
_SELF_EVIDENT = ("operator", "implementation", "shape", "equation", "direction")
ALL = "all"

SPEEDS = ("real_tokens_per_s", "tokens_per_s", "train_tokens_per_second", "samples_per_s", "train_samples_per_second")
STEP_RATE = "steps_per_s"

Key = tuple[str | None, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One experiment. Its key is its id and the name of its results folder (None if there is only one folder).

    `rest` is its name without the framework. `numbers` maps a column to the value. `intervals` are intervals over its runs.
    `of_runs` maps a column to the values of its runs, and `of_cold_run` to the value of a cold first run that was left out.
    `doubts` are doubts about its speed; `in_doubt`: they forbid a claim about it. `base` is the key of the experiment with which it
    is compared. `speedup` is its speed divided by the speed of `base`, with its interval, if it may be claimed (`claimed`). If
    these two experiments differ in an argument, and not in the framework, `setting` is this argument with its value, such as
    `optim sgd`. `batch` is its batch per device in the words of its name, if batches differ. `scaling` is its speed per GPU divided
    by that at the smallest GPU count, if it may be claimed. `place` is the place of its choice among the colours of the page.
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
    of_runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    of_cold_run: Mapping[str, Sequence[float]] = field(default_factory=dict)
    in_doubt: bool = False
    setting: str = ""
    base: Key | None = None
    claimed: bool = True
    speedup: float | None = None
    speedup_interval: Interval | None = None
    batch: str = ""
    scaling: Ratio | None = None
    place: int = 0

    @property
    def key(self) -> Key:
        return self.results, self.id

    @property
    def choice(self) -> str:
        """Return the value in which compared experiments differ."""
        return self.setting or self.framework

    @property
    def name(self) -> str:
        framework = "" if self.framework == NO_FRAMEWORK and self.rest else self.framework
        return " · ".join(filter(None, (framework, self.rest)))

    @property
    def full_name(self) -> str:
        """Return the name with the panel and the number of GPUs."""
        return " · ".join((*((self.panel,) if self.panel != ALL else ()), self.name, self.where))

    @property
    def where(self) -> str:
        """Return the number of GPUs or processes: `2 GPUs`."""
        return counted(self.gpus, "process", "processes") if self.on_cpu else counted(self.gpus, "GPU")

    @property
    def ended_badly(self) -> bool:
        return self.status not in ("ok", "skipped", "pending", "running", "silent")


# A function from the name of a column to its values, None for each missing value.
Columns = Callable[[str], list[Value]]


def _columns(frame: pd.DataFrame) -> Columns:
    return cache(partial(column, frame))


def read(table: ResultsTable, *, most: int) -> list[Cell]:
    """Return the first `most` experiments of a table."""
    frame = table.experiments.iloc[:most]
    columns = _columns(frame)
    frameworks, counts = map(_word, columns("framework_config")), map(_count, columns("num_gpus"))
    alike = list(zip(_panels(columns), frameworks, counts, strict=True))
    rests, doubted, all_numbers = _rests(columns, alike, table), doubts(table), Numbers(table.experiments)
    numbers = {name: columns(name) for name in METRICS if name in frame}
    names = [name for name in (*SPEEDS, *TIMES, ENERGY, STEP_RATE) if name in table.runs]
    of_runs, of_cold_runs = ok_runs(table, names), ok_runs(table, names, cold=True)
    cells = [
        Cell(
            results=_word(columns("results")[at]) or None,
            id=str(columns("id")[at]),
            panel=panel,
            framework=framework,
            rest=rests[at],
            gpus=gpus,
            on_cpu=columns("device")[at] == Device.CPU.value,
            status=_word(columns("status")[at]),
            kind=_word(columns("failure_kind")[at]) or None,
            doubts=tuple(doubt.kind.value for doubt in doubted[at]),
            numbers={name: v for name, values in numbers.items() if (v := number(values[at])) is not None},
            intervals=_intervals(of_runs[at]),
            of_runs=of_runs[at],
            of_cold_run=of_cold_runs[at],
            in_doubt=forbid_claim(doubted, all_numbers, at),
            batch=_setting(_BATCH, columns(_BATCH)[at]) if len(set(columns(_BATCH))) > 1 else "",
        )
        for at, (panel, framework, gpus) in enumerate(alike)
    ]
    cells = _with_scaling(_with_baselines(cells, table), table)
    return _in_fewer_panels(_with_unique_names(_with_places(cells)))


def _with_places(cells: Sequence[Cell]) -> list[Cell]:
    """Give each choice its own place among the colours, which is the same in all charts of the page."""
    places = {choice: place for place, choice in enumerate(dict.fromkeys(cell.choice for cell in cells))}
    return [replace(cell, place=places[cell.choice]) for cell in cells]


def _with_baselines(cells: Sequence[Cell], table: ResultsTable) -> list[Cell]:
    """Return each cell with its baseline, if it has one among these cells."""
    paired, pairs, columns = list(cells), pairs_of(table), _columns(table.experiments)
    ranks = shown_ranks(pairs)
    for pair in pairs:
        axis = pair.match.axis
        for row in (pair.new, pair.base):
            if axis != FRAMEWORK and row < len(cells) and pair.match.rank == ranks[row]:
                paired[row] = replace(paired[row], setting=_setting(axis, columns(axis)[row]))
        if max(pair.new, pair.base) < len(cells) and pair.match.rank == ranks[pair.new]:
            claimed = not pair.in_doubt
            speedup = pair.speed.ratio if pair.speed and claimed else None
            paired[pair.new] = replace(
                paired[pair.new],
                base=cells[pair.base].key,
                claimed=claimed,
                speedup=speedup.value if speedup else None,
                speedup_interval=speedup.interval if speedup else None,
            )
    return paired


def _with_scaling(cells: Sequence[Cell], table: ResultsTable) -> list[Cell]:
    """Return each cell with its scaling. If its speed or that of the smallest GPU count is in doubt, it has none."""
    scaled = list(cells)
    for base, row, speed in scalings(table):
        if max(base, row) < len(cells) and not (cells[base].in_doubt or cells[row].in_doubt):
            scaled[row] = replace(scaled[row], scaling=speed)
    return scaled


def _setting(name: str, value: Value) -> str:
    name_of_it = "" if name in _SELF_EVIDENT and value else metric(name).label.removeprefix(PREFIX)
    return f"{name_of_it} {_word(value) or '-'}".strip()


def _intervals(of_runs: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """Return the intervals over an experiment's runs. A metric needs at least two values."""
    found = {name: mean_of_logs(values).interval for name, values in of_runs.items() if len(values) > 1}
    return {name: interval for name, interval in found.items() if interval is not None}


def panel_word(frame: pd.DataFrame) -> str:
    """Return the label of the list in which a reader chooses a panel."""
    return " · ".join(metric(name).label for name in _varied(_columns(frame))).capitalize()


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
    """Return the first of these metrics that any cell has. Return None if no cell has any of them."""
    return next((name for name in names if any(name in cell.numbers for cell in cells)), None)


def noun(cells: Sequence[Cell]) -> str:
    """Return the noun for the counts in `gpus`: GPUs or CPU processes."""
    return "CPU processes" if cells and all(cell.on_cpu for cell in cells) else "GPUs"


def _varied(columns: Columns) -> list[str]:
    return [name for name in _PANEL if len(set(columns(name))) > 1] or ["model_name_or_path"]


def _panels(columns: Columns) -> list[str]:
    """Return the name of each row's panel. It consists of the values that differ between rows, or of the model if none differs."""
    parts = [[_word(value) for value in columns(name)] for name in _varied(columns)]
    return [one_line(" · ".join(filter(None, row)), width=_PANEL_WIDTH) for row in zip(*parts, strict=True)]


def _rests(columns: Columns, alike: Sequence[tuple[str, str, int]], table: ResultsTable) -> list[str]:
    """Return the arguments that distinguish each row from other rows with the same panel, framework and GPU count."""
    groups: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for at, key in enumerate(alike):
        groups[key].append(at)
    arguments = ["num_nodes", *for_people({*ARGUMENT_FACTS, *table.arguments} - {*_NO_ARGUMENTS})]
    names = [name for name in arguments if len(set(columns(name))) > 1]
    distinguishing: dict[str, list[str]] = defaultdict(list)
    for key, rows in groups.items():
        if len(rows) > 1:
            known = distinguishing[key[0]]
            known += [name for name in names if name not in known and len({columns(name)[at] for at in rows}) > 1]
    own = {framework: table.framework_arguments.get(framework, frozenset()) for _, framework, _ in groups}
    return [
        _rest(columns, at, [name for name in distinguishing[panel] if name not in own[framework]][:_MOST_ARGUMENTS])
        for at, (panel, framework, _) in enumerate(alike)
    ]


def _rest(columns: Columns, at: int, names: Sequence[str]) -> str:
    call = [name for name in _SELF_EVIDENT[:2] if columns("operator")[at] and columns(name)[at]]
    words = (_setting(name, columns(name)[at]) for name in names or call[-1:])
    return one_line(" · ".join(words), width=_NAME_WIDTH)


def _with_unique_names(cells: Sequence[Cell]) -> list[Cell]:
    """Add the end of the id to equal names, since a chart would draw two rows of one name as one row."""
    counts = Counter((cell.panel, cell.name, cell.gpus) for cell in cells)
    unclear = {(panel, name) for (panel, name, _), count in counts.items() if count > 1}
    return [
        replace(cell, rest=" · ".join(filter(None, (cell.rest, cell.id[-_DIGEST:]))))
        if (cell.panel, cell.name) in unclear
        else cell
        for cell in cells
    ]


def _in_fewer_panels(cells: Sequence[Cell]) -> list[Cell]:
    """Put all cells into one panel if the panels have fewer than two rows on average."""
    panels = {cell.panel for cell in cells}
    names = {(cell.panel, cell.name) for cell in cells}
    if len(panels) < 2 or len(names) >= 2 * len(panels):
        return list(cells)
    return [replace(cell, panel=ALL, rest=" · ".join(filter(None, (cell.panel, cell.rest)))) for cell in cells]


def _word(value: Value) -> str:
    return "" if value is None else one_line(value, width=_NAME_WIDTH)


def _count(value: Value) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
