"""Sentences about faster framework configurations and arguments: by how much they are faster, and how much memory they need."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import METRICS, metric, show
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import listed
from orchestrator.report.highlights.wording import direction, factor, inverse, is_wide, percent, runs, times
from orchestrator.results.table.aggregate import LOSS, OTHER_LOSS, WRONG
from orchestrator.results.table.baseline import RUN_TIME, STEP_TIME, TRAINERS_SPEED, Memory, Pair, Speed
from orchestrator.results.table.references import FRAMEWORK
from orchestrator.results.table.rows import PREFIX

MOST_FASTER, MOST_ALIKE, MOST_SLOWER = 6, 2, 3
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
    RUN_TIME: f"the time of the whole run, {_WARM_UP}",
}
_WORDS = {1: "faster", 0: "without a difference", -1: "slower"}
_WIDE = "without a clear difference"
_WRONG = (WRONG, OTHER_LOSS)
Judged = tuple[Pair, Speed]


def gains(known: Known, against: Sequence[Pair]) -> Iterator[Highlight]:
    """Yield sentences about the fastest pairs, about pairs without a difference, and about the slowest pairs.

    Then yield a sentence that counts the other pairs.
    """
    judged = [
        (pair, pair.speed)
        for pair in against
        if pair.speed and not known.in_doubt(pair.new, pair.base) and pair.doubt not in _WRONG
    ]
    order = sorted(judged, key=lambda entry: -round(entry[1].ratio.value, 3))
    faster, alike, slower = ([entry for entry in order if direction(entry[1].ratio) == sign] for sign in _WORDS)
    slower.reverse()
    alike.sort(key=lambda entry: -abs(math.log(entry[1].ratio.value)))  # the largest possible difference first
    for pair, speed in (*faster[:MOST_FASTER], *alike[:MOST_ALIKE], *slower[:MOST_SLOWER]):
        yield known.sentence(HighlightKind.GAIN, _gain(known, pair, speed), [pair.new, pair.base])
    rest = [*faster[MOST_FASTER:], *alike[MOST_ALIKE:], *slower[MOST_SLOWER:]]
    if rest:
        counts = Counter(_word(speed.ratio) for _, speed in rest)
        words = ", ".join(f"{counts[word]} {word}" for word in (*_WORDS.values(), _WIDE) if counts[word])
        text = f"{counted(len(rest), 'more comparison')}: {words}"
        yield known.sentence(HighlightKind.GAIN, text, [pair.new for pair, _ in rest])
    single = [pair.new for pair, speed in judged if speed.ratio.interval is None]
    if single:
        text = f"{counted(len(single), 'comparison')} of single runs: the spread between runs of the same experiment is not known"
        yield known.sentence(HighlightKind.WARNING, f"{text} (use --repeats 3)", single)


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
    ratio, sign, rest = (
        speed.ratio,
        direction(speed.ratio),
        f"{_memory(pair.memory)}{_loss(pair, new)}{_busy(known, pair)}",
    )
    if sign == 0:
        advice = "; more repeats would decide" if is_wide(ratio) else ""
        difference = "clear difference" if is_wide(ratio) else "difference seen"
        return f"no {difference} between {new} and {base} on {place}: {factor(ratio)}{advice}{rest}"
    if ratio.interval is None:  # the sentence states what single runs did, not which configuration is faster
        return f"{new} ran at {times(ratio)} the speed of {base} on {place}, {runs(ratio)}{rest}"
    words = f"{factor(ratio if sign > 0 else inverse(ratio))} {_WORDS[sign]}"
    return f"{new} is {words} than {base} on {place}{rest}"


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
    return f" and needs {percent(share)} {word} memory ({metric(memory.metric).label} {sizes})"


def _loss(pair: Pair, new: str) -> str:
    """Return words about the difference of the losses, if it is larger than noise.

    The compared arguments may change what the model learns.
    """
    if pair.loss is None or abs(pair.loss) <= METRICS[LOSS].min_effect:
        return ""
    side = "higher" if pair.loss > 0 else "lower"
    return f"; with {new}, the training loss is {percent(abs(pair.loss))} {side}"


def _busy(known: Known, pair: Pair) -> str:
    """Return words about the GPUs' busy shares, if the two sides differ. The shares show whether the GPUs waited for their host."""
    new, base = (known.numbers("gpu_utilization", row) for row in (pair.new, pair.base))
    if new is None or base is None or round(abs(new - base), 3) < BUSY_DIFFERENCE:
        return ""
    return f"; GPUs busy {percent(new)} of the time against {percent(base)}"
