"""Numbers that need several runs: intervals over repeats, scaling over GPU counts, a loss compared with the baseline's loss.

These functions make cells from rows. No record stores these numbers, since a run does not know what it will be compared with.
`load` groups the rows and makes the frames.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from orchestrator.measure import intervals, losses
from orchestrator.measure.losses import target
from orchestrator.measure.memory_logs import finite
from orchestrator.measure.metrics import METRICS
from orchestrator.measure.metrics.work import RELATIVE
from orchestrator.results.table.column_choice import GPUS, by_gpu_model, gpu_model
from orchestrator.results.table.rows import NO_FRAMEWORK, Value

Cells = Mapping[str, Value]

RATE, PER_GPU, LOSS, STEPS = "tokens_per_s", "tokens_per_s_per_gpu", "train_loss", "steps"
REAL_PER_GPU = f"real_{PER_GPU}"
# A smaller difference between shares of padding is not a change of the padding, unless an argument or other data explain it: the
# steady steps of two runs may have other rows of the same data.
UNEXPLAINED_PADDING = 0.05
# The result of an operator is as wrong as in its worst run.
ERRORS = ("max_error", "relative_error")
ROUND, ROUND_SPREAD = "round_time_s", "round_time_spread"
LOGGED, PLANNED, STOPPED = "logged_losses", "effective_max_steps", "stopped_early"
WRONG, OTHER_LOSS, NOT_COMPARED = "faster but wrong", "other loss", "loss not compared"
INEXACT, FEWER_STEPS = "less exact", "fewer steps to target"
DOUBTS = (WRONG, OTHER_LOSS, INEXACT, FEWER_STEPS)
STEPS_TO_TARGET = target.STEPS
TO_TARGET = (target.TIME, target.TOKENS, target.STEPS, "cost_to_target")
BY_RATIO = frozenset(metric.name for metric in METRICS.values() if metric.by_ratio)

# Maps each metric with an interval over repeats to the columns of the interval's ends. A single run has its own interval of the
# step time.
INTERVALS: Mapping[str, tuple[str, str]] = {
    RATE: (f"{RATE}_low", f"{RATE}_high"),
    f"real_{RATE}": (f"real_{RATE}_low", f"real_{RATE}_high"),
    "step_time_s": ("step_time_low_s", "step_time_high_s"),
    **{name: (f"{name}_low", f"{name}_high") for name in ("cost_per_billion_tokens", "cost_to_finish")},
}

# The metrics of an experiment that are geometric means over its repeats. Ends of intervals and ratios are not means.
MEANS_OF_LOGS = BY_RATIO - {*chain.from_iterable(INTERVALS.values()), *(metric.name for metric in RELATIVE)}

_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps")
_LEARNING = (
    *("peft_method", "r", "lora_alpha", "lora_dropout", "target_modules", "learning_rate", "lr_scheduler_type"),
    *(
        "warmup_steps",
        "warmup_ratio",
        "weight_decay",
        "max_seq_len",
        "max_steps",
        "num_train_epochs",
        "seed",
        "data_seed",
    ),
)
_PACKING, _OFF = "packing", ("none", "false", "no", "off", "0", "")
BASELINES = ("baseline", NO_FRAMEWORK)
_SHARED = (
    *("results", "scenario", "model_name_or_path", "device", "trainer", "python", "environment", "data", "sources"),
)
_FRAMEWORK_FACTS, _CELL_FACTS = (*_SHARED, "framework_config"), (*_SHARED, "num_gpus")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """An experiment of the table: its facts, its arguments, and its numbers, which are means over repeats."""

    facts: Cells
    arguments: Cells
    numbers: Cells


def over_repeats(name: str, values: Sequence[float]) -> dict[str, Value]:
    """Return the mean of a metric over several runs, or the largest error. Add the interval if INTERVALS names the metric."""
    if name in ERRORS:
        return {name: max(values)}
    if name == ROUND and min(values) > 0:
        return {name: mean(values, by_ratio=True), ROUND_SPREAD: intervals.mean_of_logs(values).spread}
    if name == target.STEPS and min(values) > 0:
        summary = intervals.mean_of_logs(values)
        return {name: summary.mean, f"{name}_spread": summary.spread, f"{name}_runs": summary.n}
    if name not in INTERVALS or min(values) <= 0:
        return {name: mean(values, by_ratio=True)}
    summary = intervals.mean_of_logs(values)
    ends = (summary.interval.low, summary.interval.high) if summary.interval else (None, None)
    spread = {f"{RATE}_spread": summary.spread, f"{RATE}_runs": summary.n} if name == RATE else {}
    return {name: summary.mean, **dict(zip(INTERVALS[name], ends, strict=True)), **spread}


def mean(values: Sequence[float], *, by_ratio: bool) -> float:
    """Return the mean of a metric's values.

    It is the geometric mean if all values are positive and the metric is compared by ratios.
    """
    if by_ratio and min(values) > 0:
        return math.exp(math.fsum(map(math.log, values)) / len(values))
    return math.fsum(values) / len(values)


def compared(cells: Sequence[Cell]) -> Iterator[dict[str, Value]]:
    """Yield for each experiment its scaling efficiency, and its loss compared with the baseline's loss."""
    for cell, group, baseline in zip(cells, scaling_groups_of(cells), _loss_bases(cells), strict=True):
        yield {**_scaling(cell, group), **_target_against(cell, baseline), **loss_against(cell, baseline)}


def scaling_groups_of(cells: Sequence[Cell]) -> list[list[Cell] | None]:
    """Return for each experiment the group of its scaling, or None. The first of a group has the fewest GPUs on the fewest nodes.

    The group has the same batch per device. If there is no such group, it has the same global batch.
    """
    groups: dict[int, list[Cell]] = {}
    for group in reversed(scaling_groups(cells)):  # the groups of the same batch per device are the last, and override
        groups.update((id(cell), sorted(group, key=size)) for cell in group)
    return [groups.get(id(cell)) for cell in cells]


def scaling_groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Return the groups of experiments that differ only in their numbers of GPUs and nodes; each has at least two such sizes.

    All experiments of a group ran on the same GPU model.

    First come the groups of the same batch per device, then those of the same global batch. An experiment can be in both.
    """
    found: list[list[Cell]] = []
    models = [gpu_model(*(cell.numbers.get(name) for name in GPUS)) for cell in cells]
    for key in (_arguments, _global_batch):
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for place, cell in enumerate(cells):
            groups[key(cell)].append(place)
        alike = ([cells[place] for place in some] for group in groups.values() for some in by_gpu_model(group, models))
        found += (group for group in alike if len(set(map(size, group))) > 1)
    return found


def size(cell: Cell) -> tuple[int, int]:
    """Return the number of GPUs on all nodes, and the number of nodes."""
    gpus, nodes = (cell.facts.get(name) for name in ("num_gpus", "num_nodes"))
    return gpus if isinstance(gpus, int) else 1, nodes if isinstance(nodes, int) else 1


def _facts(cell: Cell, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(cell.facts.get(name) for name in names)


def _scaling(cell: Cell, group: Sequence[Cell] | None) -> dict[str, Value]:
    """Return the speed per GPU as a share of that of the first of the group. Return an empty dict without a group."""
    if not group:
        return {}
    name = scaled_speed(*group)
    mine, base = _number(cell, name), _number(group[0], name)
    return {"scaling_efficiency": mine / base} if mine is not None and base else {}


def scaled_speed(*cells: Cell) -> str:
    """Return the speed per GPU that shows the scaling of a group.

    It is the one without padding if the padding of all cells is known and differs.
    """
    shares = [_real_share(cell) for cell in cells]
    known = [share for share in shares if share is not None]
    is_other = len(known) == len(shares) and max(known) - min(known) > UNEXPLAINED_PADDING
    return REAL_PER_GPU if is_other else PER_GPU


def _real_share(cell: Cell) -> float | None:
    real, padded = _number(cell, REAL_PER_GPU), _number(cell, PER_GPU)
    return real / padded if real is not None and padded else None


def _loss_bases(cells: Sequence[Cell]) -> list[Cell | None]:
    """Return for each experiment the most similar experiment with the baseline framework, or None. The two losses should agree."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, cell in enumerate(cells):
        groups[_learning(cell)].append(place)
    bases: list[Cell | None] = [None] * len(cells)
    for places in groups.values():
        frameworks = {place: cells[place].facts.get("framework_config") for place in places}
        with_loss = [frameworks[place] for place in places if _number(cells[place], LOSS) is not None]
        baseline = baseline_of(list(frameworks.values()), with_loss)
        others = [place for place in places if frameworks[place] != baseline]
        if others:
            nearest = _nearest_of([cells[place] for place in places if frameworks[place] == baseline])
            for place in others:
                bases[place] = nearest(cells[place])
    return bases


def baseline_of(frameworks: Sequence[Value], preferred: Sequence[Value] = ()) -> Value:
    """Return `baseline` or `none` if `frameworks` has it, else the first of `preferred`, else the first of `frameworks`."""
    return next((name for name in BASELINES if name in frameworks), (preferred or frameworks)[0])


def _nearest_of(candidates: Sequence[Cell]) -> Callable[[Cell], Cell]:
    """Return a function that finds the candidate that differs from a cell in the fewest arguments.

    Arguments with the same value in all candidates are ignored. A candidate that agrees in all remaining arguments is found by
    a look-up.
    """
    counts = Counter(item for candidate in candidates for item in candidate.arguments.items())
    varying = sorted({name for (name, _), times in counts.items() if times < len(candidates)})

    def key(cell: Cell) -> tuple[Value, ...]:
        return tuple(cell.arguments.get(name) for name in varying)

    index = {key(candidate): candidate for candidate in reversed(candidates)}

    def nearest(cell: Cell) -> Cell:
        alike = index.get(key(cell))
        return alike or min(candidates, key=lambda other: len(other.arguments.items() ^ cell.arguments.items()))

    return nearest


def loss_against(cell: Cell, baseline: Cell | None) -> dict[str, Value]:
    """Return the difference from the baseline's loss over the same steps, as a share.

    If the losses cannot be compared, return a `doubt` that says so. Return an empty dict if the planned numbers of steps differ,
    since such trainings are expected to learn differently.
    """
    if baseline is None or _number(cell, LOSS) is None or _is_another_training(cell, baseline):
        return {}
    both = _losses(cell, baseline) if _number(baseline, LOSS) is not None else None
    if both is None or not both[1]:
        return {"doubt": NOT_COMPARED}
    difference = both[0] / both[1] - 1
    doubt: dict[str, Value] = {} if abs(difference) <= METRICS[LOSS].min_effect else {"doubt": _doubt(cell, baseline)}
    return {"loss_difference": difference, **doubt}


def _target_against(cell: Cell, baseline: Cell | None) -> dict[str, Value]:
    """Return a doubt if the cell needs significantly fewer steps to the target than the baseline. Then it is another training.

    The test is that of MLPerf's reference points: one-sided, at 5 %, with the variance of both sides together. Here it is over
    logarithms.
    """
    sides = [] if baseline is None else [_steps_to_target(side) for side in (cell, baseline)]
    (mine, theirs) = sides if len(sides) == 2 else (None, None)
    if mine is None or theirs is None:
        return {}
    (mean, spread, runs), (base, base_spread, base_runs) = mine, theirs
    degrees = runs + base_runs - 2
    variance = ((runs - 1) * spread**2 + (base_runs - 1) * base_spread**2) / degrees
    error = math.sqrt(variance * (1 / runs + 1 / base_runs))
    least = max(intervals.t_quantile(degrees, level=0.9) * error, math.log1p(METRICS[target.STEPS].min_effect))
    return {"doubt": FEWER_STEPS} if base - mean > least else {}


def _steps_to_target(cell: Cell) -> tuple[float, float, int] | None:
    """Return three values: the mean and the standard deviation of the logarithms of the runs' steps, and the number of runs."""
    mean, spread, runs = (_number(cell, f"{target.STEPS}{part}") for part in ("", "_spread", "_runs"))
    if mean is None or mean <= 0 or spread is None or runs is None or runs < 2:
        return None
    return math.log(mean), math.log1p(spread), int(runs)


def _is_another_training(cell: Cell, baseline: Cell) -> bool:
    """Return whether the planned numbers of steps differ. Older records contain only the number of steps made."""
    mine, theirs = _number(cell, PLANNED), _number(baseline, PLANNED)
    if mine is not None and theirs is not None:
        return mine != theirs
    return _number(baseline, LOSS) is not None and _number(cell, STEPS) != _number(baseline, STEPS)


def _losses(cell: Cell, baseline: Cell) -> tuple[float, float] | None:
    """Return two mean training losses, that of the cell and that of the baseline.

    The losses cover the whole runs if both sides made the same number of steps, else only the steps that both made. If repeats
    ended early, both sides may have the same mean number of steps although the repeats made different numbers of steps.
    """
    both = (cell, baseline)
    alike = cell.numbers.get(STEPS) == baseline.numbers.get(STEPS)
    texts = [str(side.numbers.get(LOGGED)) for side in both]
    if not alike or (any(side.numbers.get(STOPPED) for side in both) and any(", " in text for text in texts)):
        shared = losses.over_the_same_steps(*texts)
        if shared is not None:
            return shared.first, shared.second
        if not alike:
            return None
    mine, base = (_number(side, LOSS) for side in both)
    return None if mine is None or base is None else (mine, base)


def _learning(cell: Cell) -> Hashable:
    """Return everything that a loss depends on, except kernels and the number of steps."""
    arguments = tuple(cell.arguments.get(name) for name in _LEARNING)
    packed = str(cell.arguments.get(_PACKING)).lower() not in _OFF  # with several samples in a row, the batch differs
    return _facts(cell, _CELL_FACTS), cell.facts.get("global_batch"), packed, arguments


def _doubt(cell: Cell, baseline: Cell) -> str:
    mine, theirs = _number(cell, PER_GPU), _number(baseline, PER_GPU)
    return WRONG if mine and theirs and mine > theirs else OTHER_LOSS


def _arguments(cell: Cell) -> Hashable:
    return _facts(cell, _FRAMEWORK_FACTS), frozenset(cell.arguments.items())


def _global_batch(cell: Cell) -> Hashable:
    rest = frozenset((name, value) for name, value in cell.arguments.items() if name not in _BATCH)
    return _facts(cell, _FRAMEWORK_FACTS), rest, cell.facts.get("global_batch") or cell.facts.get("id")


def _number(cell: Cell, name: str) -> float | None:
    return finite(cell.numbers.get(name))
