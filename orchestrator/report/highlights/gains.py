"""Sentences about faster framework configurations and arguments: by how much they are faster, and how much memory they need."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure import intervals
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import METRICS, metric, show
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import listed
from orchestrator.report.highlights.wording import change, direction, factor, is_wide, percent, runs, times
from orchestrator.results.table.aggregate import LOSS
from orchestrator.results.table.baseline import (
    CALL_TIME,
    ENERGY,
    ROUND_TIME,
    RUN_TIME,
    STEP_TIME,
    TRAINERS_SPEED,
    Memory,
    Pair,
    Speed,
    ok_runs,
)
from orchestrator.results.table.references import FRAMEWORK
from orchestrator.results.table.rows import PREFIX

MOST_FASTER, MOST_ALIKE, MOST_SLOWER = 6, 2, 3
# The largest number of sentences about a value over many comparisons, and the smallest number of these comparisons.
MOST_OVER_ALL, FEWEST = 4, 4
SAME_MEMORY = 0.005
# A smaller share of padding is not mentioned.
PADDING = 0.001
# Shares of busy time count as equal if they differ by less than this. A larger difference means that the host affects the speed.
BUSY_DIFFERENCE = 0.1

_WARM_UP = "which includes warm-up and compilation"
_METRICS = {
    TRAINERS_SPEED: f"the Trainer's own speed, {_WARM_UP}",
    "samples_per_s": "samples per second",
    "train_samples_per_second": f"samples per second of the whole run, {_WARM_UP}",
    STEP_TIME: "the time of a step",
    CALL_TIME: "the time of a call",
    ROUND_TIME: "the time of a round",
    RUN_TIME: f"the time of the whole run, {_WARM_UP}",
}
_WORDS = {1: "faster", 0: "without a difference", -1: "slower"}
_WIDE = "without a clear difference"
Judged = tuple[Pair, Speed]


def gains(known: Known, against: Sequence[Pair]) -> Iterator[Highlight]:
    """Yield sentences about values that have many comparisons, then about the fastest, the most similar and the slowest pairs.

    The sentences about pairs are grouped by model. The last sentence counts the other pairs.
    """
    judged = [(pair, pair.speed) for pair in against if pair.speed and not pair.in_doubt]
    order = sorted(judged, key=lambda entry: -round(entry[1].ratio.value, 3))
    faster, alike, slower = ([entry for entry in order if direction(entry[1].ratio) == sign] for sign in _WORDS)
    slower = _next_or_slowest(slower, [*faster, *alike])
    alike.sort(key=lambda entry: -abs(math.log(entry[1].ratio.value)))  # the largest possible difference first
    yield from _over_all(known, judged)
    energies = ok_runs(known.table, (ENERGY,))
    chosen = [*faster[:MOST_FASTER], *alike[:MOST_ALIKE], *slower[:MOST_SLOWER]]
    models = list(dict.fromkeys(known.names.model(pair.new) for pair, _ in chosen))
    for pair, speed in sorted(chosen, key=lambda entry: models.index(known.names.model(entry[0].new))):
        text = f"{_gain(known, pair, speed)}{_energy(energies, pair)}"
        yield known.sentence(HighlightKind.GAIN, text, [pair.new, pair.base])
    rest = [*faster[MOST_FASTER:], *alike[MOST_ALIKE:], *slower[MOST_SLOWER:]]
    if rest:
        counts = Counter(_word(speed.ratio) for _, speed in rest)
        words = ", ".join(f"{counts[word]} {word}" for word in (*_WORDS.values(), _WIDE) if counts[word])
        text = f"{counted(len(rest), 'more comparison')}: {words}"
        yield known.sentence(HighlightKind.GAIN, text, [row for pair, _ in rest for row in (pair.new, pair.base)])
    # A race makes few runs of what is clearly slower, so more repeats are no advice there.
    is_raced = [name in known.table.raced for name in known.ids]
    single = [pair for pair, speed in judged if speed.ratio.interval is None and not is_raced[pair.new]]
    if single:
        rows = [row for pair in single for row in (pair.new, pair.base)]
        text = f"{counted(len(single), 'comparison')} of single runs: the spread between runs of the same experiment is not known"
        yield known.sentence(HighlightKind.WARNING, f"{text} (use --repeats 3)", rows)


def _next_or_slowest(slower: Sequence[Judged], others: Sequence[Judged]) -> list[Judged]:
    """Return the slower pairs, the slowest first. Before these come the second places, such as that behind the winner of a race.

    A second place is the pair that is nearest to a reference which nothing equals, if several are slower than this reference.
    `slower` has the nearest pairs first.
    """
    counts, equalled = Counter(pair.base for pair, _ in slower), {pair.base for pair, _ in others}
    seconds: list[Judged] = []
    rest: list[Judged] = []
    for pair, speed in slower:
        is_second = counts[pair.base] > 1 and pair.base not in equalled
        equalled.add(pair.base)
        (seconds if is_second else rest).append((pair, speed))
    return [*seconds, *reversed(rest)]


def _over_all(known: Known, judged: Sequence[Judged]) -> Iterator[Highlight]:
    """Yield sentences about values with at least FEWEST comparisons, the fastest first."""
    groups: dict[tuple[str, str, str], list[Judged]] = {}
    for pair, speed in judged:
        new, base = known.names.sides(pair.new, pair.base, (pair.match.axis,))
        groups.setdefault((pair.match.axis, new, base), []).append((pair, speed))
    means = [
        (
            intervals.estimate_in_pairs([1.0] * len(some), [speed.ratio.value for _, speed in some]).ratio(),
            new,
            base,
            some,
        )
        for (_, new, base), some in groups.items()
        if len(some) >= FEWEST
    ]
    for mean, new, base, some in sorted(means, key=lambda entry: -entry[0].value)[:MOST_OVER_ALL]:
        values = [speed.ratio.value for _, speed in some]
        over = f"over {len(some)} comparisons, which range from {min(values):.2f}× to {max(values):.2f}×"
        what = (
            f"no clear difference between {new} and {base}: {factor(mean)} in the geometric mean"
            if direction(mean) == 0
            else f"{new} is {change(mean)} than {base} in the geometric mean"
        )
        rows = [row for pair, _ in some for row in (pair.new, pair.base)]
        yield known.sentence(HighlightKind.GAIN, f"{what} {over}", rows)


def chosen_references(known: Known, against: Sequence[Pair]) -> Iterator[Highlight]:
    """Yield a note for each axis for which Tunebench chose the reference. The axis of frameworks has no note."""
    rows: dict[str, list[Pair]] = {}
    for pair in against:
        if pair.speed and pair.match.is_chosen and pair.match.axis != FRAMEWORK:
            rows.setdefault(pair.match.axis, []).append(pair)
    for axis, pairs in rows.items():
        label, option = metric(axis).label.removeprefix(PREFIX), axis.removeprefix(PREFIX)
        values = listed([*dict.fromkeys(one_line(pair.match.reference.shown) for pair in pairs)])
        text = f"{label} is compared with {values}, its first value; --baseline {option}=VALUE compares with another"
        yield known.sentence(HighlightKind.NOTE, text, [pair.base for pair in pairs])


def _word(speed: Ratio) -> str:
    return _WIDE if direction(speed) == 0 and is_wide(speed) else _WORDS[direction(speed)]


def _gain(known: Known, pair: Pair, speed: Speed) -> str:
    axis = (pair.match.axis, *pair.match.others)
    new, base = known.names.sides(pair.new, pair.base, axis)
    place = f"{known.names.place(pair.new, axis=axis)}{_metric(known, pair, speed)}"
    ratio, memory, rest = speed.ratio, _memory(pair.memory), f"{_loss(pair, new)}{_busy(known, pair)}"
    if direction(ratio) == 0 and ratio.interval is not None:
        difference, advice = (
            ("clear difference", "; more repeats may decide") if is_wide(ratio) else ("difference seen", "")
        )
        memory = memory and f"; {new} {memory}"
        return f"no {difference} between {new} and {base} on {place}: {factor(ratio)}{memory}{rest}{advice}"
    rest = f"{memory and f' and {memory}'}{rest}"
    if ratio.interval is None:  # the sentence states what single runs did, not which configuration is faster
        unknown = ", which is too few to tell" if direction(ratio) == 0 else ""
        return f"{new} ran at {times(ratio)} the speed of {base} on {place}, {runs(ratio)}{unknown}{rest}"
    return f"{new} is {change(ratio)} than {base} on {place}{rest}"


def _metric(known: Known, pair: Pair, speed: Speed) -> str:
    """Return words that explain the metric of the speed, if it needs an explanation."""
    if speed.metric in _METRICS:
        return f", by {_METRICS[speed.metric]}"
    padded = max(known.numbers("padding_share", row) or 0.0 for row in (pair.new, pair.base)) > PADDING
    real = speed.metric.startswith("real_")
    return (", padding not counted" if real else ", padding counted as work") if padded else ""


def _memory(memory: Memory | None) -> str:
    if memory is None or abs(memory.ratio - 1) < SAME_MEMORY:
        return ""
    share, word = (1 - memory.ratio, "less") if memory.ratio < 1 else (memory.ratio - 1, "more")
    sizes = f"{show(memory.metric, memory.new)} against {show(memory.metric, memory.base)}"
    return f"needs {percent(share)} {word} memory ({metric(memory.metric).label} {sizes})"


def _loss(pair: Pair, new: str) -> str:
    """Return words about the difference of the losses, if it is larger than noise.

    The compared arguments may change what the model learns.
    """
    if pair.loss is None or abs(pair.loss) <= METRICS[LOSS].min_effect:
        return ""
    side = "higher" if pair.loss > 0 else "lower"
    return f"; with {new}, the training loss is {percent(abs(pair.loss))} {side}"


def _energy(runs_of: Sequence[Mapping[str, Sequence[float]]], pair: Pair) -> str:
    """Return words about the energy per token, if its difference is clear and as large as the smallest effect that counts."""
    new, base = (runs_of[row].get(ENERGY, ()) for row in (pair.new, pair.base))
    if min(len(new), len(base)) < 2:
        return ""
    ratio = intervals.ratio(base, new)
    if direction(ratio) == 0 or abs(math.log(ratio.value)) < math.log1p(METRICS[ENERGY].min_effect):
        return ""
    return f"; energy per token is {change(ratio, more='higher', less='lower')}"


def _busy(known: Known, pair: Pair) -> str:
    """Return words about the GPUs' busy shares, if the two sides differ. The shares show whether the GPUs waited for their host."""
    new, base = (known.numbers("gpu_utilization", row) for row in (pair.new, pair.base))
    if new is None or base is None or round(abs(new - base), 3) < BUSY_DIFFERENCE:
        return ""
    return f"; GPUs busy {percent(new)} of the time against {percent(base)}"
