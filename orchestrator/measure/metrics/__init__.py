"""The registry: what every column of a report means, in which unit, which way is better, where and how people see it.

METRICS are numbers (or words) that a run measured; FACTS are what an experiment was and how its runs ended; SETTINGS
are what really took effect in the training process (columns `effective_<name>`). A name that is not here is allowed (a
custom trainer brings its own) and is shown as it is. Nothing here measures or reads anything; `report/metrics_page`
makes docs/metrics.md of it. Base units everywhere (seconds, bytes, tokens, joules); the one exception, MiB, is what the
reference's users know.
"""

from __future__ import annotations

from orchestrator.measure.metrics import gpu, memory, model, relative, shown, speed, trainer, work
from orchestrator.measure.metrics.facts import FACTS, SETTINGS
from orchestrator.measure.metrics.metric import DASH, MIB, ONE_RUN_EFFECT, Direction, Judged, Metric, Show, Where

__all__ = ["DASH", "FACTS", "METRICS", "MIB", "ONE_RUN_EFFECT", "SETTINGS", "Direction", "Judged", "Metric", "Show"]
__all__ += ["Where", "columns", "metric", "show"]

_GROUPS = (
    *(speed.SPEED, trainer.FINAL, relative.RELATIVE, work.BESIDE, memory.MEMORY),
    *(trainer.MEMORY, gpu.GPU, work.WORK, model.MODEL),
)

METRICS: dict[str, Metric] = {metric.name: metric for group in _GROUPS for metric in group}


def columns(where: Where) -> tuple[str, ...]:
    """Return the names of the facts and metrics that are shown there, by their order."""
    known = sorted((*FACTS.values(), *METRICS.values()), key=lambda metric: metric.order)
    return tuple(metric.name for metric in known if where in metric.where)


def metric(name: str) -> Metric:
    """Return what is known about a column; a plain entry for a name that is not registered."""
    known = METRICS.get(name) or FACTS.get(name)
    if known:
        return known
    setting = name.removeprefix("effective_")
    _, description = SETTINGS.get(setting, ("", ""))
    like = METRICS.get(setting)
    return Metric(name, name, description, unit=like.unit if like else None, show=like.show if like else Show.NUMBER)


def show(name: str, value: object) -> str:
    """Return a value as people read it, with its unit where the heading does not say it; a dash for None."""
    if value is None:
        return DASH
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return shown.text(value, metric(name).show)
