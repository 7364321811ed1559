"""Group the steps of a history into events: one event for each campaign at which something changed, newest first. Pure.

A slowdown is one fact, even if several metrics show it (tokens per second, step time). So of the speeds of an experiment, only the
first one counts, and of its memory numbers, too: the same rule as in `compare`. Experiments that moved alike are one finding.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from orchestrator.compare.comparison import Difference, Verdict
from orchestrator.compare.history.findings import chained
from orchestrator.compare.history.history import Campaign, History, Kind, Series, Step
from orchestrator.compare.history.view import wording
from orchestrator.compare.history.view.wording import SeriesStep
from orchestrator.compare.view import in_words
from orchestrator.compare.view.in_words import BETWEEN
from orchestrator.compare.view.wording import range_of
from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import Judged, metric, show

MOST_NAMED = 3
# A change of a series that missed more campaigns than this before it is an event of its own.
MOST_MISSED = 2
_WORST_FIRST = (Kind.WORSE, Kind.CHANGED, Kind.BETTER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A fact of an event. `head` and `size` say what moved by how much (`Slower`, `-5.7% to -5.3% tok/s`); `where` says in what.

    `series` is the series to show for it.
    """

    kind: Kind
    head: str
    size: str
    where: str
    series: Series


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """The findings of one campaign, worst first. Most series have it between the campaigns `sides`, some between `other_sides`.

    Other sides are those of series that have no run in one of these campaigns. A drift is an event from its first campaign to its
    last. `changes` are the differences of environment and arguments that all series of `sides` share. `only_some` are others.
    """

    sides: tuple[Campaign, Campaign]
    other_sides: tuple[tuple[Campaign, Campaign], ...]
    changes: tuple[Difference, ...]
    only_some: tuple[Difference, ...]
    findings: tuple[Finding, ...]

    @property
    def campaign(self) -> Campaign:
        """The campaign at which the levels are new."""
        return self.sides[1]


def events(history: History, sort: str = "steps") -> list[Event]:
    """Return the events of a sort of changes, newest first."""
    steps = wording.newest_first(history, sort)
    times = Counter(_sides(series, step, sort)[1] for series, step in steps)
    groups: dict[tuple[int, int], list[SeriesStep]] = {}
    for series, step in steps:
        before, at = _sides(series, step, sort)
        key = (at, before) if sort == "drifts" else (_likeliest(before, at, times), 0)
        groups.setdefault(key, []).append((series, step))
    return [_event(history, groups[key], sort) for key in sorted(groups, reverse=True)]


def _likeliest(before: int, at: int, times: Mapping[int, int]) -> int:
    """Return the campaign of a change. A series without runs in the campaigns before `at` may have changed in one of them.

    So if the series missed few campaigns, the change belongs to the campaign at which the most series changed.
    """
    first = before + 1 if at - before - 1 <= MOST_MISSED else at
    return max(range(first, at + 1), key=lambda campaign: (times.get(campaign, 0), campaign))


def _sides(series: Series, step: Step, sort: str) -> tuple[int, int]:
    """Return the campaign before a change, and its campaign. For a drift, return its first campaign and its last."""
    before = step.since if sort == "drifts" else step.at - 1
    return series.points[before].campaign, series.points[step.at].campaign


def _event(history: History, steps: Sequence[SeriesStep], sort: str) -> Event:
    changes: dict[tuple[int, int], list[tuple[Difference, ...]]] = {}
    for series, step in _with_members(history, steps):
        sides = _sides(series, step, sort)
        passed = [point.changes for point in series.points if sides[0] < point.campaign <= sides[1]]
        changes.setdefault(sides, []).append(reduce(chained, passed, ()))
    main = max(changes, key=lambda sides: (len(changes[sides]), sides))
    shared = tuple(change for change in changes[main][0] if all(change in some for some in changes[main]))
    names = {change.name for change in shared}
    every = {change.name: change for group in changes.values() for some in group for change in some}
    campaigns = history.campaigns
    return Event(
        sides=(campaigns[main[0]], campaigns[main[1]]),
        other_sides=tuple((campaigns[before], campaigns[at]) for before, at in sorted(changes) if (before, at) != main),
        changes=shared,
        only_some=tuple(change for name, change in every.items() if name not in names),
        findings=tuple(_findings(history, steps)),
    )


def _with_members(history: History, steps: Sequence[SeriesStep]) -> Iterator[SeriesStep]:
    """Yield the steps of single experiments. If there are none, yield the steps of their mean.

    The mean has only the differences that all experiments share, so it says less than they do.
    """
    single = [item for item in steps if item[0] not in history.fleet]
    yield from single or steps


def latest_first(history: History) -> list[Series]:
    """Return all series, those with the latest step or drift first. Of one event, the series that its findings show are first."""
    shown = [finding.series for event in events(history) for finding in event.findings]
    places = {(series.label, series.metric): at for at, series in reversed([*enumerate(shown)])}

    def place(series: Series) -> tuple[int, int]:
        return -_latest(series), places.get((series.label, series.metric), len(shown))

    return sorted(wording.every_series(history), key=place)


def _latest(series: Series) -> int:
    """Return the campaign of the latest step or drift; -1 if there is none."""
    return max((series.points[step.at].campaign for step in (*series.steps, *series.drifts)), default=-1)


def _findings(history: History, steps: Sequence[SeriesStep]) -> Iterator[Finding]:
    at = {series.points[step.at].campaign for series, step in steps}
    groups: dict[tuple[int, str, str], list[SeriesStep]] = {}
    for series, step in _without_mirrors(steps):
        key = _WORST_FIRST.index(step.kind), series.metric, first_words(series, step)
        groups.setdefault(key, []).append((series, step))
    for (_, name, _), some in sorted(groups.items(), key=lambda group: group[0][0]):
        together = [item for item in some if item[0] in history.fleet]
        single = [item for item in some if item not in together]
        measured = sum(one.metric == name and any(p.campaign in at for p in one.points) for one in history.series)
        if together and 2 * len(single) < measured:
            yield _finding(together, f"the mean of {together[0][0].label}")
        if single:
            shown = [*together, *single] if len(single) == measured else single
            yield _finding(single, _where(history, [series.label for series, _ in single], of=measured), shown=shown)


def _without_mirrors(steps: Sequence[SeriesStep]) -> Iterator[SeriesStep]:
    """Yield the first of the steps of an experiment that show one fact."""
    known = set()
    for series, step in sorted(steps, key=lambda item: in_words.order(item[0].metric)):
        fact = series.label, series.id, step.kind, first_words(series, step)
        if fact not in known:
            known.add(fact)
            yield series, step


def first_words(series: Series, step: Step) -> str:
    """Return what a step means: `Slower`, `Less memory`, `Higher loss`, `Other work`."""
    if step.kind is Kind.CHANGED and metric(series.metric).judged is not Judged.GUARD:
        return "Other work"
    is_bad = step.kind is Kind.WORSE or (step.kind is Kind.CHANGED and step.change > 0)
    return in_words.first_words(in_words.family(series.metric), Verdict.REGRESSED if is_bad else Verdict.IMPROVED)


def _finding(steps: Sequence[SeriesStep], where: str, shown: Sequence[SeriesStep] = ()) -> Finding:
    series, step = max(steps, key=lambda item: abs(math.log1p(item[1].change)))
    changes = sorted(each.change for _, each in steps)
    ends = range_of(1 + changes[0], 1 + changes[-1])
    levels = (
        f", {show(series.metric, step.before)} {wording.ARROW} {show(series.metric, step.after)}"
        if len(steps) == 1
        else ""
    )
    head, label = first_words(series, step), metric(series.metric).label
    return Finding(
        kind=step.kind,
        head=head,
        size=f"{ends}{'' if head.endswith(label) else f' {label}'}{levels}",
        where=where,
        series=shown[0][0] if shown and shown[0] not in steps else series,
    )


def _where(history: History, labels: Sequence[str], *, of: int) -> str:
    """Return the experiments as text: `2 of 6 experiments: liger at 1 and 2 GPUs`. Leave out what all experiments share."""
    if len(labels) == of > 1:
        return f"all {of} experiments"
    every = [label.split(BETWEEN) for label in dict.fromkeys(series.label for series in history.series)]
    common = {part for part in every[0] if all(part in parts for parts in every)}
    groups: dict[str, list[str]] = {}
    for label in labels:
        own = BETWEEN.join(part for part in label.split(BETWEEN) if part not in common) or label
        groups.setdefault(in_words.without_gpus(own), []).append(own)
    names = [f"{name} {in_words.gpus(some)}".strip() for name, some in groups.items()]
    more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    count = f"{len(labels)} of {counted(of, 'experiment')}: " if of > 1 else ""
    return count + "; ".join([*names[:MOST_NAMED], *more])
