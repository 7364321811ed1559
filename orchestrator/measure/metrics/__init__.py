"""The registry of columns. It has each column's meaning, unit and better direction, and the places that show the column.

METRICS are numbers or words that a run measured. FACTS describe an experiment and the end of its runs. SETTINGS are the settings in
effect in the training process (columns `effective_<name>`). A custom trainer may have other columns; they are shown unchanged.
This package does not measure or read anything. `report/tables/metrics_page.py` makes docs/metrics.md from the registry. Units are
base units (seconds, bytes, tokens, joules). One column is in MiB, as in the reference system.
"""

from __future__ import annotations

from orchestrator.measure.metrics import (
    gpu,
    memory,
    model,
    operators,
    shown,
    speed,
    step_parts,
    trainer,
    work,
)
from orchestrator.measure.metrics.facts import FACTS, SETTINGS
from orchestrator.measure.metrics.metric import DASH, MIB, ONE_RUN_EFFECT, Direction, Judged, Metric, Show, Where

__all__ = [
    "DASH",
    "FACTS",
    "METRICS",
    "MIB",
    "ONE_RUN_EFFECT",
    "OURS",
    "OVER_REPEATS",
    "SETTINGS",
    "Direction",
    "Judged",
    "Metric",
    "Show",
]
__all__ += ["Where", "columns", "metric", "show"]

_GROUPS = (
    *(
        speed.SPEED,
        step_parts.STEP_PARTS,
        operators.OPERATORS,
        trainer.FINAL,
        trainer.REPORTED,
        trainer.ROUNDS,
        work.RELATIVE,
        work.COMPARISON,
        memory.MEMORY,
    ),
    *(trainer.MEMORY, gpu.GPU, work.COST, work.WORK, model.MODEL),
)

METRICS: dict[str, Metric] = {metric.name: metric for group in _GROUPS for metric in group}

# The columns that describe a metric over repeats: its interval, its spread and the number of its runs. One run has none of them.
OVER_REPEATS = frozenset(
    {f"{name}{end}" for name in METRICS for end in ("_low", "_high", "_spread", "_runs")}.intersection(METRICS)
) | {"round_time_spread"}

# The names that no trainer may report: Tunebench makes these columns from records, from other columns, or from several rows.
_MADE = (*work.RELATIVE, *work.COMPARISON, *work.COST)
OURS = (
    frozenset(("wall_s", "neighbours", "load_per_core", "steal_share", *(metric.name for metric in _MADE)))
    | OVER_REPEATS
)


def columns(where: Where) -> tuple[str, ...]:
    """Return the names of the facts and metrics that a place shows, sorted by `order`."""
    known = sorted((*FACTS.values(), *METRICS.values()), key=lambda metric: metric.order)
    return tuple(metric.name for metric in known if where in metric.where)


def metric(name: str) -> Metric:
    """Return the entry of a column. A name that is not registered gets a plain entry."""
    known = METRICS.get(name) or FACTS.get(name)
    if known:
        return known
    setting = name.removeprefix("effective_")
    _, description = SETTINGS.get(setting, ("", ""))
    like = METRICS.get(setting)
    return Metric(name, name, description, unit=like.unit if like else None, show=like.show if like else Show.NUMBER)


def show(name: str, value: object) -> str:
    """Return a value as text for people, with its unit if the column's heading does not name the unit. None becomes a dash."""
    if value is None:
        return DASH
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return shown.text(value, metric(name).show)
