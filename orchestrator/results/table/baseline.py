"""Each experiment beside the one that differs from it by the framework configuration alone: how much faster, how much memory.

Two cells compare where scenario, model, processes, device, data, monitors and all arguments are the same but those that one of
the two framework configurations sets itself. Speed is a ratio over runs (`statistics.ratio`), memory one of means. Takes a
table and gives values, or the table with columns more; what they mean it does not say (`highlights`), and it judges nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.errors import SelectionError, suggestion
from orchestrator.measure.intervals import Ratio, ratio
from orchestrator.records import Status
from orchestrator.results.table.aggregate import baseline_of
from orchestrator.results.table.columns import Numbers, column, for_people, number
from orchestrator.results.table.rows import ARGUMENT_FACTS, Value

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

STEADY_SPEEDS, TRAINERS_SPEED = ("real_tokens_per_s", "tokens_per_s"), "train_tokens_per_second"
"""The first that both sides have. The Trainer's own counts warm-up and compilation: only of a table where no run has steps."""

MEMORIES = (
    *("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_used_bytes"),
    *("mem_peak_torch_mem_alloc_in_bytes", "mem_nvidia_mem_reserved"),
)
COLUMNS = ("speedup", "speedup_low", "speedup_high", "memory_ratio")
SAME = (
    *("results", "scenario", "model_name_or_path", "num_gpus", "device", "trainer", "python", "data", "monitors"),
    "global_batch",
)
Run = tuple[Value, Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """New ÷ base of one rate, and which one."""

    metric: str
    ratio: Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """One kind of peak memory on both sides, in its unit; means over runs."""

    metric: str
    base: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.base


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """Two rows of `experiments` by their places: one, and the one of the baseline framework that it is compared with."""

    new: int
    base: int
    speed: Speed | None
    memory: Memory | None


def beside(table: ResultsTable, *, baseline: str | None = None) -> tuple[Beside, ...]:
    """Every experiment that has a partner of the baseline framework, in the table's order.

    Without a name the baseline is `baseline` or `none` where such a cell is there, else the framework that stands first.
    Raises SelectionError for a name that no experiment has.
    """
    refuse_unknown(table, baseline)
    numbers, names = Numbers(table.experiments), speeds(table)
    runs = ok_runs(table, names)
    found = (
        Beside(new=new, base=base, speed=_speed(runs[base], runs[new], names), memory=_memory(numbers, new, base))
        for new, base in _pairs(table, baseline)
    )
    return tuple(sorted(found, key=lambda one: one.new))


def with_baseline(table: ResultsTable, baseline: str) -> ResultsTable:
    """The table with COLUMNS beside each experiment, 1 for the baseline's own; without a pair of cells a warning says that there
    is none. Raises SelectionError for an unknown name.
    """
    import pandas as pd

    found = beside(table, baseline=baseline)
    columns: dict[str, list[float | None]] = {name: [None] * len(table.experiments) for name in COLUMNS}
    for one in found:
        for name, value in _cells_of(one):
            columns[name][one.new] = value
        columns["speedup"][one.base] = 1.0 if one.speed else columns["speedup"][one.base]
        columns["memory_ratio"][one.base] = 1.0 if one.memory else columns["memory_ratio"][one.base]
    added = {name: pd.Series(values, dtype="Float64") for name, values in columns.items()}
    frame = table.experiments.assign(**{name: one for name, one in added.items() if one.notna().any()})
    said = () if found else (f"--baseline {baseline}: {_NO_PAIR}",)
    return replace(table, experiments=frame[for_people(map(str, frame.columns))], warnings=(*table.warnings, *said))


_NO_PAIR = (
    "no other experiment differs from one of it by the framework configuration alone, so that none stands beside it"
)


def refuse_unknown(table: ResultsTable, framework: str | None) -> None:
    """Raises SelectionError for a framework configuration that no experiment of the table has."""
    known = [str(name) for name in dict.fromkeys(column(table.experiments, "framework_config")) if name is not None]
    if framework is not None and framework not in known:
        raise SelectionError(f"--baseline {framework}: no experiment has this framework{suggestion(framework, known)}")


def _cells_of(one: Beside) -> Iterator[tuple[str, float]]:
    if one.speed is not None:
        yield "speedup", one.speed.ratio.value
        if one.speed.ratio.interval is not None:
            yield "speedup_low", one.speed.ratio.interval.low
            yield "speedup_high", one.speed.ratio.interval.high
    if one.memory is not None:
        yield "memory_ratio", one.memory.ratio


def ok_runs(table: ResultsTable, names: Iterable[str]) -> list[dict[str, list[float]]]:
    """For each row of `experiments` the values above 0 of its runs that count: the last try of a repeat, if it ended ok."""
    runs, experiments = table.runs, table.experiments
    named = zip(column(experiments, "results"), column(experiments, "id"), strict=True)
    place = {key: row for row, key in enumerate(named)}
    keys = list(zip(column(runs, "results"), column(runs, "id"), strict=True))
    tries = zip(keys, column(runs, "repeat"), column(runs, "attempt"), strict=True)
    last: dict[tuple[Run, Value], tuple[float, int]] = {}
    for at, (key, repeat, attempt) in enumerate(tries):
        last[key, repeat] = max(last.get((key, repeat), (0.0, at)), (number(attempt) or 0.0, at))
    status = column(runs, "status")
    counted = [at for _, at in last.values() if status[at] == Status.OK.value and keys[at] in place]
    found: list[dict[str, list[float]]] = [{} for _ in range(len(experiments))]
    for name in names:
        values = column(runs, name)
        for at in counted:
            value = number(values[at])
            if value is not None and value > 0:
                found[place[keys[at]]].setdefault(name, []).append(value)
    return found


def _pairs(table: ResultsTable, baseline: str | None) -> Iterator[tuple[int, int]]:
    """Places of an experiment and of its baseline's."""
    frame = table.experiments
    frameworks = column(frame, "framework_config")
    given = arguments_of(table)
    groups: dict[tuple[Value, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(*(column(frame, name) for name in SAME), strict=True)):
        groups[key].append(row)
    for rows in groups.values():
        base = _base_of([frameworks[row] for row in rows], baseline)
        by_framework: dict[Value, list[int]] = defaultdict(list)
        for row in rows:
            by_framework[frameworks[row]].append(row)
        for framework, others in by_framework.items():
            if framework != base:
                own = table.framework_arguments
                without = own.get(str(framework), frozenset()) | own.get(str(base), frozenset())
                yield from _same_but(without, others, by_framework.get(base, []), given)


def _same_but(
    without: frozenset[str], rows: Sequence[int], bases: Sequence[int], given: Sequence[frozenset[tuple[str, Value]]]
) -> Iterator[tuple[int, int]]:
    """Each row with the base that has its arguments but for those named; of several the one that is like it in most of these."""
    alike: dict[frozenset[tuple[str, Value]], list[int]] = defaultdict(list)
    for base in bases:
        alike[_less(given[base], without)].append(base)
    for row in rows:
        candidates = alike.get(_less(given[row], without))
        if candidates:
            yield row, min(candidates, key=lambda base: len(given[base] ^ given[row]))


def _less(given: frozenset[tuple[str, Value]], without: frozenset[str]) -> frozenset[tuple[str, Value]]:
    return frozenset(item for item in given if item[0] not in without) if without else given


def arguments_of(table: ResultsTable) -> list[frozenset[tuple[str, Value]]]:
    """For each experiment its arguments that are set, as pairs of name and value."""
    names = [name for name in sorted({*ARGUMENT_FACTS, *table.arguments}) if name in table.experiments]
    columns = [column(table.experiments, name) for name in names]
    rows = zip(*columns, strict=True) if names else [()] * len(table.experiments)
    return [
        frozenset((name, value) for name, value in zip(names, row, strict=True) if value is not None) for row in rows
    ]


def _base_of(frameworks: Sequence[Value], baseline: str | None) -> Value:
    return baseline if baseline is not None else baseline_of(frameworks)


def speeds(table: ResultsTable) -> tuple[str, ...]:
    """By which rates the cells of a table are compared, the best first: by steps where there are any."""
    steady = tuple(name for name in STEADY_SPEEDS if name in table.runs and bool(table.runs[name].notna().any()))
    return steady or (TRAINERS_SPEED,)


def _speed(base: Mapping[str, list[float]], new: Mapping[str, list[float]], names: Sequence[str]) -> Speed | None:
    for name in names:
        if name in base and name in new:
            return Speed(metric=name, ratio=ratio(base[name], new[name]))
    return None


def _memory(numbers: Numbers, new: int, base: int) -> Memory | None:
    for name in MEMORIES:
        mine, theirs = numbers(name, new), numbers(name, base)
        if mine and theirs and mine > 0 and theirs > 0:
            return Memory(metric=name, base=theirs, new=mine)
    return None
