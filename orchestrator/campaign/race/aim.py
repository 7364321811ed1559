"""The aim of a race: its objective, and its limits (`tunebench tune --objective --limit`). Pure.

An experiment leaves if a run needs more memory than the limit, or if the mean loss of its runs so far is above the limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from orchestrator.campaign.race.objective import Objective
from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import one_line
from orchestrator.measure.intervals.race import NoSpeed
from orchestrator.measure.memory_logs import finite
from orchestrator.plan.forecast.memory_fit import parse_memory
from orchestrator.records import Device, Experiment, RunRecord, Status
from orchestrator.records.price import Per, Price
from orchestrator.results.table.baseline import MEMORIES
from orchestrator.trainers import TRAINERS
from orchestrator.trainers.instrumented import InstrumentedTrainer

NVML = "nvml"
_LOSS = "train_loss"
_SHARE = re.compile(r"\+(?P<percent>\d{1,4}(\.\d{1,6})?)%", re.ASCII)
_ALLOWED = "write memory=80GiB, or loss=+1%"


@dataclass(frozen=True, kw_only=True, slots=True)
class Aim:
    """The objective and the limits of a race. `per` is the hour of the price, for the objective `cost`.

    `memory_bytes` is the most memory that a run may need on a device, and None means no limit.

    `loss` is how far an experiment's loss may be above the lowest loss of the race, as a share of the lowest. Both losses are means
    over the runs of an experiment, because the losses of single runs differ.
    """

    objective: Objective = Objective.SPEED
    per: Per = Per.GPU_HOUR
    memory_bytes: float | None = None
    loss: float | None = None

    @property
    def has_limits(self) -> bool:
        return self.memory_bytes is not None or self.loss is not None

    @property
    def is_over_gpus(self) -> bool:
        """True if experiments on different numbers of GPUs race against each other."""
        return self.objective is not Objective.SPEED

    def as_options(self) -> str:
        """Return the aim as options of the command line, without the price."""
        memory = f" --limit memory={self.memory_bytes / 2**30:.6g}GiB" if self.memory_bytes is not None else ""
        loss = f" --limit loss=+{100 * self.loss:.6g}%" if self.loss is not None else ""
        return f"--objective {self.objective}{memory}{loss}"

    def exceeded(self, records: Mapping[str, Sequence[RunRecord | None]]) -> dict[tuple[str, int], NoSpeed]:
        """Return NoSpeed.OVER_LIMIT for each run (id, place in its sequence) over a limit."""
        losses = {name: _means(of_one) for name, of_one in records.items()}
        found: dict[tuple[str, int], NoSpeed] = {}
        for name, of_one in records.items():
            for at, record in enumerate(of_one):
                memory, loss = _number(record, MEMORIES), losses[name][at]
                lowest = _lowest(losses.values(), at)
                too_large = self.memory_bytes is not None and memory is not None and memory > self.memory_bytes
                too_high = self.loss is not None and loss is not None and loss > lowest + self.loss * abs(lowest)
                if too_large or too_high:
                    found[name, at] = NoSpeed.OVER_LIMIT
        return found

    def unmeasured(self, records: Mapping[str, Sequence[RunRecord | None]]) -> list[str]:
        """Return the limits that no run of an experiment could be held to, as `--limit` names them."""
        every = [record for of_one in records.values() for record in of_one]
        limits = (("memory", self.memory_bytes, MEMORIES), ("loss", self.loss, (_LOSS,)))
        return [
            name
            for name, limit, metrics in limits
            if limit is not None
            and any(map(_is_ok, every))
            and not all(_has_one(of_one, metrics) for of_one in records.values())
        ]


SPEED = Aim()


def aim_of(objective: Objective, limits: Iterable[str], price: Price | None) -> Aim:
    """Return the aim that `--objective` and `--limit` name. Raise SelectionError for other limits, and for a missing price."""
    if objective is Objective.COST and not (price and price.amount):
        raise SelectionError(
            f"--objective {objective} needs a price above 0; add one, such as --price 2.50USD/GPUh, or 20USD/nodeh for CPUs"
        )
    memory, loss = None, None
    for word in limits:
        name, is_written, value = word.partition("=")
        if name == "memory" and is_written:
            memory = float(parse_memory(value, option="--limit memory"))
        elif name == "loss" and (match := _SHARE.fullmatch(value)):
            loss = float(match["percent"]) / 100
        else:
            raise SelectionError(f"--limit {one_line(word, longest=40)!r} is invalid; {_ALLOWED}")
    per = price.per if price else Per.GPU_HOUR
    return Aim(objective=objective, per=per, memory_bytes=memory, loss=loss)


def refuse_unmeasured(aim: Aim, experiments: Sequence[Experiment]) -> None:
    """Raise SelectionError if no monitor of an experiment measures what decides the race."""
    trainings = [one for one in experiments if isinstance(TRAINERS.get(one.trainer), InstrumentedTrainer)]
    for one in trainings if aim.memory_bytes is not None else ():
        if one.device is Device.CPU:
            raise SelectionError(
                f"--limit memory: scenario {one.scenario!r} uses no GPU, so its memory per device is not measured; leave the limit "
                "out, or choose the others with --scenario"
            )
        if not one.monitors:
            raise SelectionError(
                f"--limit memory: nothing measures the memory of scenario {one.scenario!r}; add --memory huggingface"
            )
    for one in trainings if aim.objective is Objective.ENERGY else ():
        if one.device is Device.CPU:
            raise SelectionError(
                f"--objective energy: scenario {one.scenario!r} uses no GPU, so its energy is not measured; choose the others with "
                "--scenario"
            )
        if NVML not in one.monitors:
            raise SelectionError(
                f"--objective energy: nothing measures the energy of scenario {one.scenario!r}; add --memory all, or "
                "monitors: [nvml]"
            )
    on_cpu = next((one for one in experiments if one.device is Device.CPU), None)
    if aim.objective is Objective.COST and aim.per is Per.GPU_HOUR and on_cpu is not None:
        raise SelectionError(
            f"--objective cost: scenario {on_cpu.scenario!r} uses no GPU, so a price per GPU-hour gives it no cost; write a price "
            "per node-hour, such as --price 20USD/nodeh"
        )


def _is_ok(record: RunRecord | None) -> bool:
    return record is not None and record.status is Status.OK


def _has_one(records: Sequence[RunRecord | None], metrics: Sequence[str]) -> bool:
    """Return whether a run of an experiment has one of these metrics. An experiment without an ok run needs none."""
    return not any(map(_is_ok, records)) or any(_number(record, metrics) is not None for record in records)


def _means(records: Sequence[RunRecord | None]) -> list[float | None]:
    """Return the mean loss of an experiment after each of its runs, or None before the first loss."""
    losses = [_number(record, (_LOSS,)) for record in records]
    known = [[loss for loss in losses[: at + 1] if loss is not None] for at in range(len(losses))]
    return [fmean(some) if some else None for some in known]


def _lowest(losses: Iterable[Sequence[float | None]], at: int) -> float:
    """Return the lowest mean loss after this run of each experiment. Of one with fewer runs, its last mean counts."""
    last = [of_one[: at + 1][-1] for of_one in losses if of_one]
    return min((loss for loss in last if loss is not None), default=0.0)


def _number(record: RunRecord | None, names: Sequence[str]) -> float | None:
    """Return the largest of these numbers of an ok run."""
    if record is None or record.status is not Status.OK:
        return None
    values = [finite(one.value) for one in record.measurements if one.name in names]
    return max((float(value) for value in values if value is not None), default=None)
