"""The runs of a metric in each campaign: which of them count, the campaign's value, and the noise between runs. Pure.

In many campaigns the first run is slow, because caches are cold. If it were counted as noise, steps would be hidden. So the mean
of the runs with the same place in time does not count as noise. If the first run is the slowest in most campaigns, it is left out.
The first run need not be of the first repeat: a repeat that was cancelled or failed is tried again after the others.

All campaigns have the same noise, except those whose runs differ far more: one disturbed night says nothing about the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import TypeVar

from orchestrator.compare.comparison import Entry
from orchestrator.compare.rules import Rule
from orchestrator.compare.sides.cold_runs import in_order
from orchestrator.measure import intervals
from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import Direction, Judged
from orchestrator.report.tables.columns import DOUBTFUL

Key = TypeVar("Key", bound=Hashable)

# The values of one campaign. A key is the place of a run among all runs of the campaign, in the order of time.
Runs = Mapping[int, float]

# The first run is left out if it would be the slowest so often by chance with a probability below this level.
COLD_LEVEL = 0.005

# The smallest noise that is assumed for a campaign's value, as a share. Runs that agree to a thousandth may all be wrong by a
# thousandth.
RESOLUTION = 0.001

# Equal noise shows noisy campaigns in a series with about this probability. At a higher level, the noise of the other campaigns
# would too often look smaller than it is.
NOISY_LEVEL = 0.001

# If nights or experiments are missing, an additive fit needs several rounds. It stops at this change, or after this many rounds.
_SETTLED, _ROUNDS = 1e-10, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """The runs that count, one dict for each campaign. `without_first` means that the first runs are left out."""

    campaigns: tuple[Runs, ...]
    without_first: bool


def kept(entries: Sequence[Entry], rule: Rule) -> Kept:
    """Return the runs of a metric that count in each campaign. A campaign without such a run has an empty dict."""
    campaigns = [
        {
            place: run.numbers[rule.metric]
            for place, run in enumerate(in_order(entry.runs))
            if rule.metric in run.numbers
        }
        for entry in entries
    ]
    first = min((place for runs in campaigns for place in runs), default=0)
    if not first_is_cold(campaigns, first=first, rule=rule):
        return Kept(campaigns=tuple(campaigns), without_first=False)
    rest = ({place: value for place, value in runs.items() if place != first} for runs in campaigns)
    return Kept(campaigns=tuple(rest), without_first=True)


def doubts(entry: Entry, counted: Runs, metric: str, *, is_noisy: bool) -> tuple[str, ...]:
    """Return how runs that count were disturbed, that a run has no steady state, and that the campaign is noisy.

    As in a report, only speeds are in doubt.
    """
    if metric not in DOUBTFUL:
        return ()
    how = [run.doubt for place, run in enumerate(in_order(entry.runs)) if place in counted and run.doubt]
    unsteady = ["without a steady state"] if any(run.never_steady for run in entry.runs) else []
    apart = ["that differ far more than in other campaigns"] if is_noisy else []
    return tuple(f"runs {one}" for one in dict.fromkeys((*how, *unsteady, *apart)))


def first_is_cold(campaigns: Sequence[Runs], *, first: int, rule: Rule) -> bool:
    """Return whether the first run is the slowest in most campaigns, and more often than by chance (binomial test)."""
    if rule.judged is not Judged.TEST:
        return False
    slowest = min if rule.direction is Direction.HIGHER else max
    measured = [runs for runs in campaigns if runs]
    repeated = [runs for runs in measured if first in runs and len(runs) > 1]
    times = sum(
        all(slowest(value, runs[first]) != value for at, value in runs.items() if at != first) for runs in repeated
    )
    return 2 * times > len(measured) and _at_least(times, [1 / len(runs) for runs in repeated]) < COLD_LEVEL


def _at_least(times: int, chances: Sequence[float]) -> float:
    """Return the probability that at least so many of the independent events happen."""
    happened = [1.0]
    for chance in chances:
        happened = [
            no * (1 - chance) + yes * chance for no, yes in zip([*happened, 0.0], [0.0, *happened], strict=True)
        ]
    return math.fsum(happened[times:])


def mean(values: Sequence[float]) -> tuple[float, Interval | None]:
    """Return the mean and its interval.

    Equal values are returned exactly, because a logarithm and its inverse may lose the last digit.
    """
    if len(set(values)) == 1:
        return values[0], Interval(low=values[0], high=values[0]) if len(values) > 1 else None
    if min(values) <= 0:
        return fmean(values), None
    summary = intervals.mean_of_logs(values)
    return summary.mean, summary.interval


def errors(campaigns: Sequence[Runs], noisy: Mapping[int, float]) -> list[float]:
    """Return a lower bound of the standard error of each campaign's logarithm. A campaign without runs has none.

    `noisy` has the variances of the noisy campaigns. The others share one, because each has too few runs to know its own.
    """
    usual = variance_of_a_run([runs for number, runs in enumerate(campaigns) if number not in noisy])
    return [
        math.sqrt(noisy.get(number, usual) / len(runs) + RESOLUTION**2) for number, runs in enumerate(campaigns) if runs
    ]


def noisy(campaigns: Sequence[Runs]) -> dict[int, float]:
    """Return the campaigns whose runs differ far more than those of the others (F test), with the variance between their runs.

    They are less than half of the campaigns. The most campaigns are tried first, because two noisy campaigns hide each other.
    """
    logs = {
        number: [math.log(value) for value in runs.values()]
        for number, runs in enumerate(campaigns)
        if len(runs) > 1 and min(runs.values()) > 0
    }
    variances = {number: variance(values) for number, values in logs.items()}
    ordered = sorted(variances, key=lambda number: variances[number])
    for count in reversed(range(1, (len(ordered) + 1) // 2)):
        quiet, least = ordered[:-count], ordered[-count]
        degrees = sum(len(logs[number]) - 1 for number in quiet)
        usual = math.fsum((len(logs[number]) - 1) * variances[number] for number in quiet) / degrees
        ratio = variances[least] / max(usual, RESOLUTION**2)
        if (len(quiet) + 1) * _f_above(ratio, len(logs[least]) - 1, degrees) < NOISY_LEVEL:
            return {number: variances[number] for number in ordered[-count:]}
    return {}


def _f_above(ratio: float, *degrees: int) -> float:
    """Return the probability that two variances with these degrees of freedom have at least this ratio by chance."""
    from scipy.special import fdtrc  # not scipy.stats, which takes ten times as long to import

    return float(fdtrc(*degrees, ratio))


def variance_of_a_run(campaigns: Sequence[Runs]) -> float:
    """Return the variance of the metric's logarithm between runs of one campaign, without the mean of each place.

    It is pooled over all campaigns, because one campaign has too few runs.
    """
    logs = {
        (campaign, place): math.log(value)
        for campaign, runs in enumerate(campaigns)
        if len(runs) > 1 and min(runs.values()) > 0
        for place, value in runs.items()
    }
    by_campaign, by_place = additive(logs)
    degrees = len(logs) - len(by_campaign) - len(by_place) + 1
    squares = math.fsum((log - by_campaign[row] - by_place[column]) ** 2 for (row, column), log in logs.items())
    return squares / degrees if degrees > 0 else 0.0


def additive(cells: Mapping[tuple[int, Key], float]) -> tuple[dict[int, float], dict[Key, float]]:
    """Return the effects of rows and columns whose sums are nearest to the cells, by least squares. Cells may be missing.

    The mean of the columns' effects over all cells is about 0.
    """
    rows: dict[int, dict[Key, float]] = defaultdict(dict)
    columns: dict[Key, dict[int, float]] = defaultdict(dict)
    for (row, column), value in cells.items():
        rows[row][column] = columns[column][row] = value
    by_row, by_column = dict.fromkeys(rows, 0.0), dict.fromkeys(columns, 0.0)
    for _ in range(_ROUNDS):
        before = by_column
        by_row = {row: fmean(value - by_column[at] for at, value in line.items()) for row, line in rows.items()}
        by_column = {at: fmean(value - by_row[row] for row, value in line.items()) for at, line in columns.items()}
        if all(abs(by_column[at] - before[at]) < _SETTLED for at in by_column):
            break
    return by_row, by_column
