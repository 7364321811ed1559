"""Time, tokens and optimizer steps until a training's loss reaches the target of its scenario.

The loss is the mean of the last ten losses that the Trainer logged. The time is from the start of the training loop to the moment
when rank 0 logged the tenth of these losses. It includes warm-up, compilation and evaluation, but not the loading of the model. The
tokens are those of all steps until then, padding included.

A run does not stop at the target. A run that ended without reaching it has no such numbers, and a reason instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.measure.losses import Point
from orchestrator.measure.steps import Step
from orchestrator.records import Caveat, Measurement, Target

# Number of logged losses in the mean.
LOSSES = 10
TIME, TOKENS, STEPS = "time_to_target_s", "tokens_to_target", "steps_to_target"
_SOURCE = "logged losses of rank 0"


def running_means(logged: Sequence[Point]) -> Iterator[Point]:
    """Yield the step of each logged loss from the tenth on, and the mean of the last ten losses."""
    for end in range(LOSSES, len(logged) + 1):
        yield logged[end - 1][0], math.fsum(loss for _, loss in logged[end - LOSSES : end]) / LOSSES


def step_of_target(logged: Sequence[Point], target: float) -> int | None:
    """Return the first step at which the mean of the last ten logged losses is at most the target, or None."""
    return next((step for step, mean in running_means(logged) if mean <= target), None)


def measurements(target: Target, first: Mapping[str, Any], steps: Sequence[Step]) -> tuple[Measurement, ...]:
    """Return the three numbers of a run.

    `first` is the content of rank 0's file, and `steps` are the common steps of all ranks.
    """
    try:
        logged = [(int(step), float(loss)) for step, loss in first.get("losses") or ()]
        times = {int(step): float(at) for step, at in first.get("log_times") or ()}
        began = float((first.get("stamps") or {})["train_begin"])
    except (TypeError, ValueError, KeyError, OverflowError):  # the training wrote the file, and a loss may be null
        return _missing("its losses or their times cannot be read")
    step = step_of_target(logged, target.loss)
    if step is None:
        return _missing(_why_not(logged, target.loss))
    seconds = times.get(step, math.nan) - began
    tokens = [one.tokens for one in steps if one.number <= step]
    known = [count for count in tokens if count is not None]
    values = {
        TIME: seconds if 0 < seconds < math.inf else None,
        TOKENS: sum(known) if len(known) == step else None,
        STEPS: step,
    }
    unknown = Caveat(detail="not all steps until the target were counted")
    return tuple(
        Measurement(name=name, value=value, source=_SOURCE, missing=unknown if value is None else None)
        for name, value in values.items()
    )


def _why_not(logged: Sequence[Point], target: float) -> str:
    if len(logged) < LOSSES:
        few = f"{len(logged)} losses were logged, and the mean needs {LOSSES}"
        return f"did not reach the target {target:.6g}: {few}; lower logging_steps or raise max_steps"
    step, lowest = min(running_means(logged), key=lambda point: point[1])
    return f"did not reach the target {target:.6g}: the lowest mean of {LOSSES} logged losses is {lowest:.6g}, at step {step}"


def _missing(why: str) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(name=name, value=None, source=_SOURCE, missing=Caveat(detail=why)) for name in (TIME, TOKENS, STEPS)
    )


def seeds_needed(spread: float, difference: float) -> int:
    """Return how many runs per side show a difference with a power of 80 %, two-sided at 5 %.

    `spread` is the relative standard deviation between runs, and `difference` is a share.
    """
    return math.ceil(15.7 * (spread / difference) ** 2)
