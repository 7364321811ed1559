"""Say which followed metrics have no value in the newest campaign, although the experiment ran ok there. Pure.

Nothing else shows this: the series ends at an earlier campaign, and its last value looks like the present one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.compare.comparison import Run
from orchestrator.compare.history.campaigns import Read
from orchestrator.compare.history.findings import Course
from orchestrator.measure.metrics import metric

# The most series or experiments that a sentence names.
MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A metric of an experiment that has no value from the campaign `since` on. `is_unsteady`: the runs have no steady state."""

    label: str
    metric: str
    since: int
    is_unsteady: bool


def lost(
    label: str, ran: Sequence[tuple[int, Sequence[Run]]], metrics: Iterable[str], *, newest: int
) -> Iterator[Lost]:
    """Yield the metrics that an experiment had before and no longer has. `ran` has the campaigns in which it ended ok."""
    if not ran or ran[-1][0] != newest:
        return
    for name in metrics:
        having = [at for at, (_, runs) in enumerate(ran) if any(name in run.numbers for run in runs)]
        if having and having[-1] < len(ran) - 1:
            is_unsteady = metric(name).of_steady_state and all(run.never_steady for run in ran[-1][1])
            yield Lost(label=label, metric=name, since=ran[having[-1] + 1][0], is_unsteady=is_unsteady)


def sentences(every: Iterable[Lost], courses: Iterable[Course], read: Sequence[Read]) -> Iterator[str]:
    """Yield a sentence for each group of experiments that no longer have the same followed metrics."""
    followed = {(course.series.label, course.series.metric) for course in courses}
    of_experiments: dict[tuple[str, int, bool], list[str]] = defaultdict(list)
    for one in every:
        if (one.label, one.metric) in followed:
            of_experiments[one.label, one.since, one.is_unsteady].append(metric(one.metric).label)
    alike: dict[tuple[int, bool, str], list[str]] = defaultdict(list)
    for (label, since, is_unsteady), names in of_experiments.items():
        alike[since, is_unsteady, ", ".join(names)].append(label)
    for (since, is_unsteady, lacking), labels in alike.items():
        why = "because runs have no steady state" if is_unsteady else "although runs ended ok"
        yield f"{lacking}: no value since {read[since].side.name} in {named(labels)}, {why}"


def named(names: Sequence[str]) -> str:
    """Return the first names as text, and how many more there are."""
    more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([*names[:MOST_NAMED], *more])
