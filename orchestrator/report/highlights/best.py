"""The best experiment of each model that ended ok: the fastest one, and the cheapest one if a price is known.

`answers` compares experiments on the same number of GPUs. Here the number of GPUs may differ: more GPUs are usually faster, and
fewer are usually cheaper. A speed in doubt does not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from statistics import fmean

from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure import intervals
from orchestrator.measure.metrics import metric, show
from orchestrator.report.highlights.answers import SPEEDS
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import NO_MODEL
from orchestrator.report.highlights.wording import direction, factor
from orchestrator.results.table.baseline import ok_runs
from orchestrator.results.table.column_choice import column
from orchestrator.results.table.sources.costs import OF_TOKENS as COST

MOST_MODELS = 8
_ALIKE = ("results", "scenario", "model_name_or_path", "device", "data", "trainer", "python")
_DID_NOT_FIT = ("oom_cuda", "oom_host", "does_not_fit", "may_not_fit")

_Runs = Mapping[int, Sequence[float]]


def best(known: Known) -> Iterator[Highlight]:
    """Yield a sentence for each model with several experiments, if one of them has a speed without doubt."""
    found = [*_all(known)]
    yield from found[:MOST_MODELS]
    if rest := len(found) - MOST_MODELS > 0 and found[MOST_MODELS:]:
        ids = tuple(name for one in rest for name in one.experiments)
        text = f"{counted(len(rest), 'more model')} {'has' if len(rest) == 1 else 'have'} several experiments"
        yield Highlight(kind=HighlightKind.BEST, text=text, experiments=ids)


def _all(known: Known) -> Iterator[Highlight]:
    frame, measured = known.table.experiments, ok_runs(known.table, (*SPEEDS, COST))
    groups: dict[tuple[object, ...], list[int]] = {}
    for row, key in enumerate(zip(*(column(frame, name) for name in _ALIKE), strict=True)):
        groups.setdefault(key, []).append(row)
    models = [known.names.model(rows[0]) for rows in groups.values()]
    kinds = column(frame, "failure_kind")
    for rows in groups.values():
        trusted = [row for row in rows if measured[row] and not known.in_doubt(row)]
        speed = next((name for name in SPEEDS if any(name in measured[row] for row in trusted)), None)
        if speed is None or len(rows) == 1:
            continue
        speeds = {row: measured[row][speed] for row in trusted if speed in measured[row]}
        costs = {row: measured[row][COST] for row in speeds if COST in measured[row]}
        chosen = _chosen(known, speed, speeds, costs if len({known.currency(row) for row in costs}) == 1 else {})
        if chosen is None:
            continue
        text, named = chosen
        unfit = sum(kinds[row] in _DID_NOT_FIT for row in rows)
        doubted = sum(bool(measured[row]) for row in rows) - len(trusted)
        rest = [f"{unfit} did not fit"] * bool(unfit) + [f"{doubted} in doubt left out"] * bool(doubted)
        label = _label(known, rows[0], is_unique=models.count(known.names.model(rows[0])) == 1)
        yield known.sentence(HighlightKind.BEST, "; ".join([f"{label}: {text}", *rest]), named)


def _label(known: Known, row: int, *, is_unique: bool) -> str:
    model, scenario = known.names.model(row), one_line(column(known.table.experiments, "scenario")[row])
    if model == NO_MODEL:
        return scenario
    return model if is_unique else f"{model} ({scenario})"


def _chosen(known: Known, speed: str, speeds: _Runs, costs: _Runs) -> tuple[str, list[int]] | None:
    """Return the words for the fastest and the cheapest row, and these rows. Return None if the fastest are not comparable."""
    fastest = sorted(speeds, key=lambda row: -fmean(map(log, speeds[row])))
    cheapest = sorted(costs, key=lambda row: fmean(map(log, costs[row])))
    if known.in_doubt(*fastest[:2]) or known.in_doubt(*cheapest[:2]):
        return None
    value, unit = intervals.mean_of_logs(speeds[fastest[0]]).mean, (metric(speed).unit or "").partition(",")[0]
    shown = f"{show(speed, value)} {unit}".strip() + (" in one run" if len(speeds[fastest[0]]) == 1 else "")
    name = _names(known, speeds, fastest)
    if not cheapest:
        return f"the fastest experiment that ended ok is {name}, {shown}", fastest[:1]
    price = f"{_cost(known, cheapest[0], costs)} at {known.prices[cheapest[0]]}"
    if cheapest[0] == fastest[0]:
        return f"the fastest and cheapest experiment that ended ok is {name}, {shown}, {price}", fastest[:1]
    cheap = _names(known, costs, cheapest)
    return f"the fastest experiment that ended ok is {name}, {shown}; the cheapest is {cheap}, {price}", [
        fastest[0],
        cheapest[0],
    ]


def _names(known: Known, values: _Runs, ordered: Sequence[int]) -> str:
    """Return the name of the first row. If the next row is not clearly different, return both names."""
    first, *others = ordered
    if not others:
        return _name(known, first, values)
    ratio = intervals.ratio(values[others[0]], values[first])
    if direction(ratio) != 0:
        return _name(known, first, values)
    both = f"{_name(known, first, values)} or {_name(known, others[0], values)}"
    return f"{both} (no clear difference, {factor(ratio)})"


def _name(known: Known, row: int, rows: _Runs) -> str:
    name, processes = known.names.configuration(row), {known.names.processes(other) for other in rows}
    return name if len(processes) == 1 else f"{name} on {known.names.processes(row)}"


def _cost(known: Known, row: int, costs: _Runs) -> str:
    """Return the cost of the row in words, with its interval."""
    summary = intervals.mean_of_logs(costs[row])
    ends = summary.interval and f" ({show(COST, summary.interval.low)} to {show(COST, summary.interval.high)})"
    return f"{known.money(row, summary.mean)} per billion tokens{ends or ''}"
