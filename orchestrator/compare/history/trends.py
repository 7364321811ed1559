"""Make series from campaigns: the values of each experiment's metrics over the campaigns, and of all experiments together. Pure.

The entries of a campaign are matched with the last known entries of all experiments, in the same way as `compare` pairs two sides.
The value of a campaign is the geometric mean of its ok runs, so that a ratio means the same in both directions. Steps are searched
by `findings`, only if all values are above 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.compare.comparison import Difference, Entry, Run, Side
from orchestrator.compare.history import findings, fleet, missing, repeats
from orchestrator.compare.history.campaigns import Read
from orchestrator.compare.history.findings import ERROR_RATE, Course
from orchestrator.compare.history.history import Campaign, History, Point, Series
from orchestrator.compare.judging import LOSS, ended_at_different_steps
from orchestrator.compare.rules import DEFAULT, HEADLINES, Rule, Rules, better_direction
from orchestrator.compare.sides import environment
from orchestrator.compare.sides.incomparable import (
    FROM_STEPS,
    has_wrong_result,
    is_from_steps,
    measured_padding,
    real_share,
)
from orchestrator.compare.sides.pairing import pair
from orchestrator.errors import SelectionError, suggestion
from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import Direction, metric
from orchestrator.results.table.baseline.other_work import is_speed_of_call

_ID_DIGITS = 12


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

    @property
    def ran(self) -> list[tuple[int, tuple[Run, ...]]]:
        """The campaigns in which it ended ok, with its runs."""
        return [(number, entry.runs) for number, entry, _ in self.seen if entry.runs]


def history(
    read: Sequence[Read],
    *,
    rules: Rules,
    by: Sequence[str] = (),
    error_rate: float = ERROR_RATE,
    warnings: Sequence[str] = (),
) -> History:
    """Return the history of campaigns in their order.

    `rules` has the metrics, their directions and the smallest reported effects. If `rules` has no metrics, the default metrics are
    used. `error_rate` is the chance that a history without a change shows a step. Raise SelectionError if no campaign measured any
    of the named metrics.
    """
    tracks = _tracks([campaign.side for campaign in read], by)
    _make_labels_unique(tracks)
    metrics = _metrics([entry for track in tracks for entry in track.entries], rules)
    # Values that are left out below have messages of their own.
    lost = [one for track in tracks for one in missing.lost(track.label, track.ran, metrics, newest=len(read) - 1)]
    shortened = sum(_leave_out_losses(track) for track in tracks) if LOSS in metrics else 0
    wrong = sum(map(_leave_out_wrong_calls, tracks))
    courses = [course for track in tracks for course in _of_track(track, read, rules=rules, metrics=metrics)]
    fleets = list(fleet.courses(courses, read))
    chance = findings.chance_per_series([*courses, *fleets], error_rate=error_rate)
    return History(
        campaigns=tuple(_campaign(one) for one in read),
        series=tuple(findings.search(course, chance=chance) for course in courses),
        fleet=tuple(fleet.search(one, courses, chance=chance) for one in fleets),
        error_rate=error_rate,
        expected_false_steps=findings.expected_false_steps([*courses, *fleets], chance=chance),
        warnings=(*warnings, *_left_out(shortened, wrong, courses), *missing.sentences(lost, courses, read)),
    )


def _campaign(one: Read) -> Campaign:
    return Campaign(
        name=one.side.name,
        began_at=one.began_at,
        experiments=len(one.side.entries),
        environment=environment.combined([entry.environment for entry in one.side.entries if entry.runs]),
    )


def _left_out(shortened: int, wrong: int, courses: Sequence[Course]) -> Iterator[str]:
    """Yield sentences about losses, times and first runs that are left out."""
    if wrong:
        yield f"times of an operator with a wrong result are not followed ({counted(wrong, 'experiment')})"
    if shortened:
        yield f"losses of runs that ended early at different steps are not followed ({shortened} experiment(s))"
    cold = [f"{course.series.label} ({course.series.metric})" for course in courses if course.series.without_first]
    if cold:
        yield (
            f"the first run is left out of {counted(len(cold), 'series', 'series')}, because it was the slowest in most "
            f"campaigns: {missing.named(cold)}"
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
    return _without(entry, lambda run, name: name == LOSS and run.ended_early)


def _leave_out_wrong_calls(track: _Track) -> bool:
    """Remove the times of an operator's calls with a wrong result, which say nothing. Return whether there were any."""
    if not any(has_wrong_result(run.numbers) for entry in track.entries for run in entry.runs):
        return False
    track.seen = [(number, _without_wrong_calls(entry), changes) for number, entry, changes in track.seen]
    return True


def _without_wrong_calls(entry: Entry) -> Entry:
    """Remove the times of all runs if one run is wrong, as in `compare`."""
    is_wrong = any(has_wrong_result(run.numbers) for run in entry.runs)
    return _without(entry, lambda _, name: is_wrong and is_speed_of_call(name))


def _without(entry: Entry, is_left_out: Callable[[Run, str], bool]) -> Entry:
    kept = [{name: value for name, value in run.numbers.items() if not is_left_out(run, name)} for run in entry.runs]
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
            changes = (*match.environment, *match.arguments, *_other_padding(track.entries, match.new))
            track.seen.append((number, match.new, changes))
    return tracks


def _other_padding(earlier: Sequence[Entry], new: Entry) -> Iterator[Difference]:
    """Yield the change of the measured share of padding since the last campaign that knows it."""
    known = (share for entry in reversed(earlier) if (share := real_share(entry)) is not None)
    if found := measured_padding(next(known, None), real_share(new)):
        yield found


def _other_source(earlier: Sequence[Entry], new: Entry, name: str) -> Iterator[Difference]:
    """Yield whether a number of the steady state comes from steps, if this has changed since the last campaign that knows it."""
    after = is_from_steps(new, name)
    if metric(name).of_steady_state and after is not None:
        known = (is_from_steps(entry, name) for entry in reversed(earlier))
        if (not after) == next((before for before in known if before is not None), None):
            yield Difference(name=FROM_STEPS, base="no" if after else "yes", new="yes" if after else "no")


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
    rules.check_names(measured)
    names = [name for name in rules.metrics or DEFAULT if name in measured]
    if rules.metrics and not names:
        raise SelectionError(
            f"--metrics {','.join(rules.metrics)}: no campaign measured any of them{suggestion(rules.metrics[0], measured)}"
        )
    return names or [name for name in measured if better_direction(name) is not Direction.NONE]


def _of_track(track: _Track, read: Sequence[Read], *, rules: Rules, metrics: Sequence[str]) -> list[Course]:
    """Return the courses of an experiment.

    If no metrics were requested, the first of several speeds is followed. If more campaigns have another one, it is followed, too.
    """
    every = [course for name in metrics for course in _courses(track, read, rules.of(name))]
    speeds = [] if rules.metrics else [course for course in every if course.series.metric in HEADLINES]
    most = max(speeds, key=lambda course: len(course.series.points), default=None)
    return [course for course in every if course not in speeds or course in (speeds[0], most)]


def _courses(track: _Track, read: Sequence[Read], rule: Rule) -> Iterator[Course]:
    runs = repeats.kept(track.entries, rule)
    noisy = repeats.noisy(runs.campaigns)
    points = tuple(_points(track, read, runs.campaigns, noisy, rule.metric))
    if not points:
        return
    series = Series(
        label=track.label,
        key=track.last.key,
        id=track.last.id,
        metric=rule.metric,
        points=points,
        without_first=runs.without_first,
    )
    errors = repeats.errors(runs.campaigns, noisy)
    yield Course(series=series, rule=rule, effect=rule.min_effect, errors=tuple(errors))


def _points(
    track: _Track, read: Sequence[Read], campaigns: Sequence[repeats.Runs], noisy: Collection[int], name: str
) -> Iterator[Point]:
    since: tuple[Difference, ...] = ()
    for place, ((number, entry, changes), runs) in enumerate(zip(track.seen, campaigns, strict=True)):
        since = findings.chained(since, changes)
        if not runs:
            continue  # the next point also gets the changes at this campaign, which failed
        since = (*since, *_other_source(track.entries[:place], entry, name))
        starts = [run.started_at for run in entry.runs if run.started_at is not None]
        value, interval = repeats.mean([*runs.values()])
        yield Point(
            campaign=number,
            began_at=min(starts, default=read[number].began_at),
            value=value,
            interval=interval,
            runs=len(runs),
            changes=since,
            real_share=real_share(entry),
            doubts=repeats.doubts(entry, runs, name, is_noisy=place in noisy),
            id=entry.id,
        )
        since = ()
