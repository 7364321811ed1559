"""Make series of campaigns: the values of each experiment's metric, matched over campaigns, and the steps of its level.

Each campaign's experiments are matched with the last known state of each, as `compare` pairs two sides. A campaign's value is the
mean of the logarithms of its ok runs, so that a ratio means the same up and down. If a value is not above 0, no steps are
searched. Pure: `campaigns` reads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from orchestrator.compare.comparison import Difference, Entry, Pair, Side
from orchestrator.compare.history import change_points
from orchestrator.compare.history.campaigns import Read
from orchestrator.compare.history.change_points import Level
from orchestrator.compare.history.history import Campaign, History, Kind, Point, Series, Step
from orchestrator.compare.judging import LOSS, ended_at_different_steps
from orchestrator.compare.pairing import pair
from orchestrator.compare.rules import DEFAULT, HEADLINES, Rule, Rules, better_direction
from orchestrator.errors import SelectionError
from orchestrator.measure import intervals
from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import Direction, Judged

_ID_DIGITS = 12

# The least noise that is believed of a campaign's value, as a share: what repeats to a thousandth need not be true to
# one.
RESOLUTION = 0.001


@dataclass(kw_only=True, slots=True)
class _Track:
    """One experiment over its campaigns: the number of each, its entry there, and the changes since the one before."""

    label: str
    seen: list[tuple[int, Entry, tuple[Difference, ...]]] = field(default_factory=list)

    @property
    def last(self) -> Entry:
        return self.seen[-1][1]


def history(read: Sequence[Read], *, rules: Rules, by: Sequence[str] = (), warnings: Sequence[str] = ()) -> History:
    """Return the history of campaigns in their order.

    `rules` name the metrics (or leave them to the registry), their directions and the smallest reported effects. Raises
    SelectionError if none of the named metrics was measured.
    """
    tracks = _tracks([one.side for one in read], by)
    _call_apart(tracks)
    metrics = _metrics([entry for track in tracks for _, entry, _ in track.seen], rules)
    shortened = [track for track in tracks if LOSS in metrics and _leave_out_losses(track)]
    return History(
        campaigns=tuple(
            Campaign(name=one.side.name, began_at=one.began_at, experiments=len(one.side.entries)) for one in read
        ),
        series=tuple(one for track in tracks for one in _of_track(track, read, rules=rules, metrics=metrics)),
        warnings=(*warnings, *_shortened(len(shortened))),
    )


def _leave_out_losses(track: _Track) -> bool:
    """Remove losses of runs that ended early at different steps, since they are of different trainings. Return whether any were
    removed."""
    if not ended_at_different_steps([run for _, entry, _ in track.seen for run in entry.runs]):
        return False
    track.seen = [(number, _without_early_losses(entry), changes) for number, entry, changes in track.seen]
    return True


def _without_early_losses(entry: Entry) -> Entry:
    rest = (
        {name: value for name, value in run.numbers.items() if name != LOSS or not run.ended_early}
        for run in entry.runs
    )
    return replace(
        entry, runs=tuple(replace(run, numbers=numbers) for run, numbers in zip(entry.runs, rest, strict=True))
    )


def _shortened(count: int) -> list[str]:
    return (
        [f"losses of runs that ended early at different steps are not followed ({count} experiment(s))"]
        if count
        else []
    )


def _tracks(sides: Sequence[Side], by: Sequence[str]) -> list[_Track]:
    tracks: list[_Track] = []
    for number, side in enumerate(sides):
        known = {id(track.last): track for track in tracks}
        before = Side(name="", entries=tuple(track.last for track in tracks))
        for one in pair(before, side, by=by):
            if one.new is None:
                continue
            track = known.get(id(one.base)) if one.base is not None else None
            if track is None:
                track = _Track(label=one.label)
                tracks.append(track)
            track.label = one.label
            track.seen.append((number, one.new, _changes(one)))
    return tracks


def _call_apart(tracks: Sequence[_Track]) -> None:
    """Make labels unique: experiments of different campaigns may share one, since a label is unique only in its campaign."""
    called = Counter(track.label for track in tracks)
    for number, track in enumerate(tracks, start=1):
        if called[track.label] > 1:
            track.label += f" · {track.last.id[-_ID_DIGITS:] if track.last.id else number}"


def _changes(one: Pair) -> tuple[Difference, ...]:
    return (*one.environment, *one.arguments) if one.base is not None else ()


def _metrics(entries: Iterable[Entry], rules: Rules) -> list[str]:
    """Return the requested metrics, else the default ones, else all whose better direction is known."""
    measured = dict.fromkeys(name for entry in entries for run in entry.runs for name in run.numbers)
    if rules.metrics:
        found = [name for name in rules.metrics if name in measured]
        if not found:
            raise SelectionError(f"--metrics {','.join(rules.metrics)}: no campaign measured any of them.")
        return found
    return [name for name in DEFAULT if name in measured] or [
        name for name in measured if better_direction(name) is not Direction.NONE
    ]


def _of_track(track: _Track, read: Sequence[Read], *, rules: Rules, metrics: Sequence[str]) -> list[Series]:
    """Return an experiment's series; of several speeds only the first, unless they were requested."""
    found = [one for name in metrics for one in _series(track, read, rules.of(name))]
    headlines = [] if rules.metrics else [one for one in found if one.metric in HEADLINES]
    return [one for one in found if one not in headlines[1:]]


def _series(track: _Track, read: Sequence[Read], rule: Rule) -> Iterator[Series]:
    points = list(_points(track, read, rule.metric))
    if not points:
        return
    levels = _levels(points, [entry for _, entry, _ in track.seen], rule.metric)
    held = {at: _value(level, points) for level in levels for at in range(level.start, level.stop)}
    yield Series(
        label=track.label,
        key=track.last.key,
        id=track.last.id,
        metric=rule.metric,
        points=tuple(replace(point, level=held.get(at)) for at, point in enumerate(points)),
        steps=tuple(_steps(levels, points, rule)),
    )


def _points(track: _Track, read: Sequence[Read], metric: str) -> Iterator[Point]:
    since: tuple[Difference, ...] = ()
    for number, entry, changes in track.seen:
        since = _chained(since, changes)
        values = [run.numbers[metric] for run in entry.runs if metric in run.numbers]
        if not values:
            continue  # what changed at a campaign that failed changed for the next one, too
        starts = [run.started_at for run in entry.runs if run.started_at is not None]
        value, interval = _mean(values)
        yield Point(
            campaign=number,
            began_at=min(starts, default=read[number].began_at),
            value=value,
            interval=interval,
            runs=len(values),
            changes=since,
        )
        since = ()


def _mean(values: Sequence[float]) -> tuple[float, Interval | None]:
    """Return the mean and its interval. Equal values are returned exactly: a logarithm and back may lose the last digit."""
    if len(set(values)) == 1:
        return values[0], Interval(low=values[0], high=values[0]) if len(values) > 1 else None
    if min(values) <= 0:
        return fmean(values), None
    summary = intervals.mean_of_logs(values)
    return summary.mean, summary.interval


def _chained(earlier: Sequence[Difference], later: Sequence[Difference]) -> tuple[Difference, ...]:
    """Return two successive differences as one, from the first's base to the second's new; what returned to its old value is
    dropped."""
    found = {one.name: one for one in earlier}
    for one in later:
        before = found.get(one.name)
        found[one.name] = replace(one, base=before.base) if before else one
    return tuple(one for one in found.values() if one.base != one.new)


def _levels(points: Sequence[Point], entries: Sequence[Entry], metric: str) -> tuple[Level, ...]:
    """Return the levels of the logarithms; none if a value has no logarithm."""
    if any(point.value <= 0 for point in points):
        return ()
    variance = _variance_of_a_run(entries, metric)
    errors = [math.sqrt(variance / point.runs + RESOLUTION**2) for point in points]
    return change_points.levels([math.log(point.value) for point in points], errors=errors)


def _variance_of_a_run(entries: Sequence[Entry], metric: str) -> float:
    """Return the variance of the logarithm between runs of one campaign, pooled over all campaigns: one campaign has too few
    runs."""
    squares, degrees = 0.0, 0
    for entry in entries:
        values = [run.numbers[metric] for run in entry.runs if metric in run.numbers]
        if len(values) > 1 and min(values) > 0:
            logs = [math.log(value) for value in values]
            mean = fmean(logs)
            squares += math.fsum((one - mean) ** 2 for one in logs)
            degrees += len(values) - 1
    return squares / degrees if degrees else 0.0


def _value(level: Level, points: Sequence[Point]) -> float:
    """Return the level as a value, mostly that of a point, to the last digit."""
    same = (one.value for one in points[level.start : level.stop] if math.log(one.value) == level.value)
    return next(same, math.exp(level.value))


def _steps(levels: Sequence[Level], points: Sequence[Point], rule: Rule) -> Iterator[Step]:
    """Yield the steps that matter. If a level drifts in small steps, the step at which the total change passes the threshold is
    reported."""
    told = levels[0] if levels else None
    for level in levels[1:]:
        assert told is not None
        shift = level.value - told.value
        if abs(shift) < math.log1p(rule.min_effect):
            continue
        kind = Kind.BETTER if rule.is_better(shift) else Kind.WORSE
        yield Step(
            at=level.start,
            since=told.start,
            before=_value(told, points),
            after=_value(level, points),
            kind=Kind.CHANGED if rule.judged is Judged.GUARD else kind,
        )
        told = level
