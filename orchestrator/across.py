"""Numbers that no run has by itself: intervals over repeats, scaling over GPU counts, a loss beside the baseline's.

Functions from rows to cells; nothing of it is stored in a record, since a run does not know what it will be compared with.
`table` groups the rows and frames the result.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator import statistics
from orchestrator.metrics import METRICS
from orchestrator.rows import NO_FRAMEWORK, Value

Cells = Mapping[str, Value]

RATE, PER_GPU, LOSS, STEPS = "tokens_per_s", "tokens_per_s_per_gpu", "train_loss", "steps"
BY_RATIO = frozenset(metric.name for metric in METRICS.values() if metric.by_ratio)

LOSS_TOLERANCE = 0.05
"""By how much a mean training loss may differ from the baseline framework's before its row is doubted, as a share.

Runs of one scenario share data and seed, so that correct kernels differ by rounding; 5 % leaves room for quantised weights
and for batches that are put together in another way.
"""

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
_BASELINES = ("baseline", NO_FRAMEWORK)
_SHARED = ("results", "scenario", "model_name_or_path", "device", "trainer", "python", "data")
_FRAMEWORK_FACTS, _CELL_FACTS = (*_SHARED, "framework_config"), (*_SHARED, "num_gpus")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One experiment on its way into the table: what it was, what it was given, and its numbers, means over repeats."""

    facts: Cells
    arguments: Cells
    numbers: Cells


def over_repeats(name: str, values: Sequence[float]) -> dict[str, Value]:
    """A metric that is compared by ratios, of several runs: the mean of logs; for the headline its interval and spread."""
    if any(value <= 0 for value in values):
        return {name: math.fsum(values) / len(values)}
    summary = statistics.mean_of_logs(values)
    cells: dict[str, Value] = {name: summary.mean}
    if name == RATE and summary.interval is not None:
        cells |= {f"{RATE}_low": summary.interval.low, f"{RATE}_high": summary.interval.high}
        cells |= {f"{RATE}_spread": summary.spread, f"{RATE}_runs": summary.n}
    return cells


def compared(cells: Sequence[Cell]) -> Iterator[dict[str, Value]]:
    """For each experiment what the others say of it."""
    in_framework, in_cell = _alike(cells, _FRAMEWORK_FACTS), _alike(cells, _CELL_FACTS)
    for cell in cells:
        yield {
            **_scaling(cell, in_framework[_facts(cell, _FRAMEWORK_FACTS)]),
            **_loss(cell, in_cell[_facts(cell, _CELL_FACTS)]),
        }


def _alike(cells: Iterable[Cell], names: Sequence[str]) -> dict[tuple[Value, ...], list[Cell]]:
    groups: dict[tuple[Value, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[_facts(cell, names)].append(cell)
    return groups


def _facts(cell: Cell, names: Sequence[str]) -> tuple[Value, ...]:
    return tuple(cell.facts.get(name) for name in names)


def _scaling(cell: Cell, alike: Sequence[Cell]) -> dict[str, Value]:
    """Speed a GPU beside the same cell's at its smallest GPU count: of the same batch a device, else of the same batch in all."""
    mine = _number(cell, PER_GPU)
    if mine is None or len(alike) == 1:
        return {}
    for key in (_given, _global_batch):
        group = [one for one in alike if key(one) == key(cell)]
        if len({_gpus(one) for one in group}) > 1:
            base = _number(
                min(group, key=_gpus), PER_GPU
            )  # without it there is no efficiency: another base is another number
            return {"scaling_efficiency": mine / base} if base else {}
    return {}


def _loss(cell: Cell, alike: Sequence[Cell]) -> dict[str, Value]:
    """The loss beside that of the baseline framework's cell, where both made the same number of steps."""
    mine, framework = _number(cell, LOSS), cell.facts.get("framework_config")
    comparable = [one for one in alike if _learning(one) == _learning(cell)]
    names = {one.facts.get("framework_config") for one in comparable}
    baseline = next((name for name in _BASELINES if name in names), None)
    if mine is None or baseline is None or framework == baseline:
        return {}
    candidates = [one for one in comparable if one.facts.get("framework_config") == baseline]
    nearest = min(candidates, key=lambda one: len(one.arguments.items() ^ cell.arguments.items()))
    base = _number(nearest, LOSS)
    if not base:
        return {}
    difference = mine / base - 1
    doubt: dict[str, Value] = {} if abs(difference) <= LOSS_TOLERANCE else {"doubt": _doubt(cell, nearest)}
    return {"loss_difference": difference, **doubt}


def _learning(cell: Cell) -> object:
    """What a loss depends on besides kernels: losses of cells that differ in it do not compare."""
    return cell.numbers.get(STEPS), _global_batch_size(cell), [cell.arguments.get(name) for name in _LEARNING]


def _doubt(cell: Cell, baseline: Cell) -> str:
    mine, theirs = _number(cell, PER_GPU), _number(baseline, PER_GPU)
    return "faster but wrong" if mine and theirs and mine > theirs else "other loss"


def _given(cell: Cell) -> object:
    return dict(cell.arguments)


def _global_batch(cell: Cell) -> object:
    rest = {name: value for name, value in cell.arguments.items() if name not in _BATCH}
    return rest, cell.facts.get("global_batch") or cell.facts.get("id")


def _global_batch_size(cell: Cell) -> Value:
    return cell.facts.get("global_batch")


def _gpus(cell: Cell) -> int:
    count = cell.facts.get("num_gpus")
    return count if isinstance(count, int) else 1


def _number(cell: Cell, name: str) -> float | None:
    value = cell.numbers.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None
