"""Put a history into words: steps, changes and values, for the terminal and the page. Pure; it escapes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.compare.comparison import Difference
from orchestrator.compare.history.history import Campaign, History, Point, Series, Step
from orchestrator.measure.metrics import DASH, metric, show
from orchestrator.report.tables.as_markdown import headings
from orchestrator.results.table.rows import Value

ARROW = "→"
# Of what changed at a campaign, in one sentence; the files have all of it.
MOST_CHANGES = 8

_COMMIT = "git_commit"
_COMMIT_DIGITS, _LONGEST = 10, 80
_BARS = "▁▂▃▄▅▆▇█"
# A curve of less than 5 % from its lowest to its highest value is drawn the flatter: noise should not look like
# mountains.
_LEAST_SPAN = 0.05


def moment(seconds: float | None) -> datetime | None:
    """Return the time in UTC of seconds since the epoch; None where they are unknown or out of a calendar's range."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def day(seconds: float | None) -> str:
    """Return the date and time in UTC; a dash where it is not known."""
    when = moment(seconds)
    return f"{when:%Y-%m-%d %H:%M}" if when else DASH


def percent(change: float) -> str:
    """Return a change with its sign, as `compare` writes it: `-5.1%`; beyond a factor of ten, the ratio itself."""
    return f"{change:+.1%}" if 0.1 < change + 1 < 10 else f"×{change + 1:.3g}"


def labels(history: History) -> dict[str, str]:
    """Return metric → heading, or its name where two have the same heading."""
    names = list(dict.fromkeys(series.metric for series in history.series))
    return dict(zip(names, headings(names), strict=True))


def step_text(series: Series, step: Step) -> str:
    """Return the old and the new level, and the change."""
    name = series.metric
    return f"{metric(name).label} {show(name, step.before)} {ARROW} {show(name, step.after)} ({percent(step.change)})"


def changes_text(changes: Sequence[Difference]) -> str:
    """Return all changes since the campaign before, for files."""
    return "; ".join(f"{one.name} {_word(one.base)} {ARROW} {_word(one.new)}" for one in changes)


def changes_shown(changes: Sequence[Difference]) -> str:
    """Return the changes for people: shortened, and only the first of many; a phrase if there are none."""
    said = [f"{one.name} {_short(one, one.base)} {ARROW} {_short(one, one.new)}" for one in changes[:MOST_CHANGES]]
    more = len(changes) - len(said)
    return "; ".join([*said, *([f"and {more} more"] if more else [])]) or "nothing known"


def _word(value: Value) -> str:
    return DASH if value is None else str(value)


def _short(one: Difference, value: Value) -> str:
    return _word(value)[: _COMMIT_DIGITS if one.name == _COMMIT else _LONGEST]


Found = tuple[Series, Step]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """The steps of one campaign with the same changes; `changes` lists them in words."""

    campaign: Campaign
    changes: str
    steps: tuple[Found, ...]


def newest_first(history: History) -> list[Found]:
    """Return all steps, those of the newest campaign first; within a campaign the largest first."""
    every = [(series, step) for series in history.series for step in series.steps]
    return sorted(every, key=lambda one: (-_point(one).campaign, -_size(one[1])))


def turns(found: Sequence[Found], campaigns: Sequence[Campaign]) -> list[Turn]:
    """Return the steps grouped by campaign and by its changes, in their order."""
    groups: dict[tuple[int, str], list[Found]] = {}
    for one in found:
        point = _point(one)
        said = changes_shown(point.changes)
        groups.setdefault((point.campaign, said), []).append(one)
    ordered = sorted(groups.items(), key=lambda group: -group[0][0])
    return [Turn(campaign=campaigns[at], changes=said, steps=tuple(some)) for (at, said), some in ordered]


def _point(found: Found) -> Point:
    series, step = found
    return series.points[step.at]


def _size(step: Step) -> float:
    return max(step.after / step.before, step.before / step.after)


def curve(series: Series, *, width: int) -> str:
    """Return the last values as bars of eight heights, a character each."""
    values = [point.value for point in series.points][-width:]
    low, high = min(values), max(values)
    span = max(high - low, _LEAST_SPAN * max(abs(low), abs(high)))
    if span == 0:
        return _BARS[0] * len(values)
    floor = (low + high - span) / 2
    return "".join(_BARS[min(len(_BARS) - 1, int((value - floor) / span * len(_BARS)))] for value in values)


def overall(series: Series) -> float | None:
    """Return the change from the first level to the last, over all steps; None if there is no step."""
    return series.steps[-1].after / series.steps[0].before - 1 if series.steps else None
