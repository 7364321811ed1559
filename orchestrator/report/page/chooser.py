"""The data of "What should I use?": for each model and number of GPUs, the experiments with speed, memory, energy and cost. Pure.

The page's script finds the fastest one that fits into a memory. Experiments are in one place if they can be compared, as in
`highlights.answers`. An experiment whose speed is in doubt is left out, and only counted. For each memory, the fastest one has
words about the next one if the difference between these two is not clear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.measure.intervals import mean_of_logs
from orchestrator.measure.metrics import MIB, Show, metric, show
from orchestrator.report.highlights.answers import SPEEDS, comparable, lead_of
from orchestrator.report.highlights.highlight import Known, known_of
from orchestrator.report.highlights.wording import direction, factor, runs, times
from orchestrator.report.page.charts.curves.tradeoff import MEMORIES
from orchestrator.report.page.texts import one_line, rounded
from orchestrator.results.table.baseline import ENERGY, TRAINERS_SPEED, ok_runs
from orchestrator.results.table.column_choice import column

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

MOST_PLACES, MOST_CANDIDATES = 60, 200
_TOKENS = ("real_tokens_per_s", "tokens_per_s", TRAINERS_SPEED)
_GIB = 2**30


def places(table: ResultsTable, *, hardware: str) -> dict[str, Any]:
    """Return the places in the order of the table. `hardware` describes the machine on a saved card."""
    known, measured = known_of(table), ok_runs(table, SPEEDS)
    found = []
    for place in comparable(table, measured)[:MOST_PLACES]:
        rows, speed = place.rows, place.speed
        trusted = [row for row in rows if speed in measured[row] and not known.in_doubt(row)]
        if trusted:
            values = {row: measured[row][speed] for row in trusted[:MOST_CANDIDATES]}
            # The page sorts by rounded speeds, and keeps this order of equal ones.
            values = dict(sorted(values.items(), key=lambda one: -mean_of_logs(one[1]).mean))
            candidates, rivals = [_candidate(known, row, speed, values[row]) for row in values], _rivals(known, values)
            found.append(
                {
                    "place": one_line(known.names.where(rows[0], told=place.told)),
                    "scenario": one_line(column(table.experiments, "scenario")[rows[0]] or ""),
                    "gpus": column(table.experiments, "num_gpus")[rows[0]] or 1,
                    "unit": (metric(speed).unit or "").partition(",")[0],
                    "priced": speed in _TOKENS and not known.names.is_cpu(rows[0]),
                    "inDoubt": sum(known.in_doubt(row) for row in rows),
                    "without": sum(speed not in measured[row] and not known.in_doubt(row) for row in rows),
                    "candidates": [one | {"rivals": rivals.get(one["id"], {})} for one in candidates],
                }
            )
    return {"places": found, "hardware": one_line(hardware)}


def _candidate(known: Known, row: int, speed: str, values: list[float]) -> dict[str, Any]:
    value, energy, cost = mean_of_logs(values).mean, known.numbers(ENERGY, row), known.cost(row)
    return {
        "id": known.ids[row],
        "name": one_line(known.names.configuration(row)),
        "speed": rounded(value),
        "shown": show(speed, value),
        "runs": len(values),
        "gib": rounded(_gib(known, row)),
        "energy": None if energy is None else show(ENERGY, energy),
        "cost": cost and f"{cost} per billion tokens at {one_line(known.prices[row])}",
    }


def _rivals(known: Known, values: Mapping[int, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Return id → id of the next one → words, for each pair that may be the fastest and the next one that fit into a memory."""
    in_order = sorted(values, key=lambda row: -mean_of_logs(values[row]).mean)
    sizes = {row: _gib(known, row) for row in in_order}
    found: dict[str, dict[str, Any]] = {}
    for limit in (None, *{size for size in sizes.values() if size is not None}):
        fits = [row for row in in_order if limit is None or ((size := sizes[row]) is not None and size <= limit)]
        if len(fits) > 1:
            found.setdefault(known.ids[fits[0]], {})[known.ids[fits[1]]] = _against(known, values, fits[0], fits[1])
    return found


def _against(known: Known, values: Mapping[int, Sequence[float]], best: int, second: int) -> dict[str, Any]:
    """Return words about a difference that is not clear or of single runs, and whether the two are not clearly different."""
    lead, name = lead_of(known, values, best, second), one_line(known.names.configuration(second))
    if known.in_doubt(best, second):
        return {"same": True, "words": "no answer: they had different numbers of neighbours"}
    if direction(lead) == 0:
        return {"same": True, "words": f"no clear difference, {factor(lead)}"}
    return {"same": False, "words": f"{times(lead)} the speed of {name}, {runs(lead)}" if lead.interval is None else ""}


def _gib(known: Known, row: int) -> float | None:
    """Return the peak memory of the fullest GPU: all that is in use on the device if it is known, else what torch took."""
    for name in MEMORIES:
        value = known.numbers(name, row)
        if value is not None:
            return value * (MIB if metric(name).show is Show.MIB else 1) / _GIB
    return None
