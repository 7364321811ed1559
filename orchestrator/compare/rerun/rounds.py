"""Order the runs of a rerun, and run them.

Base and new take turns, so that a drift of the machine affects both sides alike. A round contains every open pair once. The pairs
are shuffled, and so are the two sides of each pair. The seed comes from `suite.json` in the results folder of the first pair's new
side, so the order can be reproduced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.campaign.loop import Event, EventKind, OnEvent, run_benchmark
from orchestrator.campaign.status.campaign import Reader
from orchestrator.compare.rerun.readiness import Ready
from orchestrator.executors import Executor
from orchestrator.records import Experiment, Job, RunRecord, Status
from orchestrator.results.store import Store
from orchestrator.run import data_preparation


@dataclass(frozen=True, kw_only=True, slots=True)
class Contest:
    """An open pair that can run: its ready sides, base first."""

    label: str
    sides: tuple[Ready, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One run of the rerun."""

    ready: Ready
    repeat: int

    @property
    def job(self) -> Job:
        """Return the first attempt of the run."""
        return self.ready.store.job(self.ready.experiment.id, repeat=self.repeat, attempt=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The last records of the runs. `missing` counts the runs that have no record, because they are in progress elsewhere."""

    records: tuple[RunRecord, ...]
    missing: int

    @property
    def exit_code(self) -> int:
        """Return 0 if every run ended ok, else 1."""
        return 0 if not self.missing and all(record.status is Status.OK for record in self.records) else 1


def turns(contests: Sequence[Contest], *, seed: object) -> tuple[Turn, ...]:
    """Return all runs in their order."""
    order: list[Turn] = []
    rounds = max((len(side.repeats) for contest in contests for side in contest.sides), default=0)
    for number in range(rounds):
        chance = random.Random(f"{seed}:rerun:{number + 1}")
        for contest in chance.sample(contests, len(contests)):
            sides = [side for side in contest.sides if number < len(side.repeats)]
            order += [Turn(ready=side, repeat=side.repeats[number]) for side in chance.sample(sides, len(sides))]
    return tuple(order)


def seed_of(contests: Sequence[Contest]) -> object:
    """Return the recorded seed that determines the order."""
    new = next((contest.sides[-1] for contest in contests if contest.sides), None)
    return new.store.suite().get("seed", 0) if new else 0


def prepare_data(order: Sequence[Turn], *, on_event: Callable[[str], None]) -> tuple[str, ...]:
    """Prepare data that no longer exists. Return a sentence for each data set whose preparation failed."""
    return data_preparation.prepare_data([turn.ready.experiment for turn in order], on_event=on_event)


def readers(order: Sequence[Turn]) -> list[Reader]:
    """Return a reader for each results folder, limited to the experiments that run again."""
    folders = _by_folder(order)
    return [Reader(store, only={experiment.id for experiment in experiments}) for store, experiments in folders]


def carry_out(order: Sequence[Turn], *, cold: Executor, warm: Executor, on_event: OnEvent) -> Outcome:
    """Run the turns one after the other. The executor `warm` runs those that start warm, and `cold` runs all others.

    Both sides of a pair often have the same experiment, so its id does not tell how a run starts. After an interruption, a rerun of
    the same comparison continues with the remaining runs.
    """
    for store, experiments in _by_folder(order):
        store.add(experiments)
    text = f"{len(order)} run(s) are due"
    on_event(Event(kind=EventKind.HANDED_OVER, text=text, jobs=tuple(turn.job for turn in order)))

    def on_event_of_turn(event: Event) -> None:
        if event.kind is not EventKind.HANDED_OVER:  # the one HANDED_OVER event above has the jobs of all turns
            on_event(event)

    for turn in order:
        ready, repeats = turn.ready, (turn.repeat,)
        executor = warm if ready.starts_warm else cold
        run_benchmark(
            [ready.experiment], store=ready.store, executor=executor, repeats=repeats, on_event=on_event_of_turn
        )
    last = [_last_record(turn) for turn in order]
    return Outcome(records=tuple(record for record in last if record is not None), missing=last.count(None))


def _by_folder(order: Sequence[Turn]) -> Iterator[tuple[Store, list[Experiment]]]:
    folders: dict[str, tuple[Store, dict[str, Experiment]]] = {}
    for turn in order:
        _, experiments = folders.setdefault(str(turn.ready.store.root), (turn.ready.store, {}))
        experiments[turn.ready.experiment.id] = turn.ready.experiment
    return ((store, list(experiments.values())) for store, experiments in folders.values())


def _last_record(turn: Turn) -> RunRecord | None:
    attempts = [run for run in turn.ready.store.runs(turn.ready.experiment.id) if run.job.repeat == turn.repeat]
    return attempts[-1].record if attempts else None
