"""The best experiment of each model that ended ok: the fastest one, and the cheapest one if a price is known.

`answers` compares experiments on the same number of GPUs. Here the number of GPUs may differ, unless the speed is one per GPU: more
GPUs are usually faster, and fewer are usually cheaper. A speed in doubt does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure import intervals
from orchestrator.measure.metrics import metric, show
from orchestrator.report.highlights.answers import SPEEDS, Place, places_in
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known, known_of
from orchestrator.report.highlights.labels import NO_MODEL
from orchestrator.report.highlights.wording import direction, factor
from orchestrator.results.table.baseline import ok_runs
from orchestrator.results.table.column_choice import column
from orchestrator.results.table.sources.costs import OF_TOKENS as COST

if TYPE_CHECKING:
    from orchestrator.measure.intervals import Ratio
    from orchestrator.results.table.load import ResultsTable

MOST_MODELS = 8
_ALIKE = ("results", "scenario", "model_name_or_path", "device", "data", "trainer", "python")
_DID_NOT_FIT = ("oom_cuda", "oom_host", "does_not_fit", "may_not_fit")

_Runs = Mapping[int, Sequence[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cheapest:
    """The cheapest experiment of a model: a sentence without its full stop, the ids of all experiments of the model, and its id.

    `best` has two ids if these two are not clearly different.
    """

    text: str
    ids: frozenset[str]
    best: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Group:
    """The rows of a model. `speeds` and `costs` have the values of the runs of each row whose speed is not in doubt.

    `costs` is empty if they are in several currencies. `doubted` is the number of rows in doubt. The label has the columns `told`.
    """

    label: str
    rows: Sequence[int]
    speed: str
    speeds: _Runs
    costs: _Runs
    doubted: int
    told: Sequence[str]


def best(known: Known) -> Iterator[Highlight]:
    """Yield a sentence for each model with several experiments, if one of them has a speed without doubt."""
    found = [*_all(known)]
    yield from found[:MOST_MODELS]
    if rest := len(found) - MOST_MODELS > 0 and found[MOST_MODELS:]:
        ids = tuple(name for one in rest for name in one.experiments)
        text = f"{counted(len(rest), 'more model')} {'has' if len(rest) == 1 else 'have'} several experiments"
        yield Highlight(kind=HighlightKind.BEST, text=text, experiments=ids)


def cheapest(table: ResultsTable) -> Iterator[Cheapest]:
    """Yield the cheapest experiment of each model with several experiments that have a cost."""
    known = known_of(table)
    for group in _groups(known):
        ordered = _in_order(group.costs)
        if len(ordered) > 1 and not known.in_doubt(*ordered[:2]):
            best = ordered[: 2 if _no_difference(group.costs, ordered) else 1]
            yield Cheapest(
                text=f"{group.label}: the cheapest is {_cheapest(known, group, ordered)}",
                ids=frozenset(known.ids[row] for row in group.rows),
                best=frozenset(known.ids[row] for row in best),
            )


def _all(known: Known) -> Iterator[Highlight]:
    kinds = column(known.table.experiments, "failure_kind")
    for group in _groups(known):
        chosen = _chosen(known, group)
        if chosen is None:
            continue
        text, named = chosen
        unfit = sum(kinds[row] in _DID_NOT_FIT for row in group.rows)
        rest = [f"{unfit} did not fit"] * bool(unfit) + [f"{group.doubted} in doubt left out"] * bool(group.doubted)
        kind = HighlightKind.NOTE if _is_without_rival(group) else HighlightKind.BEST
        yield known.sentence(kind, "; ".join([f"{group.label}: {text}", *rest]), named)


def _groups(known: Known) -> Iterator[_Group]:
    frame, measured = known.table.experiments, ok_runs(known.table, (*SPEEDS, COST))
    groups: dict[tuple[object, ...], list[int]] = {}
    for row, key in enumerate(zip(*(column(frame, name) for name in _ALIKE), strict=True)):
        groups.setdefault(key, []).append(row)
    counted_runs = [{} if known.in_doubt(row) else values for row, values in enumerate(measured)]
    places = places_in(known.table, groups.values(), counted_runs)
    models = [known.names.model(place.rows[0]) for place in places]
    for place in places:
        rows, speed = place.rows, place.speed
        if not speed or len(rows) == 1:
            continue
        speeds = {row: counted_runs[row][speed] for row in rows if speed in counted_runs[row]}
        costs = {row: measured[row][COST] for row in speeds if COST in measured[row]}
        yield _Group(
            label=_label(known, place, is_unique=models.count(known.names.model(rows[0])) == 1),
            rows=rows,
            speed=speed,
            speeds=speeds,
            costs=costs if len({known.currency(row) for row in costs}) == 1 else {},
            doubted=sum(bool(measured[row]) and not counted_runs[row] for row in rows),
            told=place.told,
        )


def _label(known: Known, place: Place, *, is_unique: bool) -> str:
    row, names = place.rows[0], known.names
    model, scenario = names.model(row), one_line(column(known.table.experiments, "scenario")[row])
    own = [scenario] if model != NO_MODEL else []
    told = [*own, *names.values(row, place.told)]
    if (gpus := names.gpus(row)) and "num_gpus" not in place.told:
        told.append(gpus)
    name = scenario if model == NO_MODEL else model
    return name if is_unique or not told else f"{name} ({', '.join(told)})"


def _chosen(known: Known, group: _Group) -> tuple[str, list[int]] | None:
    """Return the words for the fastest and the cheapest row, and these rows. Return None if the fastest are not comparable."""
    speeds, costs = group.speeds, group.costs
    fastest, cheapest = _in_order(speeds, sign=-1), _in_order(costs)
    if known.in_doubt(*fastest[:2]) or known.in_doubt(*cheapest[:2]):
        return None
    value = intervals.mean_of_logs(speeds[fastest[0]]).mean
    unit = (metric(group.speed).unit or "").partition(",")[0]
    shown = f"{show(group.speed, value)} {unit}".strip() + _in_runs(known, fastest[0], len(speeds[fastest[0]]))
    name = _names(known, group, speeds, fastest)
    is_same = bool(cheapest) and cheapest[0] == fastest[0]
    price = f", {_cost(known, cheapest[0], costs)}" if is_same else ""
    if _is_without_rival(group):
        return f"only {name} has a speed that counts, {shown}{price}", fastest
    if len(fastest) == 1:
        is_only = sum(bool(known.numbers("runs_ok", row)) for row in group.rows) == 1
        return (
            f"the only experiment {'that ended ok' if is_only else f'with {metric(group.speed).label}'} is {name}, {shown}{price}",
            fastest,
        )
    if is_same:
        return f"the fastest and cheapest experiment that ended ok is {name}, {shown}{price}", fastest[:1]
    text = f"the fastest experiment that ended ok is {name}, {shown}"
    if not cheapest:
        return text, fastest[:1]
    return f"{text}; the cheapest is {_cheapest(known, group, cheapest)}", [fastest[0], cheapest[0]]


def _in_runs(known: Known, row: int, measured: int) -> str:
    """Return of how many runs a speed is, in words, if it is of one run or not of all runs that ended."""
    every = known.repeats(row)
    if every > measured:
        return f" in {measured} of {every} runs"
    return " in one run" if measured == 1 else ""


def _is_without_rival(group: _Group) -> bool:
    """Return whether only one experiment has a speed that counts, because the speeds of others are in doubt. It is not the best."""
    return len(group.speeds) == 1 and group.doubted > 0


def _in_order(values: _Runs, *, sign: int = 1) -> list[int]:
    """Return the rows in the order of their geometric means, the smallest first; with the sign -1, the largest first."""
    return sorted(values, key=lambda row: sign * fmean(map(log, values[row])))


def _cheapest(known: Known, group: _Group, ordered: Sequence[int]) -> str:
    return f"{_names(known, group, group.costs, ordered)}, {_cost(known, ordered[0], group.costs)}"


def _names(known: Known, group: _Group, values: _Runs, ordered: Sequence[int]) -> str:
    """Return the name of the first row. If the next row is not clearly different, return both names."""
    ratio = _no_difference(values, ordered)
    if ratio is None:
        return _name(known, ordered[0], group)
    both = f"{_name(known, ordered[0], group)} or {_name(known, ordered[1], group)}"
    return f"{both} (no clear difference, {factor(ratio)})"


def _no_difference(values: _Runs, ordered: Sequence[int]) -> Ratio | None:
    """Return the ratio of the first row to the next, if they are not clearly different."""
    ratio = intervals.ratio(values[ordered[1]], values[ordered[0]]) if len(ordered) > 1 else None
    return ratio if ratio is not None and direction(ratio) == 0 else None


def _name(known: Known, row: int, group: _Group) -> str:
    name, processes = (
        known.names.configuration(row, work=group.told),
        {known.names.processes(other) for other in group.rows},
    )
    return name if len(processes) == 1 else f"{name} on {known.names.processes(row)}"


def _cost(known: Known, row: int, costs: _Runs) -> str:
    """Return the cost of the row in words, with its interval, whose ends have as many decimals as the cost, and its price."""
    summary = intervals.mean_of_logs(costs[row])
    cost = known.money(row, summary.mean)
    digits = len(cost.partition(" ")[0].partition(".")[2])
    ends = summary.interval and f" ({summary.interval.low:,.{digits}f} to {summary.interval.high:,.{digits}f})"
    return f"{cost} per billion tokens{ends or ''} at {known.prices[row]}"
