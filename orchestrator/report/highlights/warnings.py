"""Sentences about numbers in doubt: one for each kind of doubt, and one for each wrong loss."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure.metrics import metric
from orchestrator.measure.rank_files import LONG_CORE_WAIT
from orchestrator.report.highlights.answers import SPEEDS, comparable
from orchestrator.report.highlights.highlight import MOST_OTHERS, Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import listed
from orchestrator.report.highlights.scaling import scalings
from orchestrator.report.highlights.wording import percent
from orchestrator.results.table.aggregate import NOT_COMPARED
from orchestrator.results.table.baseline import LESS_EXACT, STEADY_SPEEDS, Pair, ok_runs
from orchestrator.results.table.baseline.other_work import counts_padding
from orchestrator.results.table.column_choice import by_gpu_model, column, gpu_models, in_any_order
from orchestrator.results.table.doubts import SOFTWARE, DoubtKind, different, words_of
from orchestrator.results.table.rows import PREFIX, Value

_LOSSES = {DoubtKind.WRONG: "is faster but wrong", DoubtKind.OTHER_LOSS: "learns differently"}
_OTHERS = {
    DoubtKind.INEXACT: f"had a numerical error over {LESS_EXACT:.0f} times that of the baseline",
    DoubtKind.FEWER_STEPS: "needed clearly fewer steps to the target than the baseline, as another training would",
    DoubtKind.CONTAMINATED: "ran on GPUs that other processes used",
    DoubtKind.THROTTLED: "ran on GPUs with reduced clocks",
    DoubtKind.BUSY_HOST: "ran on a busy host",
    DoubtKind.RECOMPILED: "compiled again in the steady state",
    DoubtKind.PROFILED: "had a profiler in its steady state",
    DoubtKind.NOT_STEADY: "had a run without a steady state",
    DoubtKind.MIXED: "trained different models in its runs",
    DoubtKind.PACKAGES: "had different packages in its runs",
    DoubtKind.GPUS: "had runs on different GPUs",
}
_ADVICE = {
    DoubtKind.BUSY_HOST: f" (the limit is {LONG_CORE_WAIT:.0%}; measure on an idle host, into another --results folder)",
}

# The largest number of characters in the detail of a doubt. The longest reason of `measure.steady_state` fits.
LONGEST_DETAIL = 120


# Columns of what may differ between experiments that are compared. On a CPU, the host makes the speed, too.
_SOFTWARE = {"provenance_driver_driver": "driver", **SOFTWARE}
_HOSTS = {"provenance_host_name": "host", "provenance_host_cpu": "CPU"}
# Experiments that differ in these columns were meant to have other software.
_CHOSEN = ("environment", "python")
_PLACE = ("results", "scenario", "model_name_or_path")


def warnings(known: Known, against: Sequence[Pair]) -> Iterator[Highlight]:
    """Yield the warnings, the warnings about losses first."""
    rows = {
        kind: [row for row, doubts in enumerate(known.doubts) if any(doubt.kind is kind for doubt in doubts)]
        for kind in DoubtKind
    }
    for kind, words in _LOSSES.items():
        yield from (_other_loss(known, words, row) for row in rows[kind][:MOST_OTHERS])
        rest = rows[kind][MOST_OTHERS:]
        if rest:
            text = f"{counted(len(rest), 'more experiment')} marked {kind.value!r}"
            yield known.sentence(HighlightKind.WARNING, text, rest)
    told = column(known.table.experiments, "doubt")
    unchecked = [row for row, text in enumerate(told) if NOT_COMPARED in words_of(text)]
    if unchecked:
        yield _unchecked(known, unchecked)
    yield from (_doubted(known, kind, rows[kind]) for kind in _OTHERS if rows[kind])
    if rows[DoubtKind.PACKED]:
        yield _packed(known, rows[DoubtKind.PACKED])
    yield from _other_gpus(known)
    yield from _other_work(known)
    yield from _other_environment(known, against)
    yield from _short(known)


def _other_loss(known: Known, words: str, row: int) -> Highlight:
    difference = known.numbers("loss_difference", row) or 0.0
    side = "above" if difference > 0 else "below"
    text = (
        f"{known.names.whole(row)} {words}: its training loss is {percent(abs(difference))} {side} the baseline's after "
        "the same number of steps, so no speed is claimed"
    )
    return known.sentence(HighlightKind.WARNING, text, [row])


def _unchecked(known: Known, rows: Sequence[int]) -> Highlight:
    names = listed([known.names.whole(row) for row in rows])
    text = (
        f"{counted(len(rows), 'experiment')} had no baseline loss to compare with, so a wrong training would not be noticed: "
        f"{names}"
    )
    return known.sentence(HighlightKind.WARNING, text, rows)


def _packed(known: Known, rows: Sequence[int]) -> Highlight:
    cost = known.table.neighbour_cost
    measured = (
        "the cost of neighbours was not measured (--parallel auto measures it)"
        if cost is None
        else f"the intervals include the measured cost of neighbours, {percent(math.expm1(cost))}"
    )
    text = (
        f"{counted(len(rows), 'experiment')} ran at the same time as others on the same machine: speeds are compared only "
        f"between experiments with equally many neighbours, and {measured}"
    )
    return known.sentence(HighlightKind.WARNING, text, rows)


def _doubted(known: Known, kind: DoubtKind, rows: Sequence[int]) -> Highlight:
    doubts = (doubt for row in rows for doubt in known.doubts[row])
    every = [doubt.detail for doubt in doubts if doubt.kind is kind and doubt.detail]
    details, worst = different(every), "at worst, " if len({*every}) > len(different(every)) else ""
    shown = listed([one_line(detail, longest=LONGEST_DETAIL) for detail in details], most=2)
    why = f" ({worst}{shown})" if details else ""
    names = listed([known.names.whole(row) for row in rows])
    text = f"{counted(len(rows), 'experiment')} {_OTHERS[kind]}{why}, so no speed is claimed{_ADVICE.get(kind, '')}: {names}"
    return known.sentence(HighlightKind.WARNING, text, rows)


def _other_gpus(known: Known) -> Iterator[Highlight]:
    """Yield a sentence if the experiments of a scenario's model ran on several GPU models."""
    models, places = gpu_models(known.table.experiments), defaultdict[tuple[Value, ...], list[int]](list)
    for row, place in enumerate(zip(*(column(known.table.experiments, name) for name in _PLACE), strict=True)):
        if models[row] and known.numbers("runs_ok", row):
            places[place].append(row)
    rows = [row for some in places.values() if len(by_gpu_model(some, models)) > 1 for row in some]
    if rows:
        words = _values([known.names.gpus(row) for row in rows])
        text = (
            f"the experiments ran on several GPU models ({words}), and are compared only with those on the same model"
        )
        yield known.sentence(HighlightKind.WARNING, text, rows)


def _other_work(known: Known) -> Iterator[Highlight]:
    """Yield a sentence for each speed and the arguments over which it cannot be compared."""
    found = defaultdict[tuple[str, tuple[str, ...]], list[int]](list)
    for place in comparable(known.table, ok_runs(known.table, SPEEDS)):
        if place.told:
            found[place.speed, place.told] += place.rows
    for (speed, told), rows in found.items():
        label, names = metric(speed).label, " and ".join(one_line(name.removeprefix(PREFIX)) for name in told)
        why = f"{label} measures other work there"
        if counts_padding(speed):
            why = f"{label} counts padding, and its share is unknown; a program that knows it can report {STEADY_SPEEDS[0]}"
        text = f"experiments with different values of {names} are not compared: {why}"
        yield known.sentence(HighlightKind.WARNING, text, rows)


def _other_environment(known: Known, against: Sequence[Pair]) -> Iterator[Highlight]:
    """Yield a sentence if experiments that are compared ran with other software, or on the CPUs of other hosts."""
    compared = _compared(known, against)
    every, found = sorted({row for two in compared for row in two}), []
    for name, what in (_SOFTWARE | _HOSTS).items():
        values = [
            in_any_order(str(value)) if value and (name in _SOFTWARE or known.names.is_cpu(row)) else None
            for row, value in enumerate(column(known.table.experiments, name))
        ]
        if any(len({values[row] for row in two} - {None}) > 1 for two in compared):
            found.append(f"{what} ({_values([one_line(values[row]) for row in every if values[row]])})")
    if found:
        text = f"experiments that are compared differ in {', '.join(found)}, which may be why their speeds differ"
        yield known.sentence(HighlightKind.WARNING, text, every)


def _values(words: Sequence[str]) -> str:
    return listed([f"{word}: {counted(count, 'experiment')}" for word, count in Counter(words).items()], most=4)


def _compared(known: Known, against: Sequence[Pair]) -> list[tuple[int, int]]:
    """Return experiments whose speeds are compared, two by two: those of pairs and scalings, and each of a place with the first.

    Experiments that were meant to have other software are left out.
    """
    chosen = [*zip(*(column(known.table.experiments, name) for name in _CHOSEN), strict=True)]
    found = [(pair.new, pair.base) for pair in against if pair.speed]
    found += [(row, base) for base, row, _ in scalings(known.table)]
    for place in comparable(known.table, ok_runs(known.table, SPEEDS)):
        first: dict[tuple[Value, ...], int] = {}
        found += [(row, first.setdefault(chosen[row], row)) for row in place.rows if not known.in_doubt(row)]
    return [(row, other) for row, other in found if chosen[row] == chosen[other] and not known.in_doubt(row, other)]


def _short(known: Known) -> Iterator[Highlight]:
    """Yield a sentence about the experiments with fewer runs than requested, and one about those that a round of a race misses."""
    every = {row: counts for row, counts in enumerate(known.table.shortfalls) if counts}
    raced = {row: counts for row, counts in every.items() if counts[1] <= known.table.of_round.get(known.ids[row], 0)}
    short = {row: counts for row, counts in every.items() if row not in raced}
    if short:
        names = listed([f"{known.names.whole(row)}: {done} of {count}" for row, (done, count) in short.items()])
        have = "has" if len(short) == 1 else "have"
        text = (
            f"{counted(len(short), 'experiment')} {have} fewer runs than were asked for ({names}); the same command with the same "
            "--results carries out only the missing runs"
        )
        yield known.sentence(HighlightKind.WARNING, text, list(short))
    if raced:
        names = listed([known.names.whole(row) for row in raced])
        text = (
            f"the race is not over: in its present round, {counted(len(raced), 'experiment')} did not run yet ({names}); the same "
            "command goes on, with a larger --budget if a budget stopped it"
        )
        yield known.sentence(HighlightKind.WARNING, text, list(raced))
