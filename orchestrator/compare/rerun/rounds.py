"""The rounds of a rerun: which run comes when, and running them.

Base and new take turns, so that what drifts in the machine meets both alike: a round holds every open pair once, the pairs in a
shuffled order, the two sides of a pair one right after the other, which of them first again by chance. Chance is the seed of the
results folder that the first new side lies in, so that the order can be told from its `suite.json`.
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
    """An open pair as it can be run: the sides that are ready, base first."""

    label: str
    sides: tuple[Ready, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One run that is to be made."""

    ready: Ready
    repeat: int

    @property
    def job(self) -> Job:
        """Its first try."""
        return self.ready.store.job(self.ready.experiment.id, repeat=self.repeat, attempt=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The last records of the runs that were to be made; `missing` is how many have none, being at work elsewhere."""

    records: tuple[RunRecord, ...]
    missing: int

    @property
    def exit_code(self) -> int:
        """0 when every run ended well, else 1."""
        return 0 if not self.missing and all(record.status is Status.OK for record in self.records) else 1


def turns(contests: Sequence[Contest], *, seed: object) -> tuple[Turn, ...]:
    """Every run in its order."""
    return tuple(_turns(contests, seed))


def _turns(contests: Sequence[Contest], seed: object) -> Iterator[Turn]:
    rounds = max((len(side.repeats) for one in contests for side in one.sides), default=0)
    for number in range(rounds):
        chance = random.Random(f"{seed}:rerun:{number + 1}")
        for contest in chance.sample(contests, len(contests)):
            sides = [side for side in contest.sides if number < len(side.repeats)]
            for side in chance.sample(sides, len(sides)):
                yield Turn(ready=side, repeat=side.repeats[number])


def seed_of(contests: Sequence[Contest]) -> object:
    """The recorded seed that the order follows from."""
    last = next((one.sides[-1] for one in contests if one.sides), None)
    return last.store.suite().get("seed", 0) if last else 0


def prepare_data(order: Sequence[Turn], *, on_event: Callable[[str], None]) -> tuple[str, ...]:
    """Makes the data that is no longer there; a sentence for each that could not be made, and whose runs will fail."""
    return data_preparation.prepare_data([turn.ready.experiment for turn in order], on_event=on_event)


def readers(order: Sequence[Turn]) -> list[Reader]:
    """Return a reader for each results folder, of the experiments that run again."""
    return [Reader(store, only={one.id for one in experiments}) for store, experiments in _by_folder(order)]


def carry_out(order: Sequence[Turn], *, executor: Executor, on_event: OnEvent) -> Outcome:
    """Runs them one after the other. What is interrupted is owed by its folder, and the same comparison goes on with it."""
    for store, experiments in _by_folder(order):
        store.add(experiments)
    text = f"{len(order)} run(s) are due"
    on_event(Event(kind=EventKind.HANDED_OVER, text=text, jobs=tuple(turn.job for turn in order)))

    def tell(event: Event) -> None:
        if event.kind is not EventKind.HANDED_OVER:  # all of them were, at once
            on_event(event)

    for turn in order:
        run_benchmark(
            [turn.ready.experiment], store=turn.ready.store, executor=executor, repeats=(turn.repeat,), on_event=tell
        )
    last = [_last(turn) for turn in order]
    return Outcome(records=tuple(record for record in last if record is not None), missing=last.count(None))


def _by_folder(order: Sequence[Turn]) -> Iterator[tuple[Store, list[Experiment]]]:
    folders: dict[str, tuple[Store, dict[str, Experiment]]] = {}
    for turn in order:
        store, experiments = folders.setdefault(str(turn.ready.store.root), (turn.ready.store, {}))
        experiments[turn.ready.experiment.id] = turn.ready.experiment
    for store, experiments in folders.values():
        yield store, list(experiments.values())


def _last(turn: Turn) -> RunRecord | None:
    tries = [run for run in turn.ready.store.runs(turn.ready.experiment.id) if run.job.repeat == turn.repeat]
    return tries[-1].record if tries else None
