"""Numbers that no run has by itself: intervals over repeats, scaling over GPU counts, a loss beside the baseline's.

Functions from rows to cells; nothing of it is stored in a record, since a run does not know what it will be compared with.
`table` groups the rows and frames the result.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.measure import intervals, losses
from orchestrator.measure.metrics import METRICS
from orchestrator.results.table.rows import NO_FRAMEWORK, Value

Cells = Mapping[str, Value]

RATE, PER_GPU, LOSS, STEPS = "tokens_per_s", "tokens_per_s_per_gpu", "train_loss", "steps"
LOGGED, PLANNED, STOPPED = "logged_losses", "effective_max_steps", "stopped_early"
WRONG, OTHER_LOSS, NOT_COMPARED = "faster but wrong", "other loss", "loss not compared"
BY_RATIO = frozenset(metric.name for metric in METRICS.values() if metric.by_ratio)

INTERVALS: Mapping[str, tuple[str, str]] = {
    RATE: (f"{RATE}_low", f"{RATE}_high"),
    f"real_{RATE}": (f"real_{RATE}_low", f"real_{RATE}_high"),
    "step_time_s": ("step_time_low_s", "step_time_high_s"),
}
"""The metrics that have an interval over repeats, and the columns of its ends. Of one run a step time has its own."""

_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")
_LEARNING = (
    *(
        "peft_method",
        "r",
        "lora_alpha",
        "lora_dropout",
        "target_modules",
        "learning_rate",
        "lr_scheduler_type",
        "warmup_steps",
    ),
    *("warmup_ratio", "weight_decay", "max_seq_len", "max_steps", "num_train_epochs", "seed", "data_seed"),
)
_PACKING, _OFF = "packing", ("none", "false", "no", "off", "0", "")
BASELINES = ("baseline", NO_FRAMEWORK)
_SHARED = ("results", "scenario", "model_name_or_path", "device", "trainer", "python", "data")
_FRAMEWORK_FACTS, _CELL_FACTS = (*_SHARED, "framework_config"), (*_SHARED, "num_gpus")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One experiment on its way into the table: what it was, what it was given, and its numbers, means over repeats."""

    facts: Cells
    arguments: Cells
    numbers: Cells


def over_repeats(name: str, values: Sequence[float]) -> dict[str, Value]:
    """A metric that is compared by ratios, of several runs: the mean of logs, with its interval where it has one."""
    if name not in INTERVALS or min(values) <= 0:
        return {name: mean(values, by_ratio=True)}
    summary = intervals.mean_of_logs(values)
    ends = (summary.interval.low, summary.interval.high) if summary.interval else (None, None)
    told = {f"{RATE}_spread": summary.spread, f"{RATE}_runs": summary.n} if name == RATE else {}
    return {name: summary.mean, **dict(zip(INTERVALS[name], ends, strict=True)), **told}


def mean(values: Sequence[float], *, by_ratio: bool) -> float:
    """The mean of a metric's values: of their logarithms where it is compared by ratios and they have any."""
    if by_ratio and min(values) > 0:
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def compared(cells: Sequence[Cell]) -> Iterator[dict[str, Value]]:
    """For each experiment what the others say of it."""
    for cell, smallest, baseline in zip(cells, scaling_bases(cells), _loss_bases(cells), strict=True):
        yield {**_scaling(cell, smallest), **_loss(cell, baseline)}


def scaling_bases(cells: Sequence[Cell]) -> list[Cell | None]:
    """For each experiment the one whose speed a GPU is ideal: the same cell at its smallest GPU count, of the same batch a device,
    else of the same batch in all. None where there is no other GPU count.
    """
    found: list[Cell | None] = [None] * len(cells)
    for key in (_global_batch, _given):  # the latter counts more
        for place, group in enumerate(_grouped(cells, key)):
            smallest = group[0]
            if _gpus(group[-1]) != _gpus(smallest):
                found[place] = smallest
    return found


def _grouped(cells: Sequence[Cell], key: Callable[[Cell], Hashable]) -> list[Sequence[Cell]]:
    """For each experiment those with its key, itself among them, by GPU count; of equal counts in their order."""
    keys = [key(cell) for cell in cells]
    groups: dict[Hashable, list[Cell]] = defaultdict(list)
    for one, cell in zip(keys, cells, strict=True):
        groups[one].append(cell)
    for group in groups.values():
        group.sort(key=_gpus)
    return [groups[one] for one in keys]


def _facts(cell: Cell, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(cell.facts.get(name) for name in names)


def _scaling(cell: Cell, smallest: Cell | None) -> dict[str, Value]:
    """Speed a GPU beside that of the smallest GPU count; without that one there is none: another base is another number."""
    mine, base = _number(cell, PER_GPU), _number(smallest, PER_GPU) if smallest else None
    return {"scaling_efficiency": mine / base} if mine is not None and base else {}


def _loss_bases(cells: Sequence[Cell]) -> list[Cell | None]:
    """For each experiment the one of the baseline framework that its loss is held against, where they should learn alike."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, cell in enumerate(cells):
        groups[_learning(cell)].append(place)
    found: list[Cell | None] = [None] * len(cells)
    for places in groups.values():
        learned = [place for place in places if _number(cells[place], LOSS) is not None]
        baseline = baseline_of(
            [_framework(cells[place]) for place in places], [_framework(cells[at]) for at in learned]
        )
        others = [place for place in places if _framework(cells[place]) != baseline]
        if others:
            nearest = _nearest_of([cells[place] for place in places if _framework(cells[place]) == baseline])
            for place in others:
                found[place] = nearest(cells[place])
    return found


def baseline_of(frameworks: Sequence[Value], fit: Sequence[Value] = ()) -> Value:
    """The framework configuration that others are held against: the one that is called so, `none`, or else the first listed, of
    those that are `fit` for it where any are."""
    return next((name for name in BASELINES if name in frameworks), (fit or frameworks)[0])


def _nearest_of(candidates: Sequence[Cell]) -> Callable[[Cell], Cell]:
    """Gives of the candidates the one that differs from a cell in the fewest arguments.

    Those in which the candidates agree decide nothing, so that one which has the cell's values of all others is found by look-up.
    """
    given = Counter(item for one in candidates for item in one.arguments.items())
    varying = sorted({name for (name, _), times in given.items() if times < len(candidates)})

    def key(cell: Cell) -> tuple[Value, ...]:
        return tuple(cell.arguments.get(name) for name in varying)

    index = {key(one): one for one in reversed(candidates)}

    def nearest(cell: Cell) -> Cell:
        alike = index.get(key(cell))
        return alike or min(candidates, key=lambda one: len(one.arguments.items() ^ cell.arguments.items()))

    return nearest


def _framework(cell: Cell) -> Value:
    return cell.facts.get("framework_config")


def _loss(cell: Cell, baseline: Cell | None) -> dict[str, Value]:
    """The loss beside that of the baseline framework's cell, over as many steps; a mark where they can't be compared.

    Trainings that were to make other numbers of steps are none that should learn alike: nothing is said of them.
    """
    if baseline is None or _number(cell, LOSS) is None:
        return {}
    if _is_another_training(cell, baseline):
        return {}
    both = _losses(cell, baseline) if _number(baseline, LOSS) is not None else None
    if both is None or not both[1]:
        return {"doubt": NOT_COMPARED}
    difference = both[0] / both[1] - 1
    doubt: dict[str, Value] = {} if abs(difference) <= METRICS[LOSS].min_effect else {"doubt": _doubt(cell, baseline)}
    return {"loss_difference": difference, **doubt}


def _is_another_training(cell: Cell, baseline: Cell) -> bool:
    """Whether they were to make other numbers of steps; of older records, which do not say it, whether they made others."""
    mine, theirs = _number(cell, PLANNED), _number(baseline, PLANNED)
    if mine is not None and theirs is not None:
        return mine != theirs
    return _number(baseline, LOSS) is not None and _number(cell, STEPS) != _number(baseline, STEPS)


def _losses(cell: Cell, baseline: Cell) -> tuple[float, float] | None:
    """Both mean training losses: of the whole run where both made as many steps, else (one ended early) of the steps of both.

    As many steps on the average of repeats that ended early are not as many in each.
    """
    both = (cell, baseline)
    alike = cell.numbers.get(STEPS) == baseline.numbers.get(STEPS)
    texts = [str(one.numbers.get(LOGGED)) for one in both]
    if not alike or (any(one.numbers.get(STOPPED) for one in both) and any(", " in text for text in texts)):
        shared = losses.over_the_same_steps(*texts)
        if shared is not None:
            return shared.one, shared.other
        if not alike:
            return None
    mine, base = (_number(one, LOSS) for one in both)
    return None if mine is None or base is None else (mine, base)


def _learning(cell: Cell) -> Hashable:
    """What a loss depends on besides kernels and the number of steps: losses of cells that differ in it do not compare."""
    given = tuple(cell.arguments.get(name) for name in _LEARNING)
    packed = str(cell.arguments.get(_PACKING)).lower() not in _OFF  # a row of several samples is another batch
    return _facts(cell, _CELL_FACTS), cell.facts.get("global_batch"), packed, given


def _doubt(cell: Cell, baseline: Cell) -> str:
    mine, theirs = _number(cell, PER_GPU), _number(baseline, PER_GPU)
    return WRONG if mine and theirs and mine > theirs else OTHER_LOSS


def _given(cell: Cell) -> Hashable:
    return _facts(cell, _FRAMEWORK_FACTS), frozenset(cell.arguments.items())


def _global_batch(cell: Cell) -> Hashable:
    rest = frozenset((name, value) for name, value in cell.arguments.items() if name not in _BATCH)
    return _facts(cell, _FRAMEWORK_FACTS), rest, cell.facts.get("global_batch") or cell.facts.get("id")


def _gpus(cell: Cell) -> int:
    count = cell.facts.get("num_gpus")
    return count if isinstance(count, int) else 1


def _number(cell: Cell, name: str) -> float | None:
    value = cell.numbers.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None
