"""Estimate the time that the due runs will take, from the times of earlier runs.

The estimate is for people; it is not a measurement. A run is expected to take the median time of its experiment's ended runs. If
there are none, the most similar ended runs are used. The first choice is runs of the same scenario and model on the same number
of GPUs. The second choice is runs of the same scenario and model. The third choice is runs of the same trainer on the same number
of GPUs, and the last choice is all runs of the same trainer: a training says nothing about an operator. The times of successive
runs are added. If earlier runs were concurrent, the due runs are expected to use the same number of GPUs at once. If no run of
the same trainer has ended, there is no estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import median

from orchestrator.records import Experiment, RunRecord, Status

# Only this number of runs, those that ended last, show how many runs are concurrent.
LATEST = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Took:
    """The time of a run that ended by itself.

    `seconds` is the time from the run's claim to its record, or the record's `wall_s` if that time is unknown. The training process
    ran from `began_at` to `ended_at` (seconds since the epoch).
    """

    experiment_id: str
    scenario: str
    model: str
    trainer: str
    num_gpus: int
    seconds: float
    began_at: float
    ended_at: float
    to_its_end: bool


def took(experiment: Experiment, record: RunRecord, *, seconds: float | None = None) -> Took | None:
    """Return the time that a run took. `seconds` replaces the time in its record. Return None if the run was cancelled or lost."""
    if record.status in (Status.CANCELLED, Status.LOST):
        return None
    return Took(
        experiment_id=experiment.id,
        scenario=experiment.scenario,
        model=experiment.model,
        trainer=experiment.trainer,
        num_gpus=experiment.num_gpus,
        seconds=record.wall_s if seconds is None else seconds,
        began_at=record.started_at,
        ended_at=record.started_at + record.wall_s,
        to_its_end=record.status in (Status.OK, Status.INVALID),
    )


class Expectation:
    """The expected time of a run, from the times of similar runs."""

    def __init__(self, ended: Iterable[Took]) -> None:
        seconds: dict[Hashable, list[float]] = defaultdict(list)
        for run in ended:
            for key in _keys(run):
                seconds[key].append(run.seconds)
        self._median_s = {key: median(values) for key, values in seconds.items()}

    def of_itself(self, experiment: Experiment) -> float | None:
        """Return the median of the seconds that runs of this experiment took.

        Failed runs are included, because a run that failed early will fail early again.
        """
        return self._median_s.get(("experiment", experiment.id))

    def run_s(self, experiment: Experiment) -> float | None:
        """Return the seconds that a run of the experiment may take."""
        known = (self._median_s.get(key) for key in _closeness(experiment))
        return next((seconds for seconds in known if seconds is not None), None)

    def remaining_s(self, experiment: Experiment, *, elapsed_s: float, by_steps_s: float | None = None) -> float | None:
        """Return the seconds that a running run may still take.

        If no run of the experiment has ended, return `by_steps_s`, the estimate from the run's remaining steps. A run that takes
        longer than expected may take any time.
        """
        itself = self.of_itself(experiment)
        if itself is None and by_steps_s is not None:
            return by_steps_s
        expected = itself if itself is not None else self.run_s(experiment)
        return None if expected is None or elapsed_s >= expected else expected - elapsed_s


def _closeness(experiment: Experiment) -> Iterator[Hashable]:
    """Yield the keys under which similar runs are found, the most similar first."""
    yield "experiment", experiment.id
    yield "cell", experiment.scenario, experiment.model, experiment.trainer, experiment.num_gpus
    yield "model", experiment.scenario, experiment.model, experiment.trainer
    yield "gpus", experiment.trainer, experiment.num_gpus
    yield "all", experiment.trainer
    yield "any", experiment.trainer


def _keys(run: Took) -> Iterator[Hashable]:
    """Yield the keys under which a run's time is kept.

    The time of a failed run counts for other experiments only if no run has succeeded.
    """
    yield "experiment", run.experiment_id
    if run.to_its_end:
        yield "cell", run.scenario, run.model, run.trainer, run.num_gpus
        yield "model", run.scenario, run.model, run.trainer
        yield "gpus", run.trainer, run.num_gpus
        yield "all", run.trainer
    yield "any", run.trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Future runs. `times` is their number. Each run needs `num_gpus` GPUs and takes `seconds` (None if unknown)."""

    num_gpus: int
    seconds: float | None
    times: int = 1


def left_s(works: Sequence[Work], *, gpus_at_once: int | None = None) -> float | None:
    """Return the seconds until all these runs have ended. Return None if the time of some runs is unknown.

    `gpus_at_once` is a result of the function `gpus_at_once`.
    """
    known = [(work, work.seconds) for work in works if work.seconds is not None and work.times]
    if len(known) < sum(1 for work in works if work.times):
        return None
    if gpus_at_once is None:
        return sum(seconds * work.times for work, seconds in known)
    shared = sum(seconds * work.times * min(work.num_gpus, gpus_at_once) for work, seconds in known) / gpus_at_once
    return max([shared, *(seconds for _, seconds in known)])


# The beginning and the end of a run (seconds since the epoch), and its number of GPUs.
Span = tuple[float, float, int]


def latest(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans that ended last. Older spans do not show how many runs are concurrent now."""
    return tuple(sorted(spans, key=itemgetter(1), reverse=True)[:LATEST])


def gpus_at_once(spans: Iterable[Span]) -> int | None:
    """Return the largest number of GPUs that two or more runs used at once. Return None if runs never overlapped."""
    edges = [edge for begin, end, gpus in spans for edge in ((begin, 1, gpus), (end, -1, gpus))]
    most, runs, in_use = 0, 0, 0
    for _, change, gpus in sorted(edges, key=itemgetter(0, 1)):
        runs, in_use = runs + change, in_use + change * gpus
        if runs > 1:
            most = max(most, in_use)
    return most or None
