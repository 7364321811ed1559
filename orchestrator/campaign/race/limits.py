"""The limits of a race (`tunebench tune --limit`): an experiment whose run is over a limit leaves. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import one_line
from orchestrator.measure.intervals.race import NoSpeed
from orchestrator.plan.forecast.memory_fit import parse_memory
from orchestrator.records import Experiment, RunRecord, Status
from orchestrator.results.table.baseline import MEMORIES
from orchestrator.trainers import TRAINERS
from orchestrator.trainers.instrumented import InstrumentedTrainer

_LOSS = "train_loss"
_SHARE = re.compile(r"\+(?P<percent>\d{1,4}(\.\d{1,6})?)%", re.ASCII)
_ALLOWED = "write memory=80GiB, or loss=+1%"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """`memory_bytes` is the most memory that a run may need on a device, and None means no limit.

    `loss` is how far a run's loss may be above the lowest loss of the race, as a share of the lowest.
    """

    memory_bytes: float | None = None
    loss: float | None = None

    def exceeded(self, records: Mapping[str, Sequence[RunRecord | None]]) -> dict[tuple[str, int], NoSpeed]:
        """Return NoSpeed.OVER_LIMIT for each run (id, place in its sequence) over a limit."""
        losses = {
            (name, at): loss
            for name, of_one in records.items()
            for at, record in enumerate(of_one)
            if (loss := _number(record, (_LOSS,))) is not None
        }
        lowest = min(losses.values(), default=0.0)
        found: dict[tuple[str, int], NoSpeed] = {}
        for name, of_one in records.items():
            for at, record in enumerate(of_one):
                memory, loss = _number(record, MEMORIES), losses.get((name, at))
                too_large = self.memory_bytes is not None and memory is not None and memory > self.memory_bytes
                too_high = self.loss is not None and loss is not None and loss > lowest + self.loss * abs(lowest)
                if too_large or too_high:
                    found[name, at] = NoSpeed.OVER_LIMIT
        return found


NO_LIMITS = Limits()


def limits_of(words: Iterable[str]) -> Limits:
    """Return the limits that `--limit` names. Raise SelectionError for other words."""
    memory, loss = None, None
    for word in words:
        name, is_written, value = word.partition("=")
        if name == "memory" and is_written:
            memory = float(parse_memory(value, option="--limit memory"))
        elif name == "loss" and (match := _SHARE.fullmatch(value)):
            loss = float(match["percent"]) / 100
        else:
            raise SelectionError(f"--limit {one_line(word, longest=40)!r} is invalid; {_ALLOWED}")
    return Limits(memory_bytes=memory, loss=loss)


def refuse_unmeasured(limits: Limits, experiments: Iterable[Experiment]) -> None:
    """Raise SelectionError if an experiment has a limit of memory, and no monitor that measures memory."""
    unmeasured = next((one for one in experiments if not one.monitors and _needs_monitor(one)), None)
    if limits.memory_bytes is not None and unmeasured is not None:
        raise SelectionError(
            f"--limit memory: nothing measures the memory of scenario {unmeasured.scenario!r}; add --memory huggingface"
        )


def _needs_monitor(one: Experiment) -> bool:
    return isinstance(TRAINERS.get(one.trainer), InstrumentedTrainer)


def _number(record: RunRecord | None, names: Sequence[str]) -> float | None:
    """Return the largest of these numbers of an ok run."""
    if record is None or record.status is not Status.OK:
        return None
    values = [one.value for one in record.measurements if one.name in names]
    return max((float(value) for value in values if isinstance(value, (int, float))), default=None)
