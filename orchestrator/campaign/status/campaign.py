"""The state of a campaign, read from its results folder: what is done, running, failed, owed or lost, and the time left.

`tunebench status` and the live display of `tunebench run` read a campaign here, and `status_view` shows it. Between two looks, the
disk is asked for little more than which folders have changed (`experiment_status`), so a view may look every second. Nothing is
started or ended here. Not visible here: whether somebody means to run what is pending; a caller who knows it says so (`expect`).
"""

from __future__ import annotations

import select
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from orchestrator.campaign.status import time_left
from orchestrator.campaign.status.experiment import (
    ExperimentStatus,
    Follower,
    RepeatState,
    RepeatStatus,
    is_settled,
    signature,
)
from orchestrator.campaign.status.time_left import Expectation, Span, Work
from orchestrator.errors import ResultsError
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.records import Job
from orchestrator.results.folder import SUITE_FILE
from orchestrator.results.store import Store

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0
# A pause is at least so many times as long as the look before it: under one percent of a core.
PAUSE_PER_LOOK = 150

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class CampaignStatus:
    """A results folder at one moment (`seen_at`: seconds since the epoch), its experiments in the order asked for.

    `left_s` is an estimate of the seconds until nothing is left to do; None where nothing says it. `warnings` are sentences, one
    for each file that cannot be read.
    """

    root: Path
    seen_at: float
    experiments: tuple[ExperimentStatus, ...]
    left_s: float | None
    warnings: tuple[str, ...] = ()

    def of(self, state: RepeatState) -> tuple[RepeatStatus, ...]:
        return tuple(one for cell in self.experiments for one in cell.repeats if one.state is state)

    def counts(self) -> Mapping[RepeatState, int]:
        """How many repeats are in each state."""
        found = Counter(one.state for cell in self.experiments for one in cell.repeats)
        return {state: found[state] for state in RepeatState}

    def is_over(self) -> bool:
        """Whether nothing runs and nothing is owed."""
        ended = (RepeatState.DONE, RepeatState.FAILED)
        return all(one.state in ended for cell in self.experiments for one in cell.repeats)


def chosen(store: Store, wanted: Sequence[str]) -> tuple[str, ...]:
    """The ids that these words name, each by a whole id or by a part that no other has; all of them without a word.

    Raises ResultsError for a word that names none, or several.
    """
    every = store.ids()
    return tuple(dict.fromkeys(_named(word, every, store.root) for word in wanted)) if wanted else tuple(every)


def _named(word: str, every: Sequence[str], root: Path) -> str:
    matches = [one for one in every if one == word] or [one for one in every if word in one]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join((matches or every)[:10]) + (", …" if len(matches or every) > 10 else "")
    if matches:
        raise ResultsError(f"{len(matches)} experiments of {root} have {word!r} in their id; name one of: {listed}")
    raise ResultsError(f"{root} has no experiment {word!r}; it has: {listed or 'none'}")


class Reader:
    """Looks at a results folder again and again; with `only`, at the experiments of these ids."""

    def __init__(self, store: Store, *, only: Collection[str] | None = None) -> None:
        self.store, self.only = store, only
        self._seen: object = None
        self._followers: dict[str, Follower] = {}
        self._expectation = Expectation(())
        self._spans: tuple[Span, ...] = ()
        self._owed: tuple[Work, ...] = ()
        self._expected: Sequence[Job] | None = None

    def expect(self, jobs: Iterable[Job]) -> None:
        """Count these runs as owed until they begin, whoever owes them: a call that retries failures runs more than is owed."""
        self._expected = [
            job for job in jobs if job.run_dir == self.store.run_dir(job.experiment_id, job.repeat, job.attempt)
        ]

    def look(self) -> CampaignStatus:
        """Return the campaign's status now."""
        now = time.time()
        self._find()
        followers = list(self._followers.values())
        expected, self._expected = self._expected, None
        for job in expected or ():
            if job.experiment_id in self._followers:
                self._followers[job.experiment_id].expect(job)
        changed = [one for one in followers if one.look()]
        if changed:
            self._settle(changed, followers)
        known = tuple(status for one in followers if (status := one.status()))
        return CampaignStatus(
            root=self.store.root,
            seen_at=now,
            experiments=known,
            left_s=self._left_s(known, now),
            warnings=(*(warning for one in followers for warning in one.warnings), *_damaged_steps(known)),
        )

    def _find(self) -> None:
        """The experiments; listed anew when there may be others."""
        folder = signature(self.store.root / "experiments")
        seen = (signature(self.store.root / SUITE_FILE), folder)
        if seen == self._seen and is_settled(folder):
            return
        self._seen = seen
        ids = [one for one in self.store.ids() if self.only is None or one in self.only]
        self._followers = {one: self._followers.get(one) or Follower(self.store, one) for one in ids}

    def _settle(self, changed: Sequence[Follower], followers: Sequence[Follower]) -> None:
        """What the changed ones owe now, and what all of it means for the time left."""
        owed: dict[str, list[Job]] = defaultdict(list)
        for job in self.store.plan([one.experiment for one in changed if one.experiment and not one.is_complete()]):
            owed[job.experiment_id].append(job)
        for one in changed:
            one.settle(owed[one.id])
        took = [took for one in followers for took in one.took]
        self._expectation = Expectation(took)
        self._spans = time_left.latest((one.began_at, one.ended_at, one.num_gpus) for one in took)
        self._owed = tuple(self._work(one) for one in followers if one.owed)

    def _work(self, one: Follower) -> Work:
        assert one.experiment is not None
        seconds = self._expectation.run_s(one.experiment)
        return Work(num_gpus=one.experiment.num_gpus, seconds=seconds, times=one.owed)

    def _left_s(self, known: Sequence[ExperimentStatus], now: float) -> float | None:
        works, spans = list(self._owed), list(self._spans)
        for cell in known:
            for one in cell.repeats:
                if one.state is not RepeatState.RUNNING:
                    continue
                elapsed_s = max(0.0, now - (one.since or now))
                by_steps_s = one.activity.left_s if one.activity else None
                left = self._expectation.remaining_s(cell.experiment, elapsed_s=elapsed_s, by_steps_s=by_steps_s)
                works.append(Work(num_gpus=cell.experiment.num_gpus, seconds=left))
                spans.append((now - elapsed_s, now, cell.experiment.num_gpus))
        return time_left.left_s(works, gpus_at_once=time_left.gpus_at_once(spans))


def _damaged_steps(known: Sequence[ExperimentStatus]) -> Iterator[str]:
    for cell in known:
        for one in cell.repeats:
            if one.activity is not None and one.activity.problem is not None:
                yield one.activity.problem


def paced(look: Callable[[], T], *, pause: Callable[[float], bool]) -> Iterator[T]:
    """Yield a look now, and further looks until `pause` says to stop. `pause(seconds)` waits, and returns True to stop.

    Waits a second between looks, and longer where a look with its drawing takes long: under one percent of a core in all.
    """
    pause_s = None
    while True:
        began = time.thread_time()
        yield look()
        took_s = time.thread_time() - began
        # The first look reads what later looks know, so it does not say how long they take.
        pause_s = SHORTEST_PAUSE_S if pause_s is None else max(SHORTEST_PAUSE_S, PAUSE_PER_LOOK * took_s)
        if pause(min(LONGEST_PAUSE_S, pause_s)):
            return


def looks(reader: Reader, *, pause: Callable[[float], bool]) -> Iterator[CampaignStatus]:
    """Yield paced looks until all is done."""
    for seen in paced(reader.look, pause=pause):
        yield seen
        if seen.is_over():
            return


def pause_on(stop: StopSignals) -> Callable[[float], bool]:
    """A pause for `looks` that a signal ends."""

    def pause(seconds: float) -> bool:
        select.select([stop], [], [], seconds)
        stop.drain()
        return stop.received is not None

    return pause
