"""The state of a campaign, read from its results folder: the runs that are done, running, failed, due or lost, and the time left.

`tunebench status` and the live display of `tunebench run` use this module, and `view` shows the result. Most looks only check which
folders have changed (see `experiment`), so a view can look every second. This module starts and ends no run. The files do not show
the runs that a caller is going to start, so the caller names these runs with `expect`.
"""

from __future__ import annotations

import select
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from orchestrator.records.labels import labels
from orchestrator.results import folder
from orchestrator.results.folder import RACE_FILE, SUITE_FILE
from orchestrator.results.naming import find
from orchestrator.results.store import Store

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0
# A pause is at least this many times as long as the look before it. So looks use less than one percent of a core.
PAUSE_PER_LOOK = 150

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class CampaignStatus:
    """The state of a campaign at the time `seen_at` (seconds since the epoch). Its experiments are in the requested order.

    `left_s` is an estimate of the seconds until everything is done; None if unknown. `warnings` has a sentence for each file that
    cannot be read. `unread` counts the experiments that are missing or cannot be read. `labels` maps an experiment's id to the
    values that distinguish it, if the id does not show them. `queue` describes the jobs in a cluster's queue. `is_racing`: a race
    (`tunebench tune`) is not over. Then the repeats are those up to its present round, and the number of later ones is unknown.
    """

    root: Path
    seen_at: float
    experiments: tuple[ExperimentStatus, ...]
    left_s: float | None
    warnings: tuple[str, ...] = ()
    unread: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    queue: tuple[str, ...] = ()
    is_racing: bool = False

    def of(self, state: RepeatState) -> tuple[RepeatStatus, ...]:
        return tuple(repeat for repeat in self.repeats() if repeat.state is state)

    def repeats(self) -> Iterator[RepeatStatus]:
        return (repeat for experiment in self.experiments for repeat in experiment.repeats)

    def counts(self) -> Mapping[RepeatState, int]:
        """Return the number of repeats in each state."""
        counts = Counter(repeat.state for repeat in self.repeats())
        return {state: counts[state] for state in RepeatState}

    def is_over(self) -> bool:
        """Return whether nothing runs, nothing is due, and no race goes on. Nobody knows this if an experiment cannot be read."""
        return (
            not self.unread
            and not self.is_racing
            and all(repeat.state in (RepeatState.DONE, RepeatState.FAILED) for repeat in self.repeats())
        )


def chosen(store: Store, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that `wanted` names, or all ids if it is empty. Raise ResultsError as `find` does."""
    return tuple(dict.fromkeys(find(store, word) for word in wanted)) or tuple(store.ids())


class Reader:
    """A reader that looks at a results folder repeatedly. With `only`, it looks only at the experiments with these ids.

    `queue` returns sentences about the jobs in a cluster's queue.
    """

    def __init__(
        self,
        store: Store,
        *,
        only: Collection[str] | None = None,
        queue: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.store, self.only, self.queue = store, only, queue
        self._seen: object = None
        self._made_at: object = None
        self._followers: dict[str, Follower] = {}
        self._expectation = Expectation(())
        self._spans: tuple[Span, ...] = ()
        self._due: tuple[Work, ...] = ()
        self._expected: Sequence[Job] | None = None
        self._labels: Mapping[str, str] = {}
        self._missing: tuple[str, ...] = ()
        self._race_file: object = None
        self._rounds: Sequence[Mapping[str, int]] = ()

    def expect(self, jobs: Iterable[Job]) -> None:
        """Count these runs as due until they begin. The files do not show that a call with retries is going to start them."""
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
        changed = [follower for follower in followers if follower.look()]
        if changed:
            self._settle(changed, followers)
        known = tuple(status for follower in followers if (status := follower.status()))
        return CampaignStatus(
            root=self.store.root,
            seen_at=now,
            experiments=known,
            left_s=self._left_s(known, now),
            warnings=(
                *(warning for follower in followers for warning in follower.warnings),
                *self._missing,
                *_damaged_steps(known),
            ),
            unread=len(followers) - len(known) + len(self._missing),
            labels=self._labels_of(known),
            queue=self.queue(),
            is_racing=self._is_racing(known),
        )

    def _is_racing(self, known: Sequence[ExperimentStatus]) -> bool:
        """Return whether a race is not over. A later `tunebench run` ends it: then experiments have more repeats than its round."""
        file = signature(self.store.root / RACE_FILE)
        if file != self._race_file or not is_settled(file):
            self._race_file = file
            self._rounds = [folder.repeats_of_round(race) for race in folder.races(self.store.root)]
        repeats = {status.experiment.id: status.experiment.repeats for status in known}
        return any(
            not repeats.keys().isdisjoint(of_round)
            and all(repeats.get(name, 0) <= most for name, most in of_round.items())
            for of_round in self._rounds
        )

    def _labels_of(self, known: Sequence[ExperimentStatus]) -> Mapping[str, str]:
        experiments = [status.experiment for status in known]
        if self._labels.keys() != {experiment.id for experiment in experiments}:
            self._labels = labels(experiments)
        return self._labels

    def _find(self) -> None:
        """List the experiments again if the folder that contains them may have changed.

        Raise ResultsError if the results folder is gone, or if another one has taken its place: the runs of this one are not over.
        """
        folder = signature(self.store.root / "experiments")
        seen = (signature(self.store.root / SUITE_FILE), folder)
        if seen == self._seen and is_settled(folder):
            return
        made_at = Store.resume(self.store.root).suite().get("created")
        if self._made_at not in (None, made_at):
            raise ResultsError(f"{self.store.root}: another results folder has taken its place; repeat the command")
        present = self.store.ids()
        ids = [name for name in present if self.only is None or name in self.only]
        missing = self.store.missing(present).items()
        self._missing = tuple(sentence for name, sentence in missing if self.only is None or name in self.only)
        self._followers = {name: self._followers.get(name) or Follower(self.store, name) for name in ids}
        self._seen, self._made_at = seen, made_at

    def _settle(self, changed: Sequence[Follower], followers: Sequence[Follower]) -> None:
        """Update the due runs of the changed experiments, and the expected times of runs."""
        due: dict[str, list[Job]] = defaultdict(list)
        for job in self.store.plan([one.experiment for one in changed if one.experiment and not one.is_complete()]):
            due[job.experiment_id].append(job)
        for follower in changed:
            follower.settle(due[follower.id])
        took = [took for follower in followers for took in follower.took]
        self._expectation = Expectation(took)
        self._spans = time_left.latest((run.began_at, run.ended_at, run.num_gpus) for run in took)
        self._due = tuple(
            Work(num_gpus=experiment.num_gpus, seconds=self._expectation.run_s(experiment), times=follower.due)
            for follower in followers
            if (experiment := follower.experiment) and follower.due
        )

    def _left_s(self, known: Sequence[ExperimentStatus], now: float) -> float | None:
        works, spans = list(self._due), list(self._spans)
        for experiment, repeat in ((status.experiment, repeat) for status in known for repeat in status.repeats):
            if repeat.state is RepeatState.RUNNING:
                elapsed_s = max(0.0, now - (repeat.since or now))
                by_steps_s = repeat.activity.left_s if repeat.activity else None
                left = self._expectation.remaining_s(experiment, elapsed_s=elapsed_s, by_steps_s=by_steps_s)
                works.append(Work(num_gpus=experiment.num_gpus, seconds=left))
                spans.append((now - elapsed_s, now, experiment.num_gpus))
        return time_left.left_s(works, gpus_at_once=time_left.gpus_at_once(spans))


def _damaged_steps(known: Sequence[ExperimentStatus]) -> Iterator[str]:
    for activity in (repeat.activity for status in known for repeat in status.repeats):
        if activity is not None and activity.problem is not None:
            yield activity.problem


def paced(look: Callable[[], T], *, pause: Callable[[float], bool]) -> Iterator[T]:
    """Call `look` repeatedly and yield each result, until `pause` returns True. `pause(seconds)` waits for this time.

    Wait a second between looks. If a look and its drawing take long, wait longer, so that looking and drawing use less than one
    percent of a core.
    """
    pause_s = None
    while True:
        began = time.thread_time()
        yield look()
        took_s = time.thread_time() - began
        # The first look also reads what later looks already know, so its time is not used.
        pause_s = SHORTEST_PAUSE_S if pause_s is None else max(SHORTEST_PAUSE_S, PAUSE_PER_LOOK * took_s)
        if pause(min(LONGEST_PAUSE_S, pause_s)):
            return


@contextmanager
def watching(look: Callable[[], object]) -> Iterator[None]:
    """Call `look` repeatedly in a thread, with pauses, until the `with` block ends.

    If the user may start no more threads, do not call it.
    """
    over = threading.Event()
    thread = threading.Thread(target=lambda: deque(paced(look, pause=over.wait), maxlen=0), daemon=True)
    with suppress(RuntimeError):
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()


def looks(reader: Reader, *, pause: Callable[[float], bool]) -> Iterator[CampaignStatus]:
    """Yield the campaign's status repeatedly, with pauses, until everything is done."""
    for seen in paced(reader.look, pause=pause):
        yield seen
        if seen.is_over():
            return


def pause_on(stop: StopSignals) -> Callable[[float], bool]:
    """Return a function that `looks` calls to pause. A signal ends the pause."""

    def pause(seconds: float) -> bool:
        select.select([stop], [], [], seconds)
        stop.drain()
        return stop.received is not None

    return pause
