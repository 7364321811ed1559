"""The series of all experiments together: for each metric, the geometric mean over the experiments in each campaign. Pure.

The mean shows a small change of all experiments that no single series shows. A large change of one experiment also moves the mean.
So a change is reported only if more than half of the experiments moved with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from orchestrator.compare.comparison import Difference
from orchestrator.compare.history import findings, repeats
from orchestrator.compare.history.campaigns import Read
from orchestrator.compare.history.change_points import FEWEST
from orchestrator.compare.history.findings import Course
from orchestrator.compare.history.history import Kind, Point, Series, Step
from orchestrator.measure.metrics import Judged


def courses(every: Sequence[Course], read: Sequence[Read]) -> Iterator[Course]:
    """Yield a course for each metric that several experiments have in enough campaigns. Guards have none."""
    by_metric: dict[str, list[Course]] = defaultdict(list)
    for course in every:
        if course.is_searchable and course.rule.judged is not Judged.GUARD:
            by_metric[course.rule.metric].append(course)
    for members in by_metric.values():
        points = _points(members)
        if len(points) >= FEWEST:
            yield _course(members, points, read)


def _points(members: Sequence[Course]) -> dict[int, list[tuple[Point, float]]]:
    """Return the members' points with their errors, for each campaign in which several members have a point."""
    found: dict[int, list[tuple[Point, float]]] = defaultdict(list)
    for course in members:
        for point, error in zip(course.series.points, course.errors, strict=True):
            found[point.campaign].append((point, error))
    return {campaign: found[campaign] for campaign in sorted(found) if len(found[campaign]) > 1}


def _course(
    members: Sequence[Course], points: Mapping[int, Sequence[tuple[Point, float]]], read: Sequence[Read]
) -> Course:
    """Return the mean over the members.

    An additive fit separates campaigns from experiments, so an experiment that some campaigns lack does not move the mean.
    """
    logs = {
        (number, campaign): log
        for number, course in enumerate(members)
        for campaign, log in _logs(course).items()
        if campaign in points
    }
    by_experiment, by_campaign = repeats.additive(logs)
    middle = fmean(by_experiment.values())
    rule = members[0].rule
    means = tuple(
        Point(
            campaign=campaign,
            began_at=read[campaign].began_at,
            value=math.exp(middle + by_campaign[campaign]),
            interval=None,
            runs=sum(point.runs for point, _ in some),
            changes=_common([point.changes for point, _ in some]),
            real_share=_mean_share([point.real_share for point, _ in some]),
            doubts=tuple(dict.fromkeys(doubt for point, _ in some for doubt in point.doubts)),
        )
        for campaign, some in points.items()
    )
    return Course(
        series=Series(label=f"all {len(members)} experiments", key={}, id=None, metric=rule.metric, points=means),
        rule=rule,
        effect=rule.fleet_effect,
        errors=tuple(math.hypot(*(error for _, error in some)) / len(some) for some in points.values()),
    )


def _mean_share(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return fmean(known) if known and len(known) == len(shares) else None


def _logs(course: Course) -> dict[int, float]:
    return {point.campaign: math.log(point.value) for point in course.series.points}


def _common(changes: Sequence[Sequence[Difference]]) -> tuple[Difference, ...]:
    """Return the differences that all experiments show at a campaign."""
    first, *others = changes
    return tuple(change for change in first if all(change in other for other in others))


def search(course: Course, every: Sequence[Course], *, chance: float) -> Series:
    """Return the series with the changes that more than half of its experiments show. `chance` is as in `findings.search`."""
    found = findings.search(course, chance=chance)
    members = [one for one in every if one.is_searchable and one.rule == course.rule]
    steps, drifts, suspicious = (
        tuple(kept for step in some if (kept := _shared(step, found, members, effect=math.log1p(course.effect))))
        for some in (found.steps, found.drifts, found.suspicious)
    )
    return replace(found, steps=steps, drifts=drifts, suspicious=suspicious)


def _shared(step: Step, found: Series, members: Sequence[Course], *, effect: float) -> Step | None:
    """Return the step if more than half of the experiments moved with it, or None.

    It is neither better nor worse unless more than half of them also did the same work before and after it.
    """
    points, start, stop = found.points, step.at, step.at
    if step in found.drifts:  # the means of a drift's halves differ by half of its whole change
        start, stop, effect = (step.since + step.at + 1) // 2, step.at + 1, effect / 2
    while stop < len(points) and points[stop].level == points[start].level:
        stop += 1
    before, after = ([point.campaign for point in some] for some in (points[step.since : start], points[start:stop]))
    shifts = [(one, shift) for one in members if (shift := _shift(_logs(one), before, after)) is not None]
    way = math.copysign(1, step.change)
    moved = [one for one, shift in shifts if way * shift >= effect]
    if 2 * len(moved) <= len(shifts):
        return None
    first, last = (points[at].campaign for at in (step.since if step in found.drifts else step.at - 1, step.at))
    passed = [[point for point in one.series.points if first < point.campaign <= last] for one in moved]
    alike = sum(not findings.is_other_work(found.metric, some) for some in passed)
    return step if 2 * alike > len(shifts) else replace(step, kind=Kind.CHANGED)


def _shift(logs: Mapping[int, float], before: Sequence[int], after: Sequence[int]) -> float | None:
    """Return the change of an experiment's mean logarithm. Return None if it lacks all campaigns before or after."""
    old, new = ([logs[campaign] for campaign in some if campaign in logs] for some in (before, after))
    return fmean(new) - fmean(old) if old and new else None
