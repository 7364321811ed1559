"""The forecasts that a plan shows in its table, in its JSON document and in the lines below the table.

This module prints nothing. `MemoryOutlook` shows estimates of memory (`--fit`, `--gpu-memory`). `MachineOutlook` shows the state
and the GPU-hours of each experiment on another machine (`--assume`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import counted
from orchestrator.machine.provenance import Machine
from orchestrator.measure.flops import PEAKS
from orchestrator.plan.forecast import memory_fit
from orchestrator.plan.forecast.earlier_runs import EarlierRuns
from orchestrator.plan.forecast.gpu_hours import GpuHours
from orchestrator.plan.forecast.memory_fit.estimate import GIB
from orchestrator.plan.forecast.memory_fit.verdict import VISIBLE_SHARE
from orchestrator.plan.forecast.states import Forecast, State, forecast
from orchestrator.records import Experiment
from orchestrator.records.price import HOUR_S, Price

NOTHING = "-"
REASONS_SHOWN = 12


class Outlook(Protocol):
    """A forecast. It adds cells, keys and lines to a view of a plan.

    `elsewhere` says whether the plan is for another machine. Then the lines show the experiments' states on that machine.
    """

    elsewhere: ClassVar[bool]

    def cells(self, experiments: Sequence[Experiment]) -> Sequence[Mapping[str, str]]:
        """Return heading → text for each experiment: the texts that the forecast adds to the experiment's row."""
        ...

    def document(self, experiment: Experiment) -> dict[str, Any]:
        """Return the keys to add to the experiment's entry in a JSON document."""
        ...

    def totals(self, experiments: Sequence[Experiment]) -> dict[str, Any]:
        """Return the keys to add to the JSON document itself."""
        ...

    def lines(self, experiments: Sequence[Experiment]) -> list[str]:
        """Return the lines below the table."""
        ...


def outlook_of(
    *, fit: bool, gpu_memory: str | None, machine: Machine, results: Path | None, price: Price | None = None
) -> Outlook | None:
    """Return the outlook that the options of `plan` request, or None. Raises SelectionError if the options exclude each other."""
    if machine.assumed:
        if gpu_memory is not None:
            raise SelectionError("--assume already gives the GPUs' memory; leave --gpu-memory out")
        earlier = EarlierRuns.of(results) if results else EarlierRuns()
        return MachineOutlook(machine=machine, earlier=earlier, price=price)
    if gpu_memory is not None:
        return MemoryOutlook(memory_bytes=memory_fit.parse_memory(gpu_memory))
    return MemoryOutlook() if fit else None


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryOutlook:
    """Estimates of memory. If `memory_bytes` is given, the estimates are compared with GPUs of this memory."""

    memory_bytes: int | None = None
    elsewhere: ClassVar[bool] = False

    def cells(self, experiments: Sequence[Experiment]) -> Sequence[Mapping[str, str]]:
        return [{"memory": text} for text in memory_fit.column(experiments, gpu_memory_bytes=self.memory_bytes)]

    def document(self, experiment: Experiment) -> dict[str, Any]:
        return {"memory": memory_fit.json_value(experiment, gpu_memory_bytes=self.memory_bytes)}

    def totals(self, experiments: Sequence[Experiment]) -> dict[str, Any]:
        return {}

    def lines(self, experiments: Sequence[Experiment]) -> list[str]:
        counts = (
            [] if self.memory_bytes is None else [memory_fit.summary(experiments, gpu_memory_bytes=self.memory_bytes)]
        )
        return [*counts, *memory_fit.unmeasured_line(map(memory_fit.estimate, experiments))]


@dataclass(frozen=True, kw_only=True)
class MachineOutlook:
    """States and GPU-hours on an assumed machine, which has GPUs of one kind. With a price, also the cost of the GPU-hours."""

    machine: Machine
    earlier: EarlierRuns
    price: Price | None = None
    elsewhere: ClassVar[bool] = True
    _known: dict[str, Forecast] = field(default_factory=dict)

    @cached_property
    def memory_bytes(self) -> int:
        return self.machine.gpus[0].memory_bytes or 0

    def _forecast(self, experiment: Experiment) -> Forecast:
        found = self._known.get(experiment.id)
        if found is None:
            found = self._known[experiment.id] = forecast(experiment, self.machine, self.earlier)
        return found

    def cells(self, experiments: Sequence[Experiment]) -> Sequence[Mapping[str, str]]:
        return [self._cells(self._forecast(experiment)) for experiment in experiments]

    def _cells(self, found: Forecast) -> Mapping[str, str]:
        memory = f"{found.memory.device_bytes / GIB:.1f} GiB" if found.memory else NOTHING
        hours = hours_text(found.hours.hours) if found.hours else NOTHING
        return {"memory": memory, "GPU-hours": hours, "state": str(found.state)}

    def document(self, experiment: Experiment) -> dict[str, Any]:
        found = self._forecast(experiment)
        return {
            "memory": memory_fit.json_value(experiment, gpu_memory_bytes=self.memory_bytes),
            "state": str(found.state),
            "state_reason": asdict(found.reason) if found.reason else None,
            "gpu_hours": asdict(found.hours) if found.hours else None,
            "gpu_hours_unknown": found.no_hours,
        }

    def totals(self, experiments: Sequence[Experiment]) -> dict[str, Any]:
        found = [self._forecast(experiment) for experiment in experiments]
        states = Counter(one.state for one in found)
        gpu = self.machine.gpus[0]
        return {
            "assumed": {
                "gpus": len(self.machine.gpus),
                "gpu": gpu.name or None,
                "memory_bytes": gpu.memory_bytes,
                "peak_flops": PEAKS.get(gpu.name),
                "states": {str(state): states[state] for state in State},
                "gpu_hours": {str(state): total(found, state) for state in State if states[state]},
                **({"price": str(self.price), "cost": self._costs(experiments, found)} if self.price else {}),
            }
        }

    def lines(self, experiments: Sequence[Experiment]) -> list[str]:
        found = [self._forecast(experiment) for experiment in experiments]
        return [
            self._states_line(found),
            *_reason_lines(found),
            *self._hours_lines(experiments, found),
            *memory_fit.unmeasured_line(one.memory for one in found if one.memory),
            "The plan is for the assumed machine: packages, models and data of this machine were not checked.",
        ]

    def _hours_lines(self, experiments: Sequence[Experiment], found: Sequence[Forecast]) -> Iterator[str]:
        """Yield lines about the GPU-hours and their cost: for the experiments that run, and for those that may run.

        Further lines say why some hours are unknown, and where the hours come from.
        """
        costs = self._costs(experiments, found)
        for states in ((State.RUNS,), (State.MAY_NOT_FIT, State.UNKNOWN)):
            chosen = [one for one in found if one.state in states]
            known = [one.hours for one in chosen if one.hours]
            cost = sum(costs.get(str(state), 0.0) for state in states)
            words = " or ".join(_HOURS_OF[state] for state in states if any(one.state is state for one in chosen))
            if chosen:
                hours, runs = sum(one.hours for one in known), sum(one.runs for one in known)
                text = f"{hours_text(hours)} in {counted(runs, 'run')}" if known else "unknown"
                text += f", which cost {self.price.shown(cost)} at {self.price}" if self.price and cost else ""
                without = f", and {len(chosen) - len(known)} unknown" if known and len(known) < len(chosen) else ""
                yield f"GPU-hours of those that {words}: {text}{without}."
        for text, times in Counter(one.no_hours for one in found if one.no_hours).most_common():
            yield f"no GPU-hours, {times}×: {text}"
        yield from _source_lines([one.hours for one in found if one.hours])

    def _costs(self, experiments: Sequence[Experiment], found: Sequence[Forecast]) -> dict[str, float]:
        """Return the cost of the known GPU-hours in each state that has any."""
        costs = dict.fromkeys((str(one.state) for one in found if one.hours), 0.0)
        for one, of_one in zip(experiments, found, strict=True):
            if self.price and of_one.hours:
                seconds = of_one.hours.hours * HOUR_S / one.num_gpus
                costs[str(of_one.state)] += self.price.of_time(seconds, gpus=one.num_gpus, nodes=one.num_nodes) or 0.0
        return costs

    def _states_line(self, found: Sequence[Forecast]) -> str:
        states, gpu = Counter(one.state for one in found), self.machine.gpus[0]
        usable = f"{self.memory_bytes * VISIBLE_SHARE / GIB:.4g} GiB each for CUDA"
        kind = f"{len(self.machine.gpus)} × {gpu.name or 'GPU'} ({usable})"
        counts = ", ".join(f"{states[state]:,} {_COUNTED[state]}" for state in State if states[state])
        return f"{counted(len(found), 'experiment')} on {kind}: {counts or 'none'}."


_COUNTED = {
    State.RUNS: "run",
    State.DOES_NOT_FIT: "do not fit",
    State.MAY_NOT_FIT: "may not fit",
    State.UNKNOWN: "unknown",
    State.SKIPPED: "skipped",
}

_HOURS_OF = {State.RUNS: "run", State.MAY_NOT_FIT: "may not fit", State.UNKNOWN: "are unknown"}


def total(found: Sequence[Forecast], state: State) -> float | None:
    """Return the GPU-hours of all experiments in this state. Return None if the GPU-hours of any experiment are unknown."""
    hours = [one.hours.hours if one.hours else None for one in found if one.state is state]
    return None if None in hours else sum(hour for hour in hours if hour is not None)


def _reason_lines(found: Sequence[Forecast]) -> Iterator[str]:
    reasons = Counter((one.state, one.reason.text) for one in found if one.reason)
    for (state, text), times in reasons.most_common(REASONS_SHOWN):
        yield f"{state}, {times}×: {text}"
    if len(reasons) > REASONS_SHOWN:
        yield f"{len(reasons) - REASONS_SHOWN} more reasons; use --json to see all"


def _source_lines(known: Sequence[GpuHours]) -> Iterator[str]:
    assumed = dict.fromkeys((one.source, one.mfu, one.startup_s) for one in known if one.assumed)
    if assumed:
        shares = "; ".join(f"{source} {mfu:.0%}" for source, mfu, _ in sorted(assumed))
        startup = next(iter(assumed))[2]
        yield f"Assumed share of the peak (MFU): {shares}. Assumed start-up of each run: {startup:.0f} s."
    measured = Counter(one.source for one in known if not one.assumed)
    for source, times in measured.most_common():
        yield f"MFU and start-up by {source}: {counted(times, 'experiment')}."


def hours_text(hours: float) -> str:
    """Return GPU-hours as text with two digits; from 10 hours on, as a whole number. More digits would be meaningless."""
    if hours < 0.005:
        return "<0.01"
    digits = next((digits for limit, digits in ((1, 2), (10, 1)) if round(hours, digits) < limit), 0)
    return f"{hours:,.{digits}f}"
