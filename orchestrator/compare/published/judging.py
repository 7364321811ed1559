"""Judge published values: each is met, explained, not met, not run, or cannot run on this machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.compare.published.values import COUNTED, Cell, Found, Value
from orchestrator.records import Experiment, Gpu


class State(StrEnum):
    """The result for a published value. `EXPLAINED`: Tunebench measures something else by intention, and this is met."""

    MET = "met"
    EXPLAINED = "explained"
    NOT_MET = "not met"
    NOT_RUN = "not run"
    CANNOT_RUN = "cannot run here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result for a published value. `ours` is Tunebench's number in the value's unit, or None with the `reason`."""

    value: Value
    state: State
    ours: float | None = None
    reason: str = ""
    software: str = ""


def experiment_of(value: Value, cell: Cell, experiments: Sequence[Experiment]) -> Experiment:
    """Return the only experiment of the value's scenario that has the cell's arguments."""
    texts = {name: None if one is None else str(one) for name, one in cell.items()}
    alike = [
        one
        for one in experiments
        if one.scenario == value.scenario and all(one.arguments.get(name) == text for name, text in texts.items())
    ]
    (found,) = alike
    return found


def judge(
    values: Sequence[Value],
    experiments: Sequence[Experiment],
    *,
    counted: Mapping[str, Found],
    recorded: Mapping[str, Found],
    gpus: Sequence[Gpu],
) -> tuple[Outcome, ...]:
    """Return the outcome of each value.

    Both mappings have the ids of experiments. `counted` has numbers that need no run, and `recorded` has the numbers of runs.
    """
    return tuple(_judge(one, experiments, counted if one.metric in COUNTED else recorded, gpus) for one in values)


def _judge(value: Value, experiments: Sequence[Experiment], known: Mapping[str, Found], gpus: Sequence[Gpu]) -> Outcome:
    needed = [experiment_of(value, cell, experiments) for cell in value.cells]
    found = [known.get(one.id) for one in needed]
    numbers = tuple(one.numbers[value.metric] for one in found if one is not None and value.metric in one.numbers)
    if len(numbers) < len(needed):
        state, reason = _without_number(value, needed, found, gpus)
        return Outcome(value=value, state=state, reason=reason)
    ours = value.combined(numbers)
    software = "; ".join(dict.fromkeys(one.software for one in found if one is not None and one.software))
    return Outcome(value=value, state=_state(value, ours), ours=ours, software=software)


def _state(value: Value, ours: float) -> State:
    if value.is_near(ours, value.published):
        return State.MET
    is_explained = value.expected is not None and value.is_near(ours, value.expected)
    return State.EXPLAINED if is_explained else State.NOT_MET


def _without_number(
    value: Value, needed: Sequence[Experiment], found: Sequence[Found | None], gpus: Sequence[Gpu]
) -> tuple[State, str]:
    """Return why a value has no number: a run failed, this machine cannot make the run, or there is no run yet."""
    for one in found:
        if one is not None and value.metric not in one.numbers:
            state = State.CANNOT_RUN if value.metric in COUNTED else State.NOT_RUN
            return state, one.problem or f"the run has no {value.metric}"
    if max((gpu.memory_bytes or 0 for gpu in gpus), default=0) < value.source.gpu_gib * 2**30:
        return State.CANNOT_RUN, f"needs a GPU with {value.source.gpu_gib} GiB"
    for experiment in needed:
        if reason := experiment.skip or experiment.cannot_run_here:
            return State.CANNOT_RUN, reason.text
    return State.NOT_RUN, "no run yet"
