"""Put a history into words: steps, changes and values, for the terminal and the page. Pure; nothing is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath

from orchestrator.compare.comparison import Difference
from orchestrator.compare.history.change_points import FEWEST
from orchestrator.compare.history.history import Campaign, History, Point, Series, Step
from orchestrator.files.printable_text import counted, from_the_difference, one_line
from orchestrator.measure.metrics import DASH, metric, show
from orchestrator.report.tables.as_markdown import headings
from orchestrator.results.table.rows import Value

ARROW = "→"
# The sorts of changes: fields of a series, and headings.
SORTS = {"steps": "step", "drifts": "drift", "suspicious": "suspicious step"}
# The most changes of one campaign that a sentence names. The files have all changes.
MOST_CHANGES = 8

COMMIT = "git_commit"
_COMMIT_DIGITS, _LONGEST = 7, 80
# Names of facts for people. The files have the names themselves.
_NAMES = {COMMIT: "commit", "git_dirty": "uncommitted changes"}
_BARS = "▁▂▃▄▅▆▇█"
# The smallest span of a curve, as a share, so that small noise is drawn nearly flat.
_LEAST_SPAN = 0.05

SeriesStep = tuple[Series, Step]


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """Steps at one campaign that come with the same changes of environment and arguments. `changes` describes these changes."""

    campaign: Campaign
    changes: str
    steps: tuple[SeriesStep, ...]


def moment(seconds: float | None) -> datetime | None:
    """Return seconds since the epoch as a time in UTC. Return None if the time is unknown or outside the range of dates."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def day(seconds: float | None) -> str:
    """Return the date and time in UTC; a dash if it is unknown."""
    when = moment(seconds)
    return f"{when:%Y-%m-%d %H:%M}" if when else DASH


def date(seconds: float | None) -> str:
    """Return the date in UTC; an empty text if it is unknown."""
    when = moment(seconds)
    return f"{when:%Y-%m-%d}" if when else ""


def short_names(campaigns: Sequence[Campaign]) -> dict[str, str]:
    """Return a dict from the name of each campaign to the name of its folder or file, or to itself if two would be the same."""
    names = [campaign.name for campaign in campaigns]
    last = [PurePath(name).name or name for name in names]
    return dict(zip(names, last if len({*last}) == len({*names}) else names, strict=True))


def period(history: History) -> str:
    """Return the dates of the first and the last campaign (`2026-01-01 08:00 to 2026-02-01 08:00 UTC`), or an empty text."""
    known = [campaign.began_at for campaign in history.campaigns if campaign.began_at is not None]
    return f"{day(min(known))} to {day(max(known))} UTC" if known else ""


def percent(change: float) -> str:
    """Return a change with its sign in the form of `compare`: `-5.1%`. Beyond a factor of ten, return the ratio itself."""
    return f"{change:+.1%}" if 0.1 < change + 1 < 10 else f"×{change + 1:.3g}"


def labels(history: History) -> dict[str, str]:
    """Return a dict from metric to heading. If two metrics have the same heading, use their names instead."""
    names = list(dict.fromkeys(series.metric for series in history.series))
    return dict(zip(names, headings(names), strict=True))


def step_text(series: Series, step: Step) -> str:
    """Return the old level, the new level, and the change."""
    name = series.metric
    return f"{metric(name).label} {show(name, step.before)} {ARROW} {show(name, step.after)} ({percent(step.change)})"


def value(series: Series, point: Point) -> str:
    """Return the value of a point. A value in doubt has a mark, as in the tables of a report."""
    return show(series.metric, point.value) + (" ?" if point.doubts else "")


def last_in(series: Series, history: History) -> str:
    """Return where the last value is from (`last in night-4`). Return an empty text if it is the value of the newest campaign."""
    at = series.points[-1].campaign
    names = short_names(history.campaigns)
    return "" if at == len(history.campaigns) - 1 else f"last in {names[history.campaigns[at].name]}"


def drift_time(series: Series, drift: Step, campaigns: Sequence[Campaign]) -> str:
    """Return the campaigns between which a level drifted."""
    first, last = (campaigns[series.points[at].campaign] for at in (drift.since, drift.at))
    return f"{day(first.began_at)}  {first.name} to {day(last.began_at)}  {last.name}"


def changes_text(changes: Sequence[Difference]) -> str:
    """Return all changes since the previous campaign, for files."""
    return "; ".join(f"{change.name} {_word(change.base)} {ARROW} {_word(change.new)}" for change in changes)


def changes_shown(changes: Sequence[Difference]) -> str:
    """Return the first changes as a short text for people. Return a phrase if there are none."""
    short = [f"{fact(change.name)} {f' {ARROW} '.join(_short_values(change))}" for change in changes[:MOST_CHANGES]]
    more = len(changes) - len(short)
    return "; ".join([*short, *([f"and {more} more"] if more else [])]) or "nothing known"


def _short_values(change: Difference) -> list[str]:
    """Return both values for people. Long texts begin near their difference, and commits with one that only this side has."""
    base, new = _word(change.base), _word(change.new)
    if change.name == COMMIT:
        values = _own_first(base, other=new), _own_first(new, other=base)
    else:
        values = from_the_difference(base, new, longest=_LONGEST)
    return [short_value(change.name, value) for value in values]


def _own_first(commits: str, *, other: str) -> str:
    return ", ".join(sorted(commits.split(", "), key=lambda commit: commit in other.split(", ")))


def _word(value: Value) -> str:
    return DASH if value is None else str(value)


def fact(name: str) -> str:
    """Return the name of a fact of the environment for people."""
    return _NAMES.get(name, name)


def short_value(name: str, value: Value) -> str:
    """Return a value for people. Commits are short: `1a2b3c4`, or `1a2b3c4 +1` if there is another one."""
    if name != COMMIT:
        return _word(value)[:_LONGEST]
    first, *others = _word(value).split(", ")
    return first[:_COMMIT_DIGITS] + (f" +{len(others)}" if others else "")


def every_series(history: History) -> tuple[Series, ...]:
    """Return all series: those of all experiments together, then those of each experiment."""
    return *history.fleet, *history.series


def newest_first(history: History, sort: str = "steps") -> list[SeriesStep]:
    """Return all changes of a sort, the newest campaign first.

    Within a campaign, changes of all experiments together are first. Then the largest change is first.
    """

    def place(item: SeriesStep) -> tuple[int, bool, float]:
        series, step = item
        return (
            -_point(item).campaign,
            series not in history.fleet,
            -max(step.after / step.before, step.before / step.after),
        )

    return sorted(((series, step) for series in every_series(history) for step in getattr(series, sort)), key=place)


def no_step(history: History) -> str:
    """Return the sentence for a history without steps. With too few campaigns to find one, it names the last changes."""
    longest = max((len(series.points) for series in history.series), default=0)
    if longest >= FEWEST:
        return "No step in any series."
    newest = (series.points[-1] for series in history.series)
    last = [point.changes for point in newest if point.campaign == len(history.campaigns) - 1]
    changes = list(dict.fromkeys(change for some in last for change in some))
    changed = f" With the newest campaign changed: {one_line(changes_shown(changes), longest=600)}." if changes else ""
    return f"No step in any series: a step needs {FEWEST} campaigns, and the longest series has {longest}.{changed}"


def expected(history: History) -> str:
    """Return a sentence about the false steps that a history without a change shows, or an empty text if nothing was searched."""
    if not history.expected_false_steps:
        return ""
    searched = counted(sum(len(series.points) >= FEWEST for series in every_series(history)), "series", "series")
    return (
        f"If nothing had changed, noise would show about {history.expected_false_steps:.2g} steps "
        f"in {searched} (error rate {history.error_rate:g})."
    )


def turns(steps: Sequence[SeriesStep], campaigns: Sequence[Campaign]) -> list[Turn]:
    """Return the steps in their order, grouped by campaign and by changes."""
    groups: dict[tuple[int, str], list[SeriesStep]] = {}
    for item in steps:
        point = _point(item)
        groups.setdefault((point.campaign, changes_shown(point.changes)), []).append(item)
    ordered = sorted(groups.items(), key=lambda group: -group[0][0])
    return [Turn(campaign=campaigns[at], changes=text, steps=tuple(group)) for (at, text), group in ordered]


def _point(item: SeriesStep) -> Point:
    series, step = item
    return series.points[step.at]


def curve(series: Series, *, width: int) -> str:
    """Return the last values as bars of eight heights, one character per value."""
    values = [point.value for point in series.points][-width:]
    low, high = min(values), max(values)
    span = max(high - low, _LEAST_SPAN * max(abs(low), abs(high)))
    if span == 0:
        return _BARS[0] * len(values)
    floor = (low + high - span) / 2
    return "".join(_BARS[min(len(_BARS) - 1, int((value - floor) / span * len(_BARS)))] for value in values)


def overall(series: Series) -> float | None:
    """Return the change from the first level to the last level. Return None if there is neither a step nor a drift."""
    changes = sorted((*series.steps, *series.drifts), key=lambda step: step.at)
    return changes[-1].after / changes[0].before - 1 if changes else None


def counts(series: Series) -> str:
    """Return how many changes a series has (`in 1 step, 1 drift`), or an empty text."""
    parts = [counted(len(getattr(series, sort)), noun) for sort, noun in SORTS.items() if getattr(series, sort)]
    return f"in {', '.join(parts)}" if parts[:1] and overall(series) is not None else ", ".join(parts)
