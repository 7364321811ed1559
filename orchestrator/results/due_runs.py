"""The runs that are due: what was asked for, less what has ended for good; and how many repeats adaptive `repeats:` come to. Pure.

Knows neither folders nor processes: `store` reads the runs that are there and makes jobs of what is owed; how often a call tries
what is lost again and again is `benchmark`'s to say.

Adaptive repeats go on until the runs agree. The run is the sample: the interval is Student's t over the logarithms of the runs'
values. A failed run has no value, but it is a try: an experiment whose runs mostly fail owes no more of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from orchestrator.measure.failure_kinds import known
from orchestrator.records import Experiment, JobState, RunRecord, Status
from orchestrator.results.contents import StoredRun

FAILURES = (Status.FAILED, Status.TIMEOUT, Status.STALLED, Status.INVALID)
# What has to agree: the first of these that any run has. A run without it (it never became steady) has no value.
VALUES = ("tokens_per_s", "train_tokens_per_second", "train_runtime")


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """Which failed runs are owed once more: none, those of some kinds, or all (`kinds` empty)."""

    failed: bool
    kinds: tuple[str, ...] = ()

    def asks_for(self, record: RunRecord) -> bool:
        return self.failed and record.status in FAILURES and (not self.kinds or record.kind in self.kinds)


NO_RETRY = Retry(failed=False)


class Owed(NamedTuple):
    """A run that is owed, by what makes its name."""

    experiment_id: str
    repeat: int
    attempt: int


def owing(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The experiments that can owe a run at all, by id: those that are wrong, or cannot run here, owe nothing."""
    return sorted(
        (one for one in experiments if one.skip is None and one.cannot_run_here is None), key=attrgetter("id")
    )


def owed_runs(
    experiments: Sequence[Experiment], runs: Mapping[str, Sequence[StoredRun]], *, seed: object, retry: Retry = NO_RETRY
) -> Iterator[Owed]:
    """Every owed run, round after round, each round shuffled by the seed and the round's number.

    `runs` are those of each experiment by its id, in the order of their attempts. Owed is a repeat without a run, or whose last
    run was lost or cancelled, failed for a reason that is not the experiment's (a port that was taken), or failed as `retry`
    asks. An experiment with adaptive repeats owes what `wanted` says by the records that are there.
    """
    due = owing(experiments)
    last = {one.id: {run.job.repeat: run for run in runs[one.id]} for one in due}
    repeats = {one.id: wanted(one, [run.record for run in last[one.id].values() if run.record]) for one in due}
    for repeat in range(1, max(repeats.values(), default=0) + 1):
        this_round = [one.id for one in due if repeats[one.id] >= repeat]
        random.Random(f"{seed}:{repeat}").shuffle(this_round)
        for name in this_round:
            run = last[name].get(repeat)
            if run is None:
                yield Owed(name, repeat, 1)
            elif is_owed_again(run, retry):
                yield Owed(name, repeat, run.job.attempt + 1)


def is_owed_again(run: StoredRun, retry: Retry) -> bool:
    """Whether a repeat whose last run this is must be run once more."""
    if run.state is not JobState.ENDED:
        return run.state is JobState.LOST
    if run.record is None:
        return False  # a record that can't be read: what it says may be right, so it is not measured again unasked
    if run.record.status in (Status.LOST, Status.CANCELLED) or known(run.record.kind).retried:
        return True
    return retry.asks_for(run.record)


def most_repeats(experiment: Experiment) -> int:
    """The most that it can come to."""
    return experiment.adaptive.max if experiment.adaptive else experiment.repeats


def wanted(experiment: Experiment, records: Iterable[RunRecord]) -> int:
    """The repeats that are owed in all, seen the last records of those that ended.

    Until `min` have ended that is `min`; then one more than ended, for as long as the interval is too wide, up to `max`.
    """
    rule = experiment.adaptive
    if rule is None:
        return experiment.repeats
    ended = {record.repeat: record for record in records}
    count = max(ended, default=0)
    failed = sum(record.status is not Status.OK for record in ended.values())
    if count < rule.min or len(ended) < count or failed > count / 2:  # what mostly fails is not repeated into agreement
        return max(rule.min, count)
    return count if agree(ended.values(), within=rule.within) else min(count + 1, max(rule.max, count))


def agree(records: Iterable[RunRecord], *, within: float) -> bool:
    """Whether half the interval over the runs that ended ok is at most `within` of their value."""
    width = half_width(records)
    return width is not None and width <= within


def half_width(records: Iterable[RunRecord]) -> float | None:
    """Half the interval over the runs that ended ok, as a share of their value; None where there is none."""
    from orchestrator.measure import intervals  # a plan counts repeats, and has none to compare

    ok = [record for record in records if record.status is Status.OK]
    for name in VALUES:
        values = [value for record in ok if (value := _value(record, name)) is not None]
        if values:
            summary = intervals.mean_of_logs(values)
            return summary.interval.high / summary.mean - 1 if summary.interval else None
    return None


def _value(record: RunRecord, name: str) -> float | None:
    value = next((one.value for one in record.measurements if one.name == name), None)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
