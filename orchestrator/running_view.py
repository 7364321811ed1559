"""A running run in words, for whoever shows one: `status` and the live display of `run`. Values to text."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.metrics import Show, show
from orchestrator.metrics.shown import text
from orchestrator.running import Activity

SEPARATOR = " · "


def seconds(value: float) -> str:
    """A duration as people read it."""
    return text(value, Show.SECONDS)


def doing(activity: Activity) -> str:
    """What a run is at, in one line: its phase, and of the rest what is known."""
    return SEPARATOR.join(_parts(activity))


def _parts(activity: Activity) -> Iterator[str]:
    yield activity.phase
    if activity.step is not None:
        yield f"step {activity.step}" + (f"/{activity.of}" if activity.of is not None else "")
    if activity.step_time_s is not None:
        yield f"{seconds(activity.step_time_s)}/step"
    if activity.tokens_per_s is not None:
        yield f"{show('tokens_per_s', activity.tokens_per_s)} tokens/s"
    if activity.loss is not None:
        yield f"loss {activity.loss:.3f}"
    if activity.memory_bytes is not None:
        yield f"{text(activity.memory_bytes, Show.BYTES)} in use"
