"""Make series from campaigns: the values of each experiment's metrics over the campaigns, and the steps between their levels. Pure.

The entries of a campaign are matched with the last known entries of all experiments, in the same way as `compare` pairs two sides.
The value of a campaign is the geometric mean of its ok runs, so that a ratio means the same in both directions. Steps are searched
only if all values are above 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from orchestrator.compare.comparison import Difference, Entry, Side
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

# The smallest noise that is assumed for a campaign's value, as a share. Runs that agree to a thousandth may all be wrong by a
# thousandth.
RESOLUTION = 0.001


@dataclass(kw_only=True, slots=True)
class _Track:
    """An experiment over its campaigns. `seen` has each campaign's number, its entry, and the changes since the campaign before."""

    label: str
    seen: list[tuple[int, Entry, tuple[Difference, ...]]] = field(default_factory=list)

    @property
    def last(self) -> Entry:
        return self.seen[-1][1]

    @property
    def entries(self) -> list[Entry]:
        return [entry for _, entry, _ in self.seen]


def history(read: Sequence[Read], *, rules: Rules, by: Sequence[str] = (), warnings: Sequence[str] = ()) -> History:
    """Return the history of campaigns in their order.

    `rules` has the metrics, their directions and the smallest reported effects. If `rules` has no metrics, the default metrics are
    used. Raise SelectionError if no campaign measured any of the named metrics.
    """
    tracks = _tracks([campaign.side for campaign in read], by)
    _make_labels_unique(tracks)
    metrics = _metrics([entry for track in tracks for entry in track.entries], rules)
    shortened = sum(_leave_out_losses(track) for track in tracks) if LOSS in metrics else 0
    warning = f"losses of runs that ended early at different steps are not followed ({shortened} experiment(s))"
    return History(
        campaigns=tuple(
            Campaign(name=campaign.side.name, began_at=campaign.began_at, experiments=len(campaign.side.entries))
            for campaign in read
        ),
        series=tuple(series for track in tracks for series in _of_track(track, read, rules=rules, metrics=metrics)),
        warnings=(*warnings, *([warning] if shortened else [])),
    )


def _leave_out_losses(track: _Track) -> bool:
    """Remove the losses of runs that ended early at different steps, since they come from different trainings.

    Return whether any losses were removed.
    """
    if not ended_at_different_steps([run for entry in track.entries for run in entry.runs]):
        return False
    track.seen = [(number, _without_early_losses(entry), changes) for number, entry, changes in track.seen]
    return True


def _without_early_losses(entry: Entry) -> Entry:
    kept = [
        {name: value for name, value in run.numbers.items() if name != LOSS or not run.ended_early}
        for run in entry.runs
    ]
    return replace(entry, runs=tuple(replace(run, numbers=few) for run, few in zip(entry.runs, kept, strict=True)))


def _tracks(sides: Sequence[Side], by: Sequence[str]) -> list[_Track]:
    tracks: list[_Track] = []
    for number, side in enumerate(sides):
        known = {id(track.last): track for track in tracks}
        before = Side(name="", entries=tuple(track.last for track in tracks))
        for match in pair(before, side, by=by):
            if match.new is None:
                continue
            track = known.get(id(match.base))
            if track is None:
                track = _Track(label=match.label)
                tracks.append(track)
            track.label = match.label
            track.seen.append((number, match.new, (*match.environment, *match.arguments)))
    return tracks


def _make_labels_unique(tracks: Sequence[_Track]) -> None:
    """Make labels unique, since experiments of different campaigns may have the same label."""
    counts = Counter(track.label for track in tracks)
    for number, track in enumerate(tracks, start=1):
        if counts[track.label] > 1:
            track.label += f" · {track.last.id[-_ID_DIGITS:] if track.last.id else number}"


def _metrics(entries: Iterable[Entry], rules: Rules) -> list[str]:
    """Return the requested metrics that were measured.

    If no metrics were requested, return the default metrics that were measured. If there are none, return all metrics with a known
    better direction.
    """
    measured = dict.fromkeys(name for entry in entries for run in entry.runs for name in run.numbers)
    names = [name for name in rules.metrics or DEFAULT if name in measured]
    if rules.metrics and not names:
        raise SelectionError(f"--metrics {','.join(rules.metrics)}: no campaign measured any of them.")
    return names or [name for name in measured if better_direction(name) is not Direction.NONE]


def _of_track(track: _Track, read: Sequence[Read], *, rules: Rules, metrics: Sequence[str]) -> list[Series]:
    """Return the series of an experiment. If no metrics were requested, only the first of several speeds is followed."""
    every = [series for name in metrics for series in _series(track, read, rules.of(name))]
    headlines = [] if rules.metrics else [series for series in every if series.metric in HEADLINES]
    return [series for series in every if series not in headlines[1:]]


def _series(track: _Track, read: Sequence[Read], rule: Rule) -> Iterator[Series]:
    points = list(_points(track, read, rule.metric))
    if not points:
        return
    levels = _levels(points, track.entries, rule.metric)
    fitted = {at: _value(level, points) for level in levels for at in range(level.start, level.stop)}
    yield Series(
        label=track.label,
        key=track.last.key,
        id=track.last.id,
        metric=rule.metric,
        points=tuple(replace(point, level=fitted.get(at)) for at, point in enumerate(points)),
        steps=tuple(_steps(levels, points, rule)),
    )


def _points(track: _Track, read: Sequence[Read], metric: str) -> Iterator[Point]:
    since: tuple[Difference, ...] = ()
    for number, entry, changes in track.seen:
        since = _chained(since, changes)
        values = _values(entry, metric)
        if not values:
            continue  # the next point also gets the changes at this campaign, which failed
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


def _values(entry: Entry, metric: str) -> list[float]:
    return [run.numbers[metric] for run in entry.runs if metric in run.numbers]


def _mean(values: Sequence[float]) -> tuple[float, Interval | None]:
    """Return the mean and its interval.

    Equal values are returned exactly, because a logarithm and its inverse may lose the last digit.
    """
    if len(set(values)) == 1:
        return values[0], Interval(low=values[0], high=values[0]) if len(values) > 1 else None
    if min(values) <= 0:
        return fmean(values), None
    summary = intervals.mean_of_logs(values)
    return summary.mean, summary.interval


def _chained(earlier: Sequence[Difference], later: Sequence[Difference]) -> tuple[Difference, ...]:
    """Return two successive lists of differences as one. A name that returned to its old value is left out."""
    by_name = {difference.name: difference for difference in earlier}
    for difference in later:
        before = by_name.get(difference.name)
        by_name[difference.name] = replace(difference, base=before.base) if before else difference
    return tuple(difference for difference in by_name.values() if difference.base != difference.new)


def _levels(points: Sequence[Point], entries: Sequence[Entry], metric: str) -> tuple[Level, ...]:
    """Return the levels of the logarithms of the points' values. If a value has no logarithm, return no levels."""
    if any(point.value <= 0 for point in points):
        return ()
    variance = _variance_of_a_run(entries, metric)
    errors = [math.sqrt(variance / point.runs + RESOLUTION**2) for point in points]
    return change_points.levels([math.log(point.value) for point in points], errors=errors)


def _variance_of_a_run(entries: Sequence[Entry], metric: str) -> float:
    """Return the variance of the metric's logarithm between runs of one campaign.

    It is pooled over all campaigns, because one campaign has too few runs.
    """
    squares, degrees = 0.0, 0
    for entry in entries:
        values = _values(entry, metric)
        if len(values) > 1 and min(values) > 0:
            logs = [math.log(value) for value in values]
            mean = fmean(logs)
            squares += math.fsum((log - mean) ** 2 for log in logs)
            degrees += len(values) - 1
    return squares / degrees if degrees else 0.0


def _value(level: Level, points: Sequence[Point]) -> float:
    """Return the level as a value. If a point is on the level, return exactly the point's value."""
    values = (point.value for point in points[level.start : level.stop])
    return next((value for value in values if math.log(value) == level.value), math.exp(level.value))


def _steps(levels: Sequence[Level], points: Sequence[Point], rule: Rule) -> Iterator[Step]:
    """Yield the steps that matter.

    If a level drifts in small steps, yield the step at which the total change reaches the smallest effect.
    """
    reported = levels[0] if levels else None
    for level in levels[1:]:
        assert reported is not None
        shift = level.value - reported.value
        if abs(shift) < math.log1p(rule.min_effect):
            continue
        kind = Kind.BETTER if rule.is_better(shift) else Kind.WORSE
        yield Step(
            at=level.start,
            since=reported.start,
            before=_value(reported, points),
            after=_value(level, points),
            kind=Kind.CHANGED if rule.judged is Judged.GUARD else kind,
        )
        reported = level
