"""Writes a training's logged losses as one cell of text, and compares two trainings over the steps that both made. Pure.

A text is a list of points `step:loss`. The loss of a point is the mean over the steps since the previous point. The Trainer's
log entries are numbered from 1. An entry becomes a point if its number, in binary, has only zeros after the first three digits
(1 to 8, 10, 12, 14, 16, 20…). The last entry always becomes a point. So each doubling of the steps has at most four points. Two
trainings that log at the same steps share all points of the shorter training, except perhaps its last point. So they share a point
in the second half of the shorter training. A common point in the first half is not enough, since losses are alike at the beginning.
A comma and a space separate the texts of several runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[int, float]

# A loss is 0, or its absolute value is between 1 / LARGEST and LARGEST.
LARGEST = 1e30
# Two trainings must share a point at or after this part of the shorter training's steps.
LEAST = 0.5

_POINT = re.compile(r"(\d{1,15}):(\S+)")
_DIGITS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """The mean losses of two trainings over the same steps: the first `steps` steps of both."""

    steps: int
    first: float
    second: float


def as_text(logged: Sequence[Point]) -> str | None:
    """Return the text of logged losses; None without losses or with an invalid loss.

    Each item of `logged` is a step and the mean loss since the previous logged step.
    """
    points = [(int(step), float(loss)) for step, loss in logged]
    if not _are_sound(points):
        return None
    sums, words, at = _sums(points), [], 0
    for number, (step, _) in enumerate(points, start=1):
        if _is_kept(number) or number == len(points):
            mean = (sums[step] - sums.get(at, 0.0)) / (step - at)
            words.append(f"{step}:{mean:.6g}")
            at = step
    return " ".join(words)


def _is_kept(number: int) -> bool:
    zeros = max(0, number.bit_length() - _DIGITS)
    return number >> zeros << zeros == number


def _are_sound(points: Sequence[Point]) -> bool:
    rising = all(before < after for (before, _), (after, _) in zip([(0, 0.0), *points], points, strict=False))
    return bool(points) and rising and all(loss == 0 or 1 / LARGEST < abs(loss) < LARGEST for _, loss in points)


def _sums(points: Sequence[Point]) -> dict[int, float]:
    """Return, for each point, the sum of the losses of all steps up to that point."""
    sums, at, total = {}, 0, 0.0
    for step, loss in points:
        total += loss * (step - at)
        sums[step], at = total, step
    return sums


def over_the_same_steps(first: str, second: str) -> Shared | None:
    """Return both trainings' mean loss up to their last common point. A point is common if all runs of both trainings have it.

    Return None without a common point.
    """
    runs = [[_sums(_read(text)) for text in texts.split(", ")] for texts in (first, second)]
    shared = set.intersection(*(set(sums) for texts in runs for sums in texts))
    step = max(shared, default=0)
    if not shared or step < LEAST * min(max(sums) for texts in runs for sums in texts):
        return None
    means = [math.fsum(sums[step] for sums in texts) / len(texts) / step for texts in runs]
    return Shared(steps=step, first=means[0], second=means[1])


def _read(text: str) -> list[Point]:
    """Return the points of one run. Return an empty list if a point is invalid: a gap would make means wrong."""
    points: list[Point] = []
    for word in text.split(" "):
        match = _POINT.fullmatch(word)
        try:
            points.append((int(match[1] if match else ""), float(match[2] if match else "")))
        except ValueError:
            return []
    return points if _are_sound(points) else []
