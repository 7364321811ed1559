"""Compare the speed and memory of experiments that differ only in their framework configuration.

Two experiments form a pair if scenario, model, processes, device, data, monitors and arguments are the same. Arguments that one of
the two framework configurations sets may differ. Speed is a ratio over runs (`intervals.ratio`), memory a ratio of means. Nothing
is judged here: `report/highlights/` does that.
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
from orchestrator.results.table.column_choice import Numbers, column, for_people, number
from orchestrator.results.table.rows import ARGUMENT_FACTS, Value

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

# The first speed that both experiments have is compared. The Trainer's own includes warm-up and compilation, so it is only used for
# tables where no run has steps.
STEADY_SPEEDS, TRAINERS_SPEED = ("real_tokens_per_s", "tokens_per_s"), "train_tokens_per_second"
MEMORIES = (
    *("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_used_bytes"),
    *("mem_peak_torch_mem_alloc_in_bytes", "mem_nvidia_mem_reserved"),
)
COLUMNS = ("speedup", "speedup_low", "speedup_high", "memory_ratio")
SAME = (
    *("results", "scenario", "model_name_or_path", "num_gpus", "device", "trainer", "python", "data", "monitors"),
    "global_batch",
)
KEY = ("results", "id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The ratio new ÷ base of a speed, and the metric's name."""

    metric: str
    ratio: Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """A kind of peak memory of both experiments, in its unit; means over runs."""

    metric: str
    base: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.base


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A pair of experiments by their rows in the table: `base` has the baseline framework."""

    new: int
    base: int
    speed: Speed | None
    memory: Memory | None


def pairs_of(table: ResultsTable, *, baseline: str | None = None) -> tuple[Pair, ...]:
    """Return the pairs of a table, in its order. Without a name, `aggregate.baseline_of` chooses the baseline in each group.

    Raises SelectionError for a baseline that no experiment has.
    """
    _refuse_unknown(table, baseline)
    numbers, names = Numbers(table.experiments), _speeds(table)
    runs = ok_runs(table, names)
    return tuple(
        Pair(new=new, base=base, speed=_speed(runs[base], runs[new], names), memory=_memory(numbers, new, base))
        for new, base in sorted(_pairs(table, baseline))
    )


def with_baseline(table: ResultsTable, baseline: str) -> ResultsTable:
    """Return the table with COLUMNS, 1 for the baseline's own rows, or with a warning if it has no pair.

    Raises SelectionError for a baseline that no experiment has.
    """
    import pandas as pd

    pairs = pairs_of(table, baseline=baseline)
    columns: dict[str, list[float | None]] = {name: [None] * len(table.experiments) for name in COLUMNS}
    for pair in pairs:
        if pair.speed is not None:
            speedup, interval = pair.speed.ratio.value, pair.speed.ratio.interval
            columns["speedup"][pair.new], columns["speedup"][pair.base] = speedup, 1.0
            if interval is not None:
                columns["speedup_low"][pair.new], columns["speedup_high"][pair.new] = interval.low, interval.high
        if pair.memory is not None:
            columns["memory_ratio"][pair.new], columns["memory_ratio"][pair.base] = pair.memory.ratio, 1.0
    added = {name: pd.Series(values, dtype="Float64") for name, values in columns.items() if any(values)}
    frame = table.experiments.assign(**added)
    no_pair = f"--baseline {baseline}: no experiment has a partner that differs only in the framework configuration"
    warnings = table.warnings if pairs else (*table.warnings, no_pair)
    return replace(table, experiments=frame[for_people(map(str, frame.columns))], warnings=warnings)


def _refuse_unknown(table: ResultsTable, framework: str | None) -> None:
    known = [str(name) for name in dict.fromkeys(column(table.experiments, "framework_config")) if name is not None]
    if framework is not None and framework not in known:
        raise SelectionError(f"--baseline {framework}: no experiment has this framework{suggestion(framework, known)}")


def ok_runs(table: ResultsTable, names: Iterable[str]) -> list[dict[str, list[float]]]:
    """Return for each experiment the values above 0 of its runs: the last try of each repeat, if it ended ok."""
    runs, experiments = table.runs, table.experiments
    row_of = {key: row for row, key in enumerate(zip(*(column(experiments, name) for name in KEY), strict=True))}
    keys = list(zip(*(column(runs, name) for name in KEY), strict=True))
    tries = zip(keys, column(runs, "repeat"), column(runs, "attempt"), strict=True)
    last: dict[tuple[tuple[Value, ...], Value], tuple[float, int]] = {}
    for at, (key, repeat, attempt) in enumerate(tries):
        last[key, repeat] = max(last.get((key, repeat), (0.0, at)), (number(attempt) or 0.0, at))
    status = column(runs, "status")
    counted = [at for _, at in last.values() if status[at] == Status.OK.value and keys[at] in row_of]
    by_row: list[dict[str, list[float]]] = [{} for _ in range(len(experiments))]
    for name in names:
        values = column(runs, name)
        for at in counted:
            value = number(values[at])
            if value is not None and value > 0:
                by_row[row_of[keys[at]]].setdefault(name, []).append(value)
    return by_row


def _pairs(table: ResultsTable, baseline: str | None) -> Iterator[tuple[int, int]]:
    """Yield the rows of an experiment and of its partner with the baseline framework."""
    frame = table.experiments
    frameworks = column(frame, "framework_config")
    arguments = arguments_of(table)
    groups: dict[tuple[Value, ...], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(*(column(frame, name) for name in SAME), strict=True)):
        groups[key].append(row)
    for rows in groups.values():
        base = baseline_of([frameworks[row] for row in rows]) if baseline is None else baseline
        by_framework: dict[Value, list[int]] = defaultdict(list)
        for row in rows:
            by_framework[frameworks[row]].append(row)
        for framework, others in by_framework.items():
            if framework != base:
                own = table.framework_arguments
                without = own.get(str(framework), frozenset()) | own.get(str(base), frozenset())
                yield from _same_but(without, others, by_framework.get(base, []), arguments)


def _same_but(
    without: frozenset[str],
    rows: Sequence[int],
    bases: Sequence[int],
    arguments: Sequence[frozenset[tuple[str, Value]]],
) -> Iterator[tuple[int, int]]:
    """Yield each row with a base that has the same arguments, except those named in `without`; the most similar of several."""
    alike: dict[frozenset[tuple[str, Value]], list[int]] = defaultdict(list)
    for base in bases:
        alike[_less(arguments[base], without)].append(base)
    for row in rows:
        candidates = alike.get(_less(arguments[row], without))
        if candidates:
            yield row, min(candidates, key=lambda base: len(arguments[base] ^ arguments[row]))


def _less(arguments: frozenset[tuple[str, Value]], without: frozenset[str]) -> frozenset[tuple[str, Value]]:
    return frozenset(item for item in arguments if item[0] not in without) if without else arguments


def arguments_of(table: ResultsTable) -> list[frozenset[tuple[str, Value]]]:
    """Return for each experiment its arguments that are set, as pairs of name and value."""
    names = [name for name in sorted({*ARGUMENT_FACTS, *table.arguments}) if name in table.experiments]
    columns = [column(table.experiments, name) for name in names]
    rows = zip(*columns, strict=True) if names else [()] * len(table.experiments)
    return [
        frozenset((name, value) for name, value in zip(names, row, strict=True) if value is not None) for row in rows
    ]


def _speeds(table: ResultsTable) -> tuple[str, ...]:
    """Return the speeds that are compared, the best first: those of steps if any run has steps."""
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
