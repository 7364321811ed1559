"""How many runs an experiment owes: a fixed number, or more until the runs agree. Pure.

The run is the sample: the interval is Student's t over the logarithms of the runs' values. A failed run
is no value, and it is a try: an experiment whose runs mostly fail owes no more of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.records import Experiment, RunRecord, Status

VALUES = ("tokens_per_s", "train_tokens_per_second", "train_runtime")
"""What is to agree: the first that any run has; a run without it, as one that never got steady, is no value."""


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
    from orchestrator import statistics  # a plan counts repeats, and has none to compare

    ok = [record for record in records if record.status is Status.OK]
    for name in VALUES:
        values = [value for record in ok if (value := _value(record, name)) is not None]
        if values:
            summary = statistics.mean_of_logs(values)
            return summary.interval.high / summary.mean - 1 if summary.interval else None
    return None


def _value(record: RunRecord, name: str) -> float | None:
    value = next((one.value for one in record.measurements if one.name == name), None)
    return float(value) if isinstance(value, (int, float)) and value > 0 else None
