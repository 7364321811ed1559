"""The budget of a campaign: the most that its runs may use, and the decision whether the next run starts.

Runs of earlier calls count, so the same command does not spend its budget twice. A run in progress counts with the time that it is
expected to take, or with its time so far if this is longer. Only the starts of runs are limited: a run that takes longer than
expected may exceed the budget.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.campaign.status.expected_use import expected_s, gpus_of
from orchestrator.campaign.status.experiment import took
from orchestrator.campaign.status.time_left import Expectation, Took
from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import counted, rounded
from orchestrator.machine.provenance import Machine
from orchestrator.measure.metrics import Show
from orchestrator.measure.metrics.shown import text
from orchestrator.records import Experiment, Job
from orchestrator.records.price import HOUR_S, Per, Price
from orchestrator.results.contents import StoredRun
from orchestrator.results.store import Store

HOURS, GPU_HOURS = "h", "GPUh"
_BUDGET = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(h|GPUh|[A-Z]{3})", re.ASCII)

# The beginning and the end of a run, in seconds since the epoch, and its experiment.
_Span = tuple[float, float, Experiment]


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """The most that the runs of a campaign may use: hours, GPU-hours, or an amount of money in the currency `unit`."""

    amount: float
    unit: str

    def __str__(self) -> str:
        return f"{self.amount:.12g}{self.unit}"

    @property
    def gpu_hours(self) -> float:
        """The most GPU-hours that the runs may use; infinite if the budget has another unit."""
        return self.amount if self.unit == GPU_HOURS else math.inf

    def shown(self, used: float) -> str:
        return f"{rounded(used, 3)}{self.unit}"

    def refuse_without_gpus(self, experiments: Iterable[Experiment], price: Price | None) -> None:
        """Raise SelectionError if the budget limits only runs on GPUs, and no experiment uses a GPU."""
        by_gpus = self.unit == GPU_HOURS or (self.unit != HOURS and price is not None and price.per is Per.GPU_HOUR)
        if by_gpus and not any(map(gpus_of, experiments)):
            raise SelectionError(
                f"--budget {self}: runs on CPUs use no GPU-hours, so this budget limits nothing; write hours, such as --budget 2h"
            )


def parse_budget(words: str, *, price: Price | None) -> Budget:
    """Return the budget of `--budget`. Raise SelectionError if it is not one, or if no price is known in its currency."""
    found = _BUDGET.fullmatch(words.strip())
    if found is None or not float(found[1]):
        raise SelectionError(
            f"--budget {words[:60]!r} is invalid; write hours, GPU-hours or money, such as 2h, 8GPUh or 50USD"
        )
    budget = Budget(amount=float(found[1]), unit=found[2])
    if budget.unit in (HOURS, GPU_HOURS) or (price and price.currency == budget.unit):
        return budget
    known = f"the price is {price}" if price else "no price is known"
    raise SelectionError(
        f"--budget {words}: {known}; write the price in {budget.unit}, such as --price 2.50{budget.unit}/GPUh"
    )


@dataclass(kw_only=True, slots=True)
class Spending:
    """The use of a budget by the runs of these experiments in a results folder, those of earlier calls included.

    `may_start` decides for each run before it starts. After the first run that does not fit, `is_over` is true and no run starts.
    In a race (`is_race`), later rounds may follow the runs that are left.
    """

    budget: Budget
    price: Price | None
    experiments: Mapping[str, Experiment]
    store: Store
    machine: Callable[[], Machine]
    is_race: bool = False
    is_over: bool = False
    next_s: float = 0.0
    next_use: float = 0.0
    _ended: list[_Span] = field(default_factory=list)
    _counted: set[Job] = field(default_factory=set)
    _took: list[Took] = field(default_factory=list)
    _running: dict[Job, tuple[float, float]] = field(default_factory=dict)

    @staticmethod
    def of(
        budget: Budget,
        price: Price | None,
        experiments: Sequence[Experiment],
        store: Store,
        *,
        machine: Callable[[], Machine],
        is_race: bool = False,
    ) -> Spending:
        """Return the spending of a campaign, with the runs that have ended in its folder."""
        known = {one.id: one for one in experiments}
        spending = Spending(
            budget=budget, price=price, experiments=known, store=store, machine=machine, is_race=is_race
        )
        spending.note_ended()
        return spending

    def note_ended(self) -> None:
        """Count the runs that have ended in the folder. This call may just have recorded some of them as lost."""
        for stored in self.store.contents().experiments:
            if stored.experiment.id in self.experiments:
                for run in stored.runs:
                    self._note_end(run)

    def may_start(self, job: Job) -> bool:
        """Return whether a run fits into the rest of the budget. Count it as running if it does."""
        if self.is_over:
            return False
        now = time.time()
        self._note_ends()
        one, expectation = self.experiments[job.experiment_id], Expectation(self._took)
        machine = None if self._took else self.machine()
        seconds = expected_s(one, expectation, machine) or 0.0
        next_run = (now, now + seconds, one)
        if self._used(now) >= self.budget.amount or self._used(now, next_run) > self.budget.amount:
            self.is_over, self.next_s, self.next_use = True, seconds, self._of_run(seconds, one)
            return False
        self._running[job] = (now, seconds)
        return True

    def line(self, due: int) -> str:
        """Return a sentence that says what is used, and how many runs are left."""
        self._note_ends()
        used = self.budget.shown(self._used(time.time()))
        use = "" if self.budget.unit == HOURS else f" ({self.budget.shown(self.next_use)})"
        expected = f", and the next run may take {text(self.next_s, Show.SECONDS)}{use}" if self.next_s else ""
        left = f"{'at least ' if self.is_race else ''}{counted(due, 'run')} {'is' if due == 1 else 'are'} left"
        return (
            f"--budget {self.budget}: {used} used{expected}; {left}, which the same command with a larger --budget runs"
        )

    def _used(self, now: float, *next_run: _Span) -> float:
        """Return what the runs use until the running runs have ended, in the budget's unit."""
        running = (
            (began_at, max(now, began_at + seconds), self.experiments[job.experiment_id])
            for job, (began_at, seconds) in self._running.items()
        )
        spans = (*self._ended, *running, *next_run)
        if self.budget.unit == HOURS:
            return _union_s((began_at, ended_at) for began_at, ended_at, _ in spans) / HOUR_S
        return sum(self._of_run(ended_at - began_at, one) for began_at, ended_at, one in spans)

    def _of_run(self, seconds: float, one: Experiment) -> float:
        """Return the GPU-hours or the cost of a run."""
        if self.budget.unit == GPU_HOURS:
            return seconds * gpus_of(one) / HOUR_S
        return (self.price and self.price.of_time(seconds, gpus=gpus_of(one), nodes=one.num_nodes)) or 0.0

    def _note_ends(self) -> None:
        for job in list(self._running):
            if job.folder.record.exists():
                del self._running[job]
                self._note_end(self.store.run(job))

    def _note_end(self, run: StoredRun) -> None:
        """Count a run that has ended. A cancelled run has used its time, but does not show how long a run takes."""
        if run.record is None or run.job in self._counted:
            return
        self._counted.add(run.job)
        one = self.experiments[run.job.experiment_id]
        by_itself, ended_at = took(one, run), run.record.started_at + run.record.wall_s
        self._ended.append((ended_at - (by_itself.seconds if by_itself else run.record.wall_s), ended_at, one))
        if by_itself is not None:
            self._took.append(by_itself)


def _union_s(spans: Iterable[tuple[float, float]]) -> float:
    """Return the seconds in which at least one of the spans is in progress."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
