"""Make the axis of campaigns in the trend chart: their commits and dates, and the versions that changed. Pure.

Campaigns are at equal distances, oldest first. An axis has room for some labels of a long history. Labels of steps come first, then
labels where a driver or a package changed, then those of the newest and the oldest campaign, then the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from orchestrator.compare.comparison import Difference
from orchestrator.compare.history.history import Campaign, Point, Series
from orchestrator.compare.history.view import wording
from orchestrator.files.printable_text import printable
from orchestrator.report.page.texts import for_plotly

TITLE = "commit, date (UTC), and what else changed"
# The usual width of the axis on a screen and on a phone, and the width of a character of a label, in pixels.
WIDE_PX, NARROW_PX, CHARACTER_PX, GAP_PX = 640, 270, 6, 8
_FONT = {"size": 11}
_LONGEST = 14
# The free space at each end, as a share of the axis.
_EDGE = 0.015
_OF_THE_SOURCE = (wording.COMMIT, "git_dirty")

# The lines of a label: commit and date, and what else changed.
Label = tuple[Sequence[str], Sequence[str]]


def place(point: Point) -> int:
    """Return the place of a point on the axis: the number of its campaign, counted from 1."""
    return point.campaign + 1


def marked(series: Series) -> list[Point]:
    """Return the points at which the environment or the arguments changed, except for the commit."""
    return [point for point in series.points if _marks(point)]


def of(series: Series, campaigns: Sequence[Campaign], *, width: int) -> dict[str, Any]:
    """Return the fields of Plotly's x axis for an axis of this width in pixels."""
    first, last = place(series.points[0]), place(series.points[-1])
    kept = _that_fit(series, dict(_labels(series, campaigns)), scale=width / max(last - first, 1))
    return {
        "tickmode": "array",
        "tickangle": 0,
        "zeroline": False,
        "tickfont": _FONT,
        "ticklabeloverflow": "allow",
        "tickvals": [*kept],
        "ticktext": ["<br>".join(map(for_plotly, lines)) for lines in kept.values()],
        "range": [first - max(0.5, _EDGE * (last - first)), last + max(0.5, _EDGE * (last - first))],
    }


def _that_fit(series: Series, labels: Mapping[int, Label], *, scale: float) -> dict[int, Sequence[str]]:
    """Return the labels that fit, from place to lines. If a label is too wide, it is tried without what changed.

    `scale` is the distance of two campaigns in pixels.
    """
    kept: dict[int, Sequence[str]] = {}
    for point in _most_important_first(series):
        at, (usual, changed) = place(point), labels[point.campaign]
        for lines in ([*usual, *changed], usual):
            if all(scale * abs(at - other) >= _distance(lines, beside) for other, beside in kept.items()):
                kept[at] = lines
                break
    return dict(sorted(kept.items()))


def _distance(lines: Sequence[str], others: Sequence[str]) -> float:
    """Return the smallest distance of two labels in pixels."""
    return GAP_PX + CHARACTER_PX * (max(map(len, lines)) + max(map(len, others))) / 2


def _most_important_first(series: Series) -> list[Point]:
    """Return the points in the order in which they get labels: among equals, the newest first."""
    steps, last = {step.at for step in series.steps}, len(series.points) - 1

    def rank(at: int) -> tuple[bool, ...]:
        return at not in steps, not _marks(series.points[at]), at != last, at != 0

    return [series.points[at] for at in sorted(range(last, -1, -1), key=rank)]


def _marks(point: Point) -> list[Difference]:
    return [change for change in point.changes if change.name not in _OF_THE_SOURCE]


def _labels(series: Series, campaigns: Sequence[Campaign]) -> Iterator[tuple[int, Label]]:
    """Yield the label of each campaign."""
    moments = [wording.moment(point.began_at) for point in series.points]
    form = _date_form([moment for moment in moments if moment])
    for point, moment in zip(series.points, moments, strict=True):
        commit = campaigns[point.campaign].environment.get(wording.COMMIT)
        lines = [] if commit is None else [wording.short_value(wording.COMMIT, commit)]
        lines.append(f"{moment:{form}}" if moment else f"campaign {place(point)}")
        yield point.campaign, ([*map(printable, lines)], [*_changed(point)])


def _date_form(moments: Sequence[datetime]) -> str:
    """Return the shortest form of dates that distinguishes the campaigns."""
    day = "%m-%d" if len({moment.year for moment in moments}) < 2 else "%Y-%m-%d"
    return day if len({moment.date() for moment in moments}) == len(moments) else f"{day} %H:%M"


def _changed(point: Point) -> Iterator[str]:
    """Yield the name and the new value of the first change at a point, and the number of other changes."""
    for change in _marks(point)[:1]:
        yield _cut(wording.fact(change.name))
        yield _cut(wording.short_value(change.name, change.new))
    if len(_marks(point)) > 1:
        yield f"and {len(_marks(point)) - 1} more"


def _cut(text: str) -> str:
    line = printable(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
