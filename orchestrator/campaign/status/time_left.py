"""How long what is owed may still take, by how long such runs took. Pure: an estimate for people, no measurement.

A run is expected to take the median of those that ended of the same experiment, else of the same scenario and model on as many
GPUs, else of the same scenario and model, else on as many GPUs, else of all. Runs that follow one another add up; where runs
went on side by side, what is owed shares the GPUs that were in use at once. Nothing ended: nothing is known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import median

from orchestrator.records import Experiment, RunRecord, Status

LATEST = 50
"""How many of the runs that ended last say how many go on side by side."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Took:
    """A run that ended by itself. `seconds` is from its claim to its record, where that is known, `began_at` to `ended_at` its
    training process (seconds since the epoch)."""

    experiment_id: str
    scenario: str
    model: str
    num_gpus: int
    seconds: float
    began_at: float
    ended_at: float
    to_its_end: bool


def took(experiment: Experiment, record: RunRecord, *, seconds: float | None = None) -> Took | None:
    """What a record says of how long such runs take; None of a run that somebody ended."""
    if record.status in (Status.CANCELLED, Status.LOST):
        return None
    return Took(
        experiment_id=experiment.id,
        scenario=experiment.scenario,
        model=experiment.model,
        num_gpus=experiment.num_gpus,
        seconds=record.wall_s if seconds is None else seconds,
        began_at=record.started_at,
        ended_at=record.started_at + record.wall_s,
        to_its_end=record.status in (Status.OK, Status.INVALID),
    )


class Expectation:
    """What runs took, by how alike they are."""

    def __init__(self, ended: Iterable[Took]) -> None:
        seconds: dict[Hashable, list[float]] = defaultdict(list)
        for one in ended:
            for key in _keys(one):
                seconds[key].append(one.seconds)
        self._median_s = {key: median(values) for key, values in seconds.items()}

    def of_itself(self, experiment: Experiment) -> float | None:
        """Seconds that this very experiment took, failed runs too: what failed early will again."""
        return self._median_s.get(("experiment", experiment.id))

    def run_s(self, experiment: Experiment) -> float | None:
        """Seconds that a run of it may take."""
        known = (self._median_s.get(key) for key in _closeness(experiment))
        return next((seconds for seconds in known if seconds is not None), None)

    def remaining_s(self, experiment: Experiment, *, elapsed_s: float, by_steps_s: float | None = None) -> float | None:
        """Seconds that a running one may still take; by its steps to come where the experiment itself never ended before."""
        itself = self.of_itself(experiment)
        if itself is None and by_steps_s is not None:
            return by_steps_s
        expected = itself if itself is not None else self.run_s(experiment)
        return None if expected is None else max(0.0, expected - elapsed_s)


def _closeness(experiment: Experiment) -> Iterator[Hashable]:
    """Keys of what is alike, the closest first."""
    yield "experiment", experiment.id
    yield "cell", experiment.scenario, experiment.model, experiment.num_gpus
    yield "model", experiment.scenario, experiment.model
    yield "gpus", experiment.num_gpus
    yield "all"
    yield "any"


def _keys(one: Took) -> Iterator[Hashable]:
    """What a run says something about; one that failed says nothing of other experiments unless there is nothing else."""
    yield "experiment", one.experiment_id
    if one.to_its_end:
        yield "cell", one.scenario, one.model, one.num_gpus
        yield "model", one.scenario, one.model
        yield "gpus", one.num_gpus
        yield "all"
    yield "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What `times` runs on so many GPUs each will take, in seconds each; None: unknown."""

    num_gpus: int
    seconds: float | None
    times: int = 1


def left_s(works: Sequence[Work], *, gpus_at_once: int | None = None) -> float | None:
    """Seconds until all of it is done; None where any part is unknown. `gpus_at_once` as the function of that name says."""
    known = [(one, one.seconds) for one in works if one.seconds is not None and one.times]
    if len(known) < sum(1 for one in works if one.times):
        return None
    if gpus_at_once is None:
        return sum(seconds * one.times for one, seconds in known)
    shared = sum(seconds * one.times * min(one.num_gpus, gpus_at_once) for one, seconds in known) / gpus_at_once
    return max([shared, *(seconds for _, seconds in known)])


Span = tuple[float, float, int]
"""From when to when (seconds since the epoch) a run went on, on how many GPUs."""


def latest(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Those that ended last: what went on side by side long ago says nothing of today."""
    return tuple(sorted(spans, key=itemgetter(1), reverse=True)[:LATEST])


def gpus_at_once(spans: Iterable[Span]) -> int | None:
    """The most GPUs that two or more runs were on at once; None where no two ever were."""
    edges = [edge for begin, end, gpus in spans for edge in ((begin, 1, gpus), (end, -1, gpus))]
    most, runs, in_use = 0, 0, 0
    for _, change, gpus in sorted(edges, key=itemgetter(0, 1)):
        runs, in_use = runs + change, in_use + change * gpus
        if runs > 1:
            most = max(most, in_use)
    return most or None
