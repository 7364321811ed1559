"""Find steps, drifts and near misses in the series of a history, with one error rate for the whole history. Pure.

Among many series, noise shows a step in some. So the penalty of a step grows with the number of series. A step that only this
growth or a little noise hides is a near miss: it is reported as suspicious. A change is neither better nor worse if an argument
that changes the measured work changed with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import fmean

from orchestrator.compare.comparison import Difference
from orchestrator.compare.history import change_points
from orchestrator.compare.history.change_points import FEWEST, MIN_LENGTH, MOST_PER_SERIES, Level, usual_penalty
from orchestrator.compare.history.history import Kind, Point, Series, Step
from orchestrator.compare.rules import Rule
from orchestrator.compare.sides.incomparable import FROM_STEPS, measured_padding
from orchestrator.errors import SelectionError
from orchestrator.measure.metrics import Judged
from orchestrator.results.table.baseline.other_work import counts_padding, other_padding, other_source, other_work

# If nothing changed, about this share of the histories shows a step.
ERROR_RATE = 0.05

# A suspicious step may be so many times as likely by chance as a step.
SUSPICIOUS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """A series before the search. `errors` are lower bounds of the standard errors of the values' logarithms.

    A change is reported if it is at least `effect`.
    """

    series: Series
    rule: Rule
    effect: float
    errors: tuple[float, ...]

    @property
    def is_searchable(self) -> bool:
        """Return whether steps can be found: there are enough values, and each value has a logarithm."""
        return len(self.series.points) >= FEWEST and self.has_logarithms

    @property
    def has_logarithms(self) -> bool:
        return all(point.value > 0 for point in self.series.points)


def check_error_rate(error_rate: float) -> None:
    """Raise SelectionError if the error rate is not a chance."""
    if not 0 < error_rate < 1:
        raise SelectionError(
            f"--error-rate '{error_rate:g}' is invalid; write a chance between 0 and 1, such as {ERROR_RATE}"
        )


def chance_per_series(courses: Iterable[Course], *, error_rate: float) -> float:
    """Return the chance of a false step that each series may have, so that all together have the error rate."""
    count = sum(course.is_searchable for course in courses)
    return min(MOST_PER_SERIES, -math.expm1(math.log1p(-error_rate) / max(count, 1)))


def expected_false_steps(courses: Iterable[Course], *, chance: float) -> float:
    """Return how many series of white noise would show a step."""
    counts = [len(course.series.points) for course in courses if course.is_searchable]
    return math.fsum(change_points.chance(count, penalty=usual_penalty(count, chance=chance)) for count in counts)


def search(course: Course, *, chance: float) -> Series:
    """Return the series with its steps, drifts and suspicious steps. `chance` is the chance of a false step."""
    points = course.series.points
    if not points or not course.has_logarithms:
        return course.series
    fits = change_points.fit([math.log(point.value) for point in points], errors=course.errors)
    penalty = usual_penalty(len(points), chance=chance)
    parts = fits.segments(penalty=penalty)
    steps, drifts = _changes(parts, points, course)
    found = replace(course.series, points=_fitted(points, parts), steps=steps, drifts=drifts)
    if len(points) < FEWEST:
        return found
    lower = change_points.penalty(len(points), chance=SUSPICIOUS * change_points.chance(len(points), penalty=penalty))
    if fits.levels(penalty=lower) == fits.levels(penalty=penalty):
        return found
    perhaps, _ = _changes(fits.segments(penalty=lower), points, course)
    return replace(found, suspicious=tuple(step for step in perhaps if not _is_near(step, found)))


def _is_near(step: Step, found: Series) -> bool:
    """Return whether a step is explained by a step at about the same campaign, or by a drift."""
    return any(abs(step.at - other.at) < MIN_LENGTH for other in found.steps) or any(
        drift.since <= step.at <= drift.at for drift in found.drifts
    )


def _fitted(points: Sequence[Point], parts: Sequence[Level]) -> tuple[Point, ...]:
    """Return the points with their fitted levels."""
    values = (_value(part, at, points) for part in parts for at in range(part.start, part.stop))
    return tuple(replace(point, level=value) for point, value in zip(points, values, strict=True))


def _value(part: Level, place: int, points: Sequence[Point]) -> float:
    """Return the fitted value at a place. If a point is on the level, return exactly the point's value."""
    fitted = part.at(place)
    values = (point.value for point in points[part.start : part.stop])
    return next((value for value in values if math.log(value) == fitted), math.exp(fitted))


def _changes(
    parts: Sequence[Level], points: Sequence[Point], course: Course
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return the steps and the drifts that matter.

    If a level moves in small steps, return the step at which the total change reaches the smallest effect.
    """
    steps: list[Step] = []
    drifts: list[Step] = []
    old, since = parts[0], 0
    for part in parts:
        ends = [(part.start, steps), (part.stop - 1, drifts)] if part.slope else [(part.start, steps)]
        for at, found in ends:
            shift = part.at(at) - old.at(since)
            if abs(shift) < math.log1p(course.effect):
                continue
            passed = points[part.start + 1 if old is part else old.stop : at + 1]
            found.append(
                Step(
                    at=at,
                    since=part.start if found is drifts else since,
                    before=_value(old, since, points),
                    after=_value(part, at, points),
                    kind=_kind(course, shift, passed, levels=(points[since : old.stop], points[at : part.stop])),
                )
            )
            old, since = part, at
    return tuple(steps), tuple(drifts)


def _kind(course: Course, shift: float, passed: Iterable[Point], *, levels: Sequence[Sequence[Point]]) -> Kind:
    """Return the kind of a shift between two levels. A rate of tokens that moved with its padding has that of the real tokens."""
    rule = course.rule
    if rule.judged is Judged.GUARD or is_other_work(rule.metric, passed):
        return Kind.CHANGED
    before, after = map(_real_share, levels)
    if before and after and counts_padding(rule.metric) and measured_padding(before, after):
        real = shift + math.log(after / before)
        if abs(real) < math.log1p(course.effect) or real * shift < 0:
            return Kind.CHANGED
    return Kind.BETTER if rule.is_better(shift) else Kind.WORSE


def _real_share(points: Sequence[Point]) -> float | None:
    known = [point.real_share for point in points if point.real_share is not None]
    return fmean(known) if known else None


def is_other_work(name: str, passed: Iterable[Point]) -> bool:
    """Return whether the changes at successive points change what a metric measures: its work, its padding or its source."""
    none: tuple[Difference, ...] = ()
    changes = [change.name for change in reduce(chained, (point.changes for point in passed), none)]
    others = other_work(name, changes) or other_padding(name, changes) or other_source(name, changes)
    return bool(others) or FROM_STEPS in changes


def chained(earlier: Sequence[Difference], later: Sequence[Difference]) -> tuple[Difference, ...]:
    """Return two successive lists of differences as one. A name that returned to its old value is left out."""
    by_name = {difference.name: difference for difference in earlier}
    for difference in later:
        before = by_name.get(difference.name)
        by_name[difference.name] = replace(difference, base=before.base) if before else difference
    return tuple(difference for difference in by_name.values() if difference.base != difference.new)
