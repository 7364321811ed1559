"""Choose the runs that are due: the requested repeats that have not ended yet. Decide how many adaptive repeats are needed. Pure.

`store` reads the runs, and makes jobs from the due runs. `campaign/loop.py` limits how often a lost run is tried again.

Adaptive repeats go on until the runs agree. Each run is one sample: the interval is Student's t interval of the logarithms of the
runs' values. A failed run has no value, but it counts as one of the repeats. An experiment whose runs mostly fail gets no more
repeats.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from orchestrator.measure.memory_logs import finite
from orchestrator.records import Experiment, JobState, Repeats, RunRecord, Status
from orchestrator.results.contents import StoredExperiment, StoredRun

FAILURES = (Status.FAILED, Status.TIMEOUT, Status.STALLED, Status.INVALID)
# The runs must agree in the first of these metrics that any run has. A run without this metric has no value: for example, it had no
# steady state.
VALUES = ("tokens_per_s", "train_tokens_per_second", "train_runtime", "round_time_s")


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """The failed runs to try once more: none, the failures of some kinds, or all failures (`kinds` is empty).

    A run whose record cannot be read counts as lost. `tried` has the id and the repeat of runs that this call has already tried.
    """

    failed: bool
    kinds: tuple[str, ...] = ()
    tried: frozenset[tuple[str, int]] = frozenset()

    @property
    def unreadable(self) -> bool:
        return self.failed and (not self.kinds or Status.LOST in self.kinds)

    def includes(self, record: RunRecord) -> bool:
        if not self.failed or (record.experiment_id, record.repeat) in self.tried:
            return False
        return record.status in FAILURES and (not self.kinds or record.kind in self.kinds)


NO_RETRY = Retry(failed=False)


def can_run(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Return the experiments that are valid and can run on this machine, sorted by id."""
    return sorted((e for e in experiments if e.skip is None and e.cannot_run_here is None), key=attrgetter("id"))


def due_runs(
    experiments: Sequence[Experiment], runs: Mapping[str, Sequence[StoredRun]], *, seed: object, retry: Retry = NO_RETRY
) -> Iterator[tuple[str, int, int]]:
    """Yield experiment id, repeat and attempt of each due run, round after round. The seed shuffles each round.

    `runs` maps the id of an experiment to its runs, in the order of their attempts. A repeat is due if it has no run, or if its
    last run `is_due_again`. `wanted` returns the number of repeats of an experiment.
    """
    due = can_run(experiments)
    last = {e.id: _last_runs(e, runs[e.id]) for e in due}
    repeats = {e.id: _wanted(e, last[e.id]) for e in due}
    for repeat in range(1, max(repeats.values(), default=0) + 1):
        this_round = [experiment_id for experiment_id, count in repeats.items() if count >= repeat]
        random.Random(f"{seed}:{repeat}").shuffle(this_round)
        for experiment_id in this_round:
            run = last[experiment_id].get(repeat)
            if run is None:
                yield experiment_id, repeat, 1
            elif is_due_again(run, retry):
                yield experiment_id, repeat, run.job.attempt + 1


def shortfall(stored: StoredExperiment) -> tuple[int, int] | None:
    """Return the number of repeats that are done, and the number that is requested. Return None if no run is due."""
    if not can_run([stored.experiment]):
        return None
    last = _last_runs(stored.experiment, stored.runs)
    count = _wanted(stored.experiment, last)
    kept = [run for repeat, run in last.items() if 1 <= repeat <= count and not is_due_again(run, NO_RETRY)]
    return None if len(kept) == count else (sum(run.state is JobState.ENDED for run in kept), count)


def _last_runs(experiment: Experiment, runs: Iterable[StoredRun]) -> dict[int, StoredRun]:
    """Return the last run of each repeat."""
    return {run.job.repeat: run for run in runs if not run.is_failed_surplus(experiment)}


def _wanted(experiment: Experiment, last: Mapping[int, StoredRun]) -> int:
    return wanted(experiment, [run.record for run in last.values() if run.record])


def is_due_again(run: StoredRun, retry: Retry) -> bool:
    """Return whether the last run of a repeat must be tried again.

    It must be tried again if it was lost or cancelled, or if it failed for a reason outside the experiment, such as a taken
    port. `retry` adds the failures that the user wants to repeat.
    """
    if run.state is not JobState.ENDED:
        return run.state is JobState.LOST
    if run.record is None:
        return retry.unreadable  # the record cannot be read, but may be valid
    from orchestrator.measure.failure_kinds import known

    if run.record.status in (Status.LOST, Status.CANCELLED) or known(run.record.kind).retried:
        return True
    return retry.includes(run.record)


def wanted(experiment: Experiment, records: Iterable[RunRecord]) -> int:
    """Return the number of repeats that the experiment needs. `records` has the last record of each repeat that has ended.

    Adaptive repeats begin with `min`. As long as the interval is too wide, one more repeat is added, up to `max`. If a repeat's
    number comes after a gap, the repeat does not raise the result, because a damaged record may contain any number.
    """
    rule = experiment.adaptive
    if rule is None:
        return experiment.repeats
    ended = {record.repeat: record for record in records}
    kept = without_cold_first(rule, ended.values())
    more = len(ended) - len(kept)
    count = next(repeat for repeat in itertools.count(1) if repeat not in ended) - 1
    failed = sum(record.status is not Status.OK for record in ended.values())
    if count < rule.min + more or failed > count / 2:  # more repeats do not help an experiment that mostly fails
        return max(rule.min + more, count)
    if rule.within is None or agree(kept, within=rule.within):
        return count
    return min(count + 1, max(rule.max + more, count))


def without_cold_first(rule: Repeats | None, records: Iterable[RunRecord]) -> list[RunRecord]:
    """Return the records. If the rule discards a cold first run, and the first ok run in time is one, leave this run out.

    The first run in time need not be of the first repeat: a repeat that was cancelled or failed is tried again after the others.
    """
    from orchestrator.measure.intervals import is_cold

    records = sorted(records, key=attrgetter("repeat"))
    in_time = sorted(_ok(records), key=attrgetter("started_at"))
    name, _ = _values(records)
    if rule is None or not rule.discard_first or not in_time or _value(in_time[0], name) is None:
        return records
    values = [value for record in in_time if (value := _value(record, name)) is not None]
    sign = 1 if name in VALUES[2:] else -1  # a longer time is slower, and so is a lower rate
    if not is_cold([sign * math.log(value) for value in values]):
        return records
    return [record for record in records if record is not in_time[0]]


def agree(records: Iterable[RunRecord], *, within: float) -> bool:
    """Return whether the runs that ended ok agree: their `half_width` is at most `within`."""
    width = half_width(records)
    return width is not None and width <= within


def half_width(records: Iterable[RunRecord]) -> float | None:
    """Return how far the interval over the ok runs reaches above their mean, as a share of the mean; None without an interval."""
    from orchestrator.measure import intervals

    _, values = _values(records)
    summary = intervals.mean_of_logs(values) if values else None
    return summary.interval.high / summary.mean - 1 if summary and summary.interval else None


def _ok(records: Iterable[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.status is Status.OK]


def _values(records: Iterable[RunRecord]) -> tuple[str, list[float]]:
    """Return the metric in which the runs must agree, and its values."""
    ok = _ok(records)
    for name in VALUES:
        values = [value for record in ok if (value := _value(record, name)) is not None]
        if values:
            return name, values
    return VALUES[0], []


def _value(record: RunRecord, name: str) -> float | None:
    value = next((measurement.value for measurement in record.measurements if measurement.name == name), None)
    number = finite(value)
    return float(number) if number is not None and number > 0 else None
