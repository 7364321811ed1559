"""A training's logged losses as one cell of text, and two trainings' losses over the steps that both made. Pure.

A text is points `step:loss`, the mean loss of the steps since the point before. Of what the Trainer logged, numbered from 1, a
point stands at each number of at most three binary digits and zeros behind them (1 to 8, 10, 12, 14, 16, 20…) and at the last: at
most four for each doubling. Two trainings that log at the same steps have all of these but the last in common, however long each
is, so that they meet in the second half of the shorter one; nearer to its beginning no meeting counts, since losses are alike
there. Texts of several runs are separated by a comma and a space.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[int, float]

LARGEST = 1e30
"""What is further from 0 is no loss; nor is what is nearer to it than 1 divided by this, unless it is 0."""

LEAST = 0.5
"""Share of the shorter training's points, by their steps, that two trainings must have in common."""

_POINT = re.compile(r"(\d{1,15}):(\S+)")
_DIGITS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """Two mean losses over the same steps: the first `steps` of both trainings."""

    steps: int
    one: float
    other: float


def as_text(logged: Sequence[Point]) -> str | None:
    """Losses as the Trainer logged them, `(step, mean since the one before)`; None where there are none, or one is no number."""
    points = [(int(step), float(loss)) for step, loss in logged]
    if not _are_sound(points):
        return None
    sums, found, at = _sums(points), [], 0
    for number, (step, _) in enumerate(points, start=1):
        if _is_kept(number) or number == len(points):
            mean = (sums[step] - sums.get(at, 0.0)) / (step - at)
            found.append(f"{step}:{mean:.6g}")
            at = step
    return " ".join(found)


def _is_kept(number: int) -> bool:
    behind = max(0, number.bit_length() - _DIGITS)
    return number >> behind << behind == number


def _are_sound(points: Sequence[Point]) -> bool:
    rising = all(before < after for (before, _), (after, _) in zip([(0, 0.0), *points], points, strict=False))
    return bool(points) and rising and all(loss == 0 or 1 / LARGEST < abs(loss) < LARGEST for _, loss in points)


def _sums(points: Sequence[Point]) -> dict[int, float]:
    """Step → the sum of all steps' losses up to it."""
    found, at, total = {}, 0, 0.0
    for step, loss in points:
        total += loss * (step - at)
        found[step], at = total, step
    return found


def over_the_same_steps(one: str, other: str) -> Shared | None:
    """Both trainings' mean loss up to the last step at which both have a point in all their runs; None without such a step."""
    runs = [[_sums(_read(text)) for text in texts.split(", ")] for texts in (one, other)]
    shared = set.intersection(*(set(sums) for texts in runs for sums in texts))
    step = max(shared, default=0)
    if not shared or step < LEAST * min(max(sums) for texts in runs for sums in texts):
        return None
    first, second = (math.fsum(sums[step] for sums in texts) / len(texts) / step for texts in runs)
    return Shared(steps=step, one=first, other=second)


def _read(text: str) -> list[Point]:
    """The points of one run; none at all where one of them is none, since a gap would be no mean."""
    points: list[Point] = []
    for word in text.split(" "):
        match = _POINT.fullmatch(word)
        try:
            points.append((int(match[1] if match else ""), float(match[2] if match else "")))
        except ValueError:
            return []
    return points if _are_sound(points) else []
