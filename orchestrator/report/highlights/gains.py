"""Sentences on which framework configuration is faster, by how much, and what it costs in memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Ratio
from orchestrator.measure.metrics import metric, show
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.wording import direction, factor, inverse, is_wide, percent, runs, times
from orchestrator.results.table.baseline import TRAINERS_SPEED, Beside, Memory, Speed

MOST_FASTER, MOST_ALIKE, MOST_SLOWER = 6, 2, 3
SAME_MEMORY = 0.005
# A smaller share of padding is not worth a word.
PADDING = 0.001
# Shares of busy time that lie apart by less are taken as alike. Beyond it the host has a say in which one is faster.
OTHERWISE_BUSY = 0.1

_WORDS = {1: "faster", 0: "without a difference", -1: "slower"}
_WIDE = "without a clear difference"
Judged = tuple[Beside, Speed]


def gains(known: Known, against: Sequence[Beside]) -> Iterator[Highlight]:
    """Yield the fastest first, then those without a difference, then the slowest; at the end how many more there are."""
    judged = [
        (one, one.speed) for one in against if one.speed and not known.doubts[one.new] and not known.doubts[one.base]
    ]
    order = sorted(judged, key=lambda pair: -round(pair[1].ratio.value, 3))
    faster, alike, slower = ([pair for pair in order if direction(pair[1].ratio) == sign] for sign in _WORDS)
    slower.reverse()
    alike.sort(key=lambda pair: -abs(math.log(pair[1].ratio.value)))  # what may be most, first
    for one, speed in (*faster[:MOST_FASTER], *alike[:MOST_ALIKE], *slower[:MOST_SLOWER]):
        yield known.sentence(HighlightKind.GAIN, _gain(known, one, speed), [one.new, one.base])
    rest = [*faster[MOST_FASTER:], *alike[MOST_ALIKE:], *slower[MOST_SLOWER:]]
    if rest:
        counts = Counter(_word(speed.ratio) for _, speed in rest)
        said = ", ".join(f"{counts[word]} {word}" for word in (*_WORDS.values(), _WIDE) if counts[word])
        text = f"{counted(len(rest), 'more comparison')}: {said}"
        yield known.sentence(HighlightKind.GAIN, text, [one.new for one, _ in rest])
    single = [one.new for one, speed in judged if speed.ratio.interval is None]
    if single:
        text = f"{counted(len(single), 'comparison')} of single runs: the spread between runs of the same experiment is not known"
        yield known.sentence(HighlightKind.WARNING, f"{text} (use --repeats 3)", single)


def _word(found: Ratio) -> str:
    return _WIDE if direction(found) == 0 and is_wide(found) else _WORDS[direction(found)]


def _gain(known: Known, one: Beside, speed: Speed) -> str:
    new, base = known.names.framework(one.new), known.names.framework(one.base)
    place = f"{known.names.place(one.new)}{_by(known, one, speed)}"
    found, sign, rest = speed.ratio, direction(speed.ratio), f"{_memory(one.memory)}{_busy(known, one)}"
    if sign == 0 and is_wide(found):
        return (
            f"no clear difference between {new} and {base} on {place}: {factor(found)}; more repeats would decide{rest}"
        )
    if sign == 0:
        return f"no difference seen between {new} and {base} on {place}: {factor(found)}{rest}"
    if found.interval is None:  # what single runs did is a fact, what the configurations are is not known by it
        return f"{new} ran at {times(found)} the speed of {base} on {place}, {runs(found)}{rest}"
    words = f"{factor(found if sign > 0 else inverse(found))} {_WORDS[sign]}"
    return f"{new} is {words} than {base} on {place}{rest}"


def _by(known: Known, one: Beside, speed: Speed) -> str:
    """Return the name of the speed, if it is not the one that people expect."""
    if speed.metric == TRAINERS_SPEED:
        return ", by the Trainer's own speed, which counts warm-up and compilation"
    padded = max(known.numbers("padding_share", row) or 0.0 for row in (one.new, one.base)) > PADDING
    real = speed.metric.startswith("real_")
    return (", padding not counted" if real else ", padding counted as work") if padded else ""


def _memory(memory: Memory | None) -> str:
    if memory is None or abs(memory.ratio - 1) < SAME_MEMORY:
        return ""
    share, word = (1 - memory.ratio, "less") if memory.ratio < 1 else (memory.ratio - 1, "more")
    sizes = f"{show(memory.metric, memory.new)} against {show(memory.metric, memory.base)}"
    return f" and needs {percent(share)} {word} memory ({metric(memory.metric).label} {sizes})"


def _busy(known: Known, one: Beside) -> str:
    """Return how busy the GPUs were, if the two sides differ in it: a side that waits for its host is not slower itself."""
    new, base = (known.numbers("gpu_utilization", row) for row in (one.new, one.base))
    if new is None or base is None or round(abs(new - base), 3) < OTHERWISE_BUSY:
        return ""
    return f"; GPUs busy {percent(new)} of the time against {percent(base)}"
