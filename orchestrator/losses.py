"""A training's logged losses as one cell of text, and two trainings' losses over the steps that both made. Pure.

A text is points `step:loss`, the mean loss of the steps since the point before. A long training has its neighbours put together,
two by two from its beginning, until few enough are left: where two trainings log at the same steps, all but the last points of the
coarser text are among the finer one's, so that both have a point at nearly the end of the shorter training. Runs whose texts
differ are separated by a comma and a space, as a table puts words together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MAX_POINTS = 32

Point = tuple[int, float]
_POINT = re.compile(r"(\d{1,15}):(\S+)")


def as_text(logged: Sequence[Point]) -> str | None:
    """Losses as the Trainer logged them, `(step, mean since the one before)`; None where there are none, or one is no number."""
    points = [(int(step), float(loss)) for step, loss in logged]
    rising = all(before < after for (before, _), (after, _) in zip([(0, 0.0), *points], points, strict=False))
    if not points or not rising or not all(math.isfinite(loss) for _, loss in points):
        return None
    while len(points) > MAX_POINTS:
        points = _halved(points)
    return " ".join(f"{step}:{loss:.6g}" for step, loss in points)


def _halved(points: Sequence[Point]) -> list[Point]:
    sums = _sums(points)
    ends = [*points[1::2], *points[len(points) - len(points) % 2 :]]
    found, (at, total) = [], (0, 0.0)
    for step, _ in ends:
        found.append((step, (sums[step] - total) / (step - at)))
        at, total = step, sums[step]
    return found


def _sums(points: Sequence[Point]) -> dict[int, float]:
    """Step → the sum of all steps' losses up to it."""
    found, at, total = {}, 0, 0.0
    for step, loss in points:
        total += loss * (step - at)
        found[step], at = total, step
    return found


def over_the_same_steps(one: str, other: str) -> tuple[float, float] | None:
    """Both trainings' mean loss up to the last step at which both have a point in all their runs; None without such a step."""
    runs = [[_sums(_read(text)) for text in texts.split(", ")] for texts in (one, other)]
    shared = set.intersection(*(set(sums) for texts in runs for sums in texts))
    if not shared:
        return None
    step = max(shared)
    first, second = (math.fsum(sums[step] for sums in texts) / len(texts) / step for texts in runs)
    return first, second


def _read(text: str) -> list[Point]:
    """The points of one run; none at all where one of them is none, since a gap would be no mean."""
    points: list[Point] = []
    for word in text.split(" "):
        match = _POINT.fullmatch(word)
        try:
            step, loss = int(match[1] if match else ""), float(match[2] if match else "")
        except ValueError:
            return []
        if step <= (points[-1][0] if points else 0) or not math.isfinite(loss):
            return []
        points.append((step, loss))
    return points
