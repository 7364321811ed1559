"""The answer of a campaign for each model and number of GPUs, or each call: which experiment is fastest, and how sure that is.

Experiments are compared if they have the same scenario, model, device, data, number of GPUs and GPU model, and if their arguments
make the same work of the speed: samples of longer rows are other work. The fastest experiment is the one with the highest geometric
mean of its runs' speeds. The speed of a call is the reciprocal of its time. If a speed is in doubt, it does not count, and the
answer names it. An operator with a wrong result is the last one, whatever its speed. What this leaves out: the cost of a GPU, and
arguments that change what is learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from orchestrator.measure import intervals
from orchestrator.measure.metrics import DASH, metric, show
from orchestrator.report.highlights.highlight import Known, known_of
from orchestrator.report.highlights.labels import listed
from orchestrator.report.highlights.wording import change, direction, factor, percent, runs, times
from orchestrator.results.table.axes import arguments_of
from orchestrator.results.table.baseline import (
    CALL_TIME,
    MEMORIES,
    ROUND_TIME,
    TRAINERS_SPEED,
    Pair,
    ok_runs,
    pairs_of,
    shown_ranks,
)
from orchestrator.results.table.baseline.other_work import by_work
from orchestrator.results.table.column_choice import by_gpu_model, column, gpu_models
from orchestrator.results.table.doubts import ERROR, WRONG_RESULT, DoubtKind
from orchestrator.trainers.external.operators import WORK

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

# The first speed that an experiment of the place has. The Trainer's own speeds, which include warm-up, are the last.
SPEEDS = ("real_tokens_per_s", "tokens_per_s", "samples_per_s", TRAINERS_SPEED, "train_samples_per_second")
# The times of calls, which count only without a speed.
_TIMES = (CALL_TIME, ROUND_TIME)
MOST_ROWS = 6
SAME_MEMORY = 0.005
_ALIKE = (
    *("results", "scenario", "model_name_or_path", "device", "data", "trainer", "python", "num_gpus"),
    "num_nodes",
)
# The arguments that make the work of a call of an operator, or of a benchmark.
_WORK = (*WORK, "fullname", "group")

_GPUS = "num_gpus"

Runs = Sequence[Mapping[str, list[float]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Rows whose speeds can be compared, and the first speed that any of them has. It is an empty text if no row has one.

    `told` are the columns that the place's name needs: their values make other work than in another place, such as longer rows.
    """

    rows: Sequence[int]
    speed: str
    told: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """An experiment in words: its speed, the ratio to its reference, its memory, its cost, how many of its runs have this speed.

    `doubt` says why its speed does not count; it is empty if the speed counts.
    """

    name: str
    speed: str
    ratio: str
    memory: str
    cost: str
    runs: str
    doubt: str
    is_best: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The answer for one model and number of GPUs: a sentence without its full stop, and the candidates, the fastest first.

    `ids` has the ids of all experiments that were compared. `best` has the id of the one that was fastest, or of two without a
    clear difference, or none.
    `unit` and `memory` are the headings of their speeds and their memory. `has_costs`: a candidate has a cost. `more` is the number
    of candidates that are left out.
    """

    place: str
    text: str
    unit: str
    memory: str
    candidates: tuple[Candidate, ...]
    ids: frozenset[str]
    best: frozenset[str]
    has_costs: bool = False
    more: int = 0


def answers(table: ResultsTable) -> tuple[Answer, ...]:
    """Return the answers for all places that have several experiments with a speed or a doubt."""
    known, pairs = known_of(table), pairs_of(table)
    measured = _as_speeds(ok_runs(table, (*SPEEDS, *_TIMES)))
    return tuple(_answer(known, pairs, measured, place) for place in comparable(table, measured) if len(place.rows) > 1)


def _as_speeds(measured: Runs) -> list[dict[str, list[float]]]:
    """Return the speeds of each row's runs; for a row without any, the reciprocals of the times of its calls."""
    return [
        {name: values for name, values in of_row.items() if name in SPEEDS}
        or {name: [1 / value for value in values] for name, values in of_row.items()}
        for of_row in measured
    ]


def comparable(table: ResultsTable, measured: Runs) -> list[Place]:
    """Return the rows that have a speed in `measured`, in places of rows that can be compared. Keep the table's order."""
    groups: dict[tuple[object, ...], list[int]] = {}
    alike, works = (zip(*(column(table.experiments, name) for name in names), strict=True) for names in (_ALIKE, _WORK))
    for row, (key, work) in enumerate(zip(alike, works, strict=True)):
        if measured[row]:
            groups.setdefault(key if _has_speed(measured[row]) else (*key, *work), []).append(row)
    return places_in(table, groups.values(), measured)


def places_in(table: ResultsTable, groups: Iterable[Sequence[int]], measured: Runs) -> list[Place]:
    """Return the rows of each group in places: those with the same GPU model, and with the same work of the first speed."""
    gpus, numbers = gpu_models(table.experiments), column(table.experiments, _GPUS)
    arguments = [{_GPUS: number, **dict(given)} for number, given in zip(numbers, arguments_of(table), strict=True)]

    def apart(rows: Sequence[int], told: tuple[str, ...] = ()) -> Iterator[Place]:
        speed = next((name for name in (*SPEEDS, *_TIMES) if any(name in measured[row] for row in rows)), "")
        differing, alike = by_work(speed, rows, arguments)
        if len(alike) == 1:
            yield Place(rows=rows, speed=speed, told=told)
            return
        for some in alike:  # the first speed of some rows may be another one
            yield from apart(some, tuple(dict.fromkeys((*told, *differing))))

    return [place for rows in groups for alike in by_gpu_model(rows, gpus) for place in apart(alike)]


def _has_speed(of_row: Mapping[str, list[float]]) -> bool:
    return any(name in SPEEDS for name in of_row)


def _answer(known: Known, pairs: Sequence[Pair], measured: Runs, place: Place) -> Answer:
    speed, work = place.speed, () if place.speed in SPEEDS else _WORK
    values = {row: measured[row][speed] for row in place.rows if speed in measured[row]}
    ordered = sorted(values, key=lambda row: (_is_wrong(known, row), -fmean(map(log, values[row]))))
    trusted = [row for row in ordered if not known.in_doubt(row)]
    inside = [pair for pair in pairs if pair.new in values and pair.base in values]
    ranks = shown_ranks(inside)  # of several axes, the first one is shown, as in the table
    against = {pair.new: pair for pair in inside if pair.match.rank == ranks[pair.new]}
    memory = next(
        (name for name in MEMORIES if any(known.numbers(name, row) is not None for row in values)), MEMORIES[0]
    )
    names = {row: known.names.configuration(row, work=(*work, *place.told)) for row in values}
    text, best, is_clear = _text(known, against, values, trusted, names)
    text += _faster_in_doubt(known, ordered, trusted, names) if len(trusted) > 1 else ""
    shown, ids = ordered[:MOST_ROWS], [str(name) for name in column(known.table.experiments, "id")]
    return Answer(
        place=known.names.where(place.rows[0], work=work, told=place.told),
        text=text,
        unit=metric(speed).label,
        memory=metric(memory).label,
        candidates=tuple(
            _candidate(
                known, against, values, row, (speed, memory), name=names[row], is_best=is_clear and [row] == best
            )
            for row in shown
        ),
        ids=frozenset(ids[row] for row in ordered),
        best=frozenset(ids[row] for row in best),
        has_costs=any(known.cost(row) for row in shown),
        more=len(ordered) - len(shown),
    )


def _text(
    known: Known,
    against: Mapping[int, Pair],
    values: Mapping[int, Sequence[float]],
    trusted: Sequence[int],
    names: Mapping[int, str],
) -> tuple[str, list[int], bool]:
    """Return three values: the sentence; the row that was fastest, or two without a clear difference; whether it was so clearly."""
    if not trusted:
        return "no answer: every speed is in doubt", [], False
    best, *others = trusted
    name = names[best]
    if not others:
        left_out = [row for row in values if row != best]
        if not left_out:
            return f"no answer: only {name} has this speed", [], False
        why = dict.fromkeys(doubt for row in left_out for doubt in _doubts(known, row))
        doubted = listed([names[row] for row in left_out], most=2)
        return (
            f"no answer: {doubted} {'is' if len(left_out) == 1 else 'are'} in doubt ({', '.join(why)}), and only {name} is left",
            [],
            False,
        )
    second = others[0]
    follower = names[second]
    lead, other = lead_of(known, values, best, second), lead_of(known, values, second, best)
    if known.in_doubt(best, second):
        return f"no answer: {name} and {follower} had different numbers of neighbours", [], False
    if direction(lead) == 0:
        return f"{name} or {follower}: no clear difference, {factor(lead)}", [best, second], False
    if lead.interval is None:
        return f"{name} was fastest, at {times(lead)} the speed of {follower}, {runs(lead)}", [best], False
    fastest = f"{name} is fastest" + (f", for {money} per billion tokens" if (money := known.cost(best)) else "")
    pair = against.get(best)
    if pair is None or pair.speed is None or known.in_doubt(pair.new, pair.base) or direction(pair.speed.ratio) != 1:
        behind = against.get(second)
        memory = _memory(behind) if behind is not None and behind.base == best else ""
        return f"{fastest}; {follower}, the next, is {change(other)}{memory}", [best], True
    gain = f"{change(pair.speed.ratio)} than {names[pair.base]}"
    following = f"; {follower}, the next, is {change(other)}" if pair.base != second else ""
    return f"{fastest}, {gain}{_memory(pair)}{following}", [best], True


def lead_of(known: Known, values: Mapping[int, Sequence[float]], new: int, base: int) -> intervals.Ratio:
    """Return the ratio of the speeds of two rows. With runs at the same time, its interval is wider by their cost."""
    cost = known.table.neighbour_cost if known.numbers("neighbours", new) else None
    return intervals.widened(intervals.ratio(values[base], values[new]), cost or 0.0)


def _faster_in_doubt(known: Known, ordered: Sequence[int], trusted: Sequence[int], names: Mapping[int, str]) -> str:
    """Return words about the rows whose speeds are higher than the fastest that counts, but in doubt."""
    faster = ordered[: ordered.index(trusted[0])]
    if not faster:
        return ""
    why = dict.fromkeys(doubt for row in faster for doubt in _doubts(known, row))
    were = "was" if len(faster) == 1 else "were"
    return f"; {listed([names[row] for row in faster], most=2)} {were} faster, but in doubt ({', '.join(why)})"


def _is_wrong(known: Known, row: int) -> bool:
    """Return whether an operator's result has so large an error that it is another result."""
    error = known.numbers(ERROR, row)
    return error is not None and error >= WRONG_RESULT


def _doubts(known: Known, row: int) -> list[str]:
    """Return the reasons why the speed of a row does not count. A wrong result is more than a less exact one."""
    kinds = [doubt.kind.value for doubt in known.doubts[row]]
    if not _is_wrong(known, row):
        return kinds
    wrong = f"wrong result, relative error {show(ERROR, known.numbers(ERROR, row))}"
    return [wrong, *(kind for kind in kinds if kind != DoubtKind.INEXACT.value)]


def _memory(pair: Pair) -> str:
    if pair.memory is None or abs(pair.memory.ratio - 1) < SAME_MEMORY:
        return ""
    return f", with {percent(abs(pair.memory.ratio - 1))} {'less' if pair.memory.ratio < 1 else 'more'} memory"


def _candidate(
    known: Known,
    against: Mapping[int, Pair],
    values: Mapping[int, Sequence[float]],
    row: int,
    metrics: tuple[str, str],
    *,
    name: str,
    is_best: bool,
) -> Candidate:
    """Return a row in words. `metrics` are the speed and the memory of the place."""
    speed, memory = metrics[0], known.numbers(metrics[1], row)
    pair, is_doubted = against.get(row), known.in_doubt(row)
    claimed = pair is not None and pair.speed is not None and not known.in_doubt(pair.new, pair.base)
    every = known.repeats(row)
    mean = intervals.mean_of_logs(values[row]).mean
    of_reference = "reference" if row in {other.base for other in against.values()} else "-"
    return Candidate(
        name=name,
        speed=show(speed, mean if speed in SPEEDS else 1 / mean),
        ratio=factor(pair.speed.ratio) if claimed and pair is not None and pair.speed is not None else of_reference,
        memory=show(metrics[1], memory),
        cost=known.cost(row) or DASH,
        runs=f"{len(values[row])}" + (f" of {every}" if every > len(values[row]) else ""),
        doubt=", ".join(_doubts(known, row)) if is_doubted else "",
        is_best=is_best,
    )
