"""Compare the speed, memory and loss of experiments that differ in one axis only; `axes` finds these experiments.

Speed is a ratio over runs (`intervals.ratio`), memory is a ratio of means. This module does not judge; `report/highlights/` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from orchestrator.measure.intervals import Ratio, ratio, widened
from orchestrator.records import Caveat, CaveatKind, Status
from orchestrator.results.table import aggregate, axes, doubts
from orchestrator.results.table.axes import Match, references
from orchestrator.results.table.baseline.other_work import other_padding, other_work
from orchestrator.results.table.column_choice import (
    SPEEDS_OF_STEPS,
    WHOLE_SPEEDS,
    Numbers,
    by_gpu_model,
    column,
    for_people,
    gpu_models,
    number,
)
from orchestrator.results.table.doubts import ERROR
from orchestrator.results.table.references import FRAMEWORK, Reference
from orchestrator.results.table.rows import PREFIX, Value

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

# The first speed that both experiments have is compared. Speeds of the whole run include warm-up and compilation, so they are
# used only for a trainer that has no run with steps.
TRAINERS_SPEED, STEP_TIME = "train_tokens_per_second", "step_time_s"
RUN_TIME, CALL_TIME, ROUND_TIME = "train_runtime", "call_time_s", aggregate.ROUND
STEADY_SPEEDS = ("real_tokens_per_s", *SPEEDS_OF_STEPS)
TIMES = (STEP_TIME, RUN_TIME, CALL_TIME, ROUND_TIME)
ENERGY = "energy_per_real_token_j"
# Arguments that do not change what is learned: a different loss then shows a mistake. Other arguments may change the loss.
_LEARN_ALIKE = (
    *("attn_implementation", "use_liger_kernel", "use_cache", "dtype", "torch_dtype", "bf16", "fp16", "tf32"),
    *("gradient_checkpointing*", "torch_compile*", "torch_empty_cache_steps", "fsdp*", "ddp_*", "dataloader_*"),
)
MEMORIES = (
    *("peak_allocated_bytes", "peak_reserved_bytes", "device_peak_used_bytes"),
    *("mem_peak_torch_mem_alloc_in_bytes", "mem_nvidia_mem_reserved"),
)
# An operator is less exact if its error is larger than the baseline's by this factor, and larger than that of rounding.
LESS_EXACT, _TYPE = 10.0, "dtype"
# The error of rounding: one machine epsilon of the type, or a hundred of float32, in which all types are summed. Rounding adds up
# to so much in a sum of 40,000 numbers. A product in TF32 has an error of 3e-4, a sum in bfloat16 one of over 1e-3.
_EPSILON: Mapping[Value, float] = {"float32": 2**-23, "float16": 2**-10, "bfloat16": 2**-7}
_ROUNDING = {name: max(epsilon, 100 * _EPSILON["float32"]) for name, epsilon in _EPSILON.items()}
COLUMNS = ("speedup", "speedup_low", "speedup_high", "memory_ratio")
COMPARED_WITH, LOSS, DOUBT = "compared_with", "loss_difference", "doubt"
_OF_LOSS = (aggregate.LOSS, aggregate.STEPS, aggregate.PLANNED, aggregate.LOGGED, aggregate.STOPPED, aggregate.PER_GPU)
KEY = ("results", "id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """The ratio of two speeds, new ÷ base, and the name of the metric. For a metric that is a time, the ratio is base ÷ new."""

    metric: str
    ratio: Ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The peak memory of both experiments, both from the same metric. The numbers are means over runs, in the metric's unit."""

    metric: str
    base: float
    new: float

    @property
    def ratio(self) -> float:
        return self.new / self.base


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two experiments that are compared. `loss` is the difference of the training losses as a share.

    `loss` is None for framework configurations: the table has their losses. `in_doubt`: nothing is claimed about `speed`.
    """

    match: Match
    speed: Speed | None
    memory: Memory | None
    loss: float | None = None
    doubt: str | None = None
    in_doubt: bool = False

    @property
    def new(self) -> int:
        return self.match.new

    @property
    def base(self) -> int:
        return self.match.base


def pairs_of(table: ResultsTable) -> tuple[Pair, ...]:
    """Return the pairs of a table, in its order. Experiments on different GPU models are no pair."""
    numbers, runs = Numbers(table.experiments), ok_runs(table, (*STEADY_SPEEDS, *WHOLE_SPEEDS))
    trainers, with_steps = column(table.experiments, "trainer"), _with_steps(table)
    losses = {name: column(table.experiments, name) for name in _OF_LOSS}
    doubted, types = doubts.doubts(table), column(table.experiments, _TYPE)
    arguments = axes.arguments_of(table)

    def pair(match: Match) -> Pair:
        names = STEADY_SPEEDS if trainers[match.new] in with_steps else (*STEADY_SPEEDS, *WHOLE_SPEEDS)
        changed = {*match.changed, *(name for name, _ in arguments[match.new] ^ arguments[match.base])}
        # If the padding of both sides is known, the speed without padding comes first.
        alike = [name for name in names if other_work(name, changed) is None and other_padding(name, changed) is None]
        speed = _speed(runs[match.base], runs[match.new], alike)
        if speed and table.neighbour_cost and (numbers("neighbours", match.new) or numbers("neighbours", match.base)):
            speed = replace(speed, ratio=widened(speed.ratio, table.neighbour_cost))
        memory = _memory(numbers, match.new, match.base)
        difference, doubt = _loss(losses, match) if match.axis in table.arguments else (None, None)
        if doubt is None and _is_less_exact(numbers, types, match):
            doubt = aggregate.INEXACT
        is_forbidden = doubts.forbid_claim(doubted, numbers, match.new, match.base)
        in_doubt = doubt in aggregate.DOUBTS or is_forbidden
        if is_forbidden and table.baseline and runs[match.new]:
            doubt = doubts.joined(doubt, doubts.kinds(doubted, match.new, match.base))
        return Pair(match=match, speed=speed, memory=memory, loss=difference, doubt=doubt, in_doubt=in_doubt)

    measured = frozenset(row for row, values in enumerate(runs) if values)
    # In a table with several models, an unknown one may be any of them.
    alike = by_gpu_model(range(len(runs)), gpu_models(table.experiments))
    machine = {row: number for number, rows in enumerate(alike) for row in rows}
    found = sorted(axes.matches(table, measured=measured), key=lambda match: (match.new, match.base))
    return tuple(pair(match) for match in found if machine[match.new] == machine[match.base])


def with_baseline(table: ResultsTable, named: Iterable[str] = ()) -> ResultsTable:
    """Return the table with the references of `--baseline`, and with COLUMNS relative to the references.

    The ratios in a reference's own row are 1. A reference without a pair gives a warning. Without names, the table gets the
    columns if a scenario names a baseline, or if experiments are compared along an axis that is not the framework; then it has no
    speed-up that is in doubt. Raise SelectionError for a value that no experiment has.
    """
    import pandas as pd

    table = replace(table, baseline=references(table, named))
    pairs = pairs_of(table)
    if not table.baseline:
        pairs = tuple(replace(pair, speed=None) if pair.in_doubt else pair for pair in pairs)
    columns = _columns(table, pairs) if any(_is_wanted(pair.match) for pair in pairs) else {}
    if table.baseline:
        columns[DOUBT] = _every_doubt(table, columns.get(DOUBT) or column(table.experiments, DOUBT))
    types = dict.fromkeys((COMPARED_WITH, DOUBT), "string")
    added = {
        name: pd.Series(values, dtype=pd.api.types.pandas_dtype(types.get(name, "Float64")))
        for name, values in columns.items()
        if any(value is not None for value in values)
    }
    frame = table.experiments.assign(**added)
    warnings = (*table.warnings, *_without_pairs(table, pairs))
    return replace(table, experiments=frame[for_people(map(str, frame.columns))], warnings=warnings)


def _is_wanted(match: Match) -> bool:
    return not match.is_chosen or match.axis != FRAMEWORK


def shown_ranks(pairs: Iterable[Pair]) -> dict[int, int]:
    """Return for each row of these pairs the rank of its first axis. The columns of a row compare the row along its first axis."""
    ranks: dict[int, int] = {}
    for pair in pairs:
        for row in (pair.new, pair.base):
            ranks[row] = min(pair.match.rank, ranks.get(row, pair.match.rank))
    return ranks


def _columns(table: ResultsTable, pairs: Sequence[Pair]) -> dict[str, list[Value]]:
    names = (*COLUMNS, COMPARED_WITH, LOSS, DOUBT)
    columns = {name: column(table.experiments, name) for name in names}
    ranks = shown_ranks(pairs)
    for pair in pairs:
        if pair.match.rank == ranks[pair.base]:
            _fill(columns, pair.base, _of_base(pair))
        if pair.match.rank == ranks[pair.new]:
            _fill(columns, pair.new, _of_new(pair))
        if columns[DOUBT][pair.new] is None:
            _fill(columns, pair.new, {LOSS: pair.loss, DOUBT: pair.doubt})
        elif table.baseline and pair.match.rank == ranks[pair.new]:
            columns[DOUBT][pair.new] = doubts.joined(columns[DOUBT][pair.new], pair.doubt)
    if all(pair.match.axis == FRAMEWORK or not (pair.speed or pair.memory) for pair in pairs):
        del columns[COMPARED_WITH]
    return columns


def _every_doubt(table: ResultsTable, found: Sequence[Value]) -> list[Value]:
    """Return the doubts of all rows: those about its comparison, which `found` has, and those about its own speed."""
    doubted, numbers = doubts.doubts(table), Numbers(table.experiments)
    return [
        doubts.joined(doubt, doubts.kinds(doubted, row) if doubts.forbid_claim(doubted, numbers, row) else None)
        for row, doubt in enumerate(found)
    ]


def _fill(columns: Mapping[str, list[Value]], row: int, values: Mapping[str, Value]) -> None:
    for name, value in values.items():
        if value is not None:
            columns[name][row] = value


def _of_base(pair: Pair) -> dict[str, Value]:
    return {
        "speedup": 1.0 if pair.speed else None,
        "memory_ratio": 1.0 if pair.memory else None,
        COMPARED_WITH: str(pair.match.reference),
    }


def _of_new(pair: Pair) -> dict[str, Value]:
    speedup = pair.speed.ratio if pair.speed else None
    interval = speedup.interval if speedup else None
    return {
        "speedup": speedup.value if speedup else None,
        "speedup_low": interval.low if interval else None,
        "speedup_high": interval.high if interval else None,
        "memory_ratio": pair.memory.ratio if pair.memory else None,
        COMPARED_WITH: str(pair.match.reference),
    }


def _without_pairs(table: ResultsTable, pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield a sentence for each named reference that no experiment was compared with."""
    scenarios = column(table.experiments, "scenario")
    used = {(scenarios[pair.new], pair.match.axis) for pair in pairs}
    for reference in table.baseline:
        if reference.axis not in {axis for _, axis in used}:
            yield f"--baseline {reference}: {_no_partner(reference)}"
    if table.baseline:
        return
    own = zip(scenarios, table.baselines, strict=True)
    for name, reference in dict.fromkeys((name, reference) for name, some in own for reference in some):
        if (name, reference.axis) not in used:
            yield f"scenario {name!r}: baseline {reference}: {_no_partner(reference)}"


def _no_partner(reference: Reference) -> str:
    what = "the framework configuration" if reference.axis == FRAMEWORK else reference.axis.removeprefix(PREFIX)
    return f"no experiment has a partner that differs only in {what}"


def ok_runs(table: ResultsTable, names: Iterable[str], *, cold: bool = False) -> list[dict[str, list[float]]]:
    """Return for each experiment the values above 0 of its runs. The last try of a repeat counts if it ended ok; no other does.

    With `cold`, return instead the values of the first runs that were left out because they were cold.
    """
    runs, experiments = table.runs, table.experiments
    row_of = {key: row for row, key in enumerate(zip(*(column(experiments, name) for name in KEY), strict=True))}
    keys = list(zip(*(column(runs, name) for name in KEY), strict=True))
    tries = zip(keys, column(runs, "repeat"), column(runs, "attempt"), strict=True)
    last: dict[tuple[tuple[Value, ...], Value], tuple[float, int]] = {}
    for at, (key, repeat, attempt) in enumerate(tries):
        last[key, repeat] = max(last.get((key, repeat), (0.0, at)), (number(attempt) or 0.0, at))
    status, warnings = column(runs, "status"), column(runs, "warnings")
    was_cold = [any(map(is_on_cold_run, str(text or "").splitlines())) for text in warnings]
    ended_ok = (at for _, at in last.values() if status[at] == Status.OK.value and keys[at] in row_of)
    counted = [at for at in ended_ok if was_cold[at] is cold]
    by_row: list[dict[str, list[float]]] = [{} for _ in range(len(experiments))]
    for name in names:
        values = column(runs, name)
        for at in counted:
            value = number(values[at])
            if value is not None and value > 0:
                by_row[row_of[keys[at]]].setdefault(name, []).append(value)
    return by_row


def is_on_cold_run(sentence: str) -> bool:
    """Return whether a sentence of a run says that the run was cold."""
    return Caveat.of_sentence(sentence).kind is CaveatKind.COLD_FIRST_RUN


def _with_steps(table: ResultsTable) -> frozenset[Value]:
    """Return the trainers that have at least one run with recorded steps."""
    names = [name for name in STEADY_SPEEDS if name in table.runs]
    trainers = column(table.runs, "trainer")
    has_any = table.runs[names].notna().any(axis=1).tolist() if names else []
    return frozenset(trainer for trainer, has in zip(trainers, has_any, strict=False) if has)


def _speed(base: Mapping[str, list[float]], new: Mapping[str, list[float]], names: Iterable[str]) -> Speed | None:
    for name in names:
        if name in base and name in new:
            sides = (new[name], base[name]) if name in TIMES else (base[name], new[name])
            return Speed(metric=name, ratio=ratio(*sides))
    return None


def _is_less_exact(numbers: Numbers, types: Sequence[Value], match: Match) -> bool:
    """Return whether the new side computes the same as the base, with a far larger error. Another type has another error.

    `types` are the types of the rows; a row without a type has float32.
    """
    if _TYPE in match.changed or other_work(ERROR, match.changed):
        return False
    return is_less_exact(numbers(ERROR, match.new), numbers(ERROR, match.base), types[match.new])


def is_less_exact(error: float | None, reference: float | None, dtype: Value) -> bool:
    """Return whether an operator's relative error is far larger than that of a reference, and larger than that of rounding."""
    rounding = _ROUNDING.get(dtype, _ROUNDING["float32"])
    return error is not None and reference is not None and error > max(LESS_EXACT * reference, rounding)


def _memory(numbers: Numbers, new: int, base: int) -> Memory | None:
    for name in MEMORIES:
        mine, theirs = numbers(name, new), numbers(name, base)
        if mine and theirs and mine > 0 and theirs > 0:
            return Memory(metric=name, base=theirs, new=mine)
    return None


def _loss(columns: Mapping[str, Sequence[Value]], match: Match) -> tuple[float | None, str | None]:
    """Return two values for experiments that differ in arguments: the difference of their losses, and the doubt that it raises.

    Both values are None if the two trainings do different work. The doubt is None if the arguments change what is learned.
    """
    if other_work(aggregate.LOSS, match.changed):
        return None, None
    new, base = (
        aggregate.Cell(facts={}, arguments={}, numbers={name: values[row] for name, values in columns.items()})
        for row in (match.new, match.base)
    )
    found = aggregate.loss_against(new, base)
    learn_alike = all(any(fnmatchcase(name, pattern) for pattern in _LEARN_ALIKE) for name in match.changed)
    difference, doubt = number(found.get(LOSS)), found.get(DOUBT)
    return difference, str(doubt) if doubt and learn_alike else None
