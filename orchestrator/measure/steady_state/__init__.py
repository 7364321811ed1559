"""Finds the steady state of a series of step times: its first step and the time of a step. Pure.

The first steps of a run compile, connect and fill caches. Their number is declared (`discard_steps`) or found. To find it, the
series is cut into levels. The warm-up ends with the last level that is more than 3 % higher than the level of the run's second
half. Only the first half is searched. The step times after the warm-up must stay at one level. If they do not, the run has no
steady state and no speed, and a sentence gives the reason.

The first step is never steady. If there is a spike among the first 10 steps or in the first tenth of the run, all steps up to the
spike are warm-up: compilers may compile again. So are all steps up to a step of the first half that took over 5 median steps,
unless the second half has such a step, too. A warning names the step.

A warning also names a stretch of at least 5 steady steps and a tenth of them if its level differs from the level of the other
steps: for example, a shift at the end of the run, or a warm-up that lasted longer than half of the run.

Left out: the causes of a slow step. `throughput` names them if it can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import fmean, median

from orchestrator.measure.intervals import Interval
from orchestrator.measure.steady_state.levels import (
    SPIKE_UNITS,
    late_compilation,
    level_shift,
    odd_stretch,
    spread,
    warm_up,
)
from orchestrator.measure.steady_state.median_step import half_tick, median_interval
from orchestrator.records import AT_LEAST_STEPS, Caveat, CaveatKind

_NO_TIME = "its steps took no time: the clock stood still"
_DIFFERENCE = 0.02
# A clock's ticks deserve a warning from this share of the median step on.
_TICK = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Steady:
    """The steady part of a run: the steps after the first `discarded_steps`. Times are in seconds.

    `found_by` is `declared` or `found`. `spikes` are step positions in the whole run, counted from 0. `spike_share` is the extra
    time of the spikes over the median step, as a share of the steady part's time.
    """

    discarded_steps: int
    found_by: str
    steps: int
    median_s: float
    mean_s: float
    p5_s: float
    p95_s: float
    interval: Interval | None
    spikes: tuple[int, ...] = ()
    spike_share: float = 0.0
    warnings: tuple[str, ...] = ()


def find(
    seconds: Sequence[float],
    *,
    discard_steps: int | None = None,
    at_least_steps: int | None = None,
    waits_s: Sequence[float] = (),
    after: Sequence[Sequence[str]] = (),
) -> Steady | Caveat:
    """Return the steady state of a run whose steps took `seconds`, or the reason if there is none.

    `waits_s` has for each step the part of its time before its own work began. `after` has for each step the events before it
    (`evaluate`, `save`): a wait for them is not warm-up. `at_least_steps` steady steps are needed, by default 10.
    """
    least = at_least_steps or AT_LEAST_STEPS
    pauses = [wait if index < len(after) and after[index] else 0.0 for index, wait in enumerate(waits_s)]
    plain = [time - pause for time, pause in zip_longest(seconds, pauses[: len(seconds)], fillvalue=0.0)]
    if seconds and median(seconds) <= 0:
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=_NO_TIME)
    compiled = late_compilation(_work(seconds, waits_s)) if discard_steps is None else 0
    found_by, cut = (
        ("declared", discard_steps) if discard_steps is not None else ("found", warm_up(plain, compiled=compiled))
    )
    left = len(seconds) - cut
    if left < least:
        enough = f"a run needs at least {cut + least} steps"
        short = f"{max(left, 0)} step(s) are left after {cut} of warm-up, and {least} are needed; {enough}"
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=short)
    if median(seconds[cut:]) <= 0:
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=_NO_TIME)
    shift = level_shift(plain[cut:])
    if shift is not None:
        return Caveat(kind=CaveatKind.NOT_LEVEL, detail=shift)
    state = _described(seconds, plain, cut=cut, found_by=found_by, waits_s=waits_s, after=after)
    notes = (*_compilation(compiled, seconds, state.median_s), *state.warnings, *_odd_stretch(plain, cut))
    return replace(state, warnings=notes)


def _work(seconds: Sequence[float], waits_s: Sequence[float]) -> list[float]:
    """Return the times without waits. A compiler does not make its step wait."""
    return [time - wait for time, wait in zip_longest(seconds, waits_s[: len(seconds)], fillvalue=0.0)]


def _compilation(compiled: int, seconds: Sequence[float], middle: float) -> Iterator[str]:
    if compiled:
        times = seconds[compiled - 1] / middle
        yield (
            f"step {compiled} took {times:.0f} times as long as the median step, like a compilation: it and all steps before it "
            "are left out as warm-up"
        )


def _odd_stretch(plain: Sequence[float], cut: int) -> Iterator[str]:
    if stretch := odd_stretch(plain[cut:]):
        begin, end, difference = stretch
        yield (
            f"steps {cut + begin + 1} to {cut + end} are {difference} than the other steady steps: the speed depends on how long "
            "the run lasts"
        )


def _described(
    seconds: Sequence[float],
    plain: Sequence[float],
    *,
    cut: int,
    found_by: str,
    waits_s: Sequence[float],
    after: Sequence[Sequence[str]],
) -> Steady:
    part = seconds[cut:]
    middle, total = median(part), math.fsum(part)
    limit = middle + SPIKE_UNITS * spread(part)
    spikes = tuple(index for index in range(cut, len(seconds)) if plain[index] > limit)
    ordered = sorted(part)
    spike_share = math.fsum(plain[index] - middle for index in spikes) / total
    waits = _waits(cut, waits_s, after)
    shares = {  # a wait that makes its step a spike counts only as a wait
        "waiting for data": math.fsum(waits) / total,
        "spikes": spike_share - math.fsum(waits[index - cut] for index in spikes if waits) / total,
        _between(after): math.fsum(s - p for s, p in zip(part, plain[cut:], strict=True)) / total,
    }
    interval = median_interval(part)
    return Steady(
        discarded_steps=cut,
        found_by=found_by,
        steps=len(part),
        median_s=middle,
        mean_s=fmean(part),
        p5_s=ordered[int(0.05 * (len(part) - 1))],
        p95_s=ordered[math.ceil(0.95 * (len(part) - 1))],
        interval=interval,
        spikes=spikes,
        spike_share=spike_share,
        warnings=(*_difference(middle, fmean(part), shares), *_coarse(ordered, middle, interval)),
    )


def _between(after: Sequence[Sequence[str]]) -> str:
    """Return what was done between steps: `after` has the words that mark the steps after it."""
    done = {word for words in after for word in words}
    return "writing the profile" if done == {"profile"} else "evaluation or saving"


def _coarse(ordered: Sequence[float], middle: float, interval: Interval | None) -> Iterator[str]:
    """Yield a sentence if the clock's ticks matter, or leave no interval.

    They matter if they make up over a quarter of the interval and over 1 % of the median.
    """
    half = half_tick(ordered)
    if math.isinf(half):
        yield f"all {len(ordered)} steady steps took {middle:.6g} s: their clock is too coarse, so the step time has no interval"
    elif half > _TICK * middle / 2 and (interval is None or half > (interval.high - interval.low) / 8):
        yield f"the clock of the steps is coarse: its ticks are {2 * half:.3g} s, and the median step takes {middle:.6g} s"


def _waits(cut: int, waits_s: Sequence[float], after: Sequence[Sequence[str]]) -> list[float]:
    """Return for each step the excess of its wait over the usual wait. A wait for evaluation or saving counts as 0."""
    waits = [0.0 if index < len(after) and after[index] else waits_s[index] for index in range(cut, len(waits_s))]
    usual = median(waits) if waits else 0.0
    return [max(wait - usual, 0.0) for wait in waits]


def _difference(middle: float, mean: float, shares: dict[str, float]) -> list[str]:
    """Return a sentence if the median and mean step differ by over 2 %. Name the causes if they explain half of the difference."""
    if abs(mean / middle - 1) <= _DIFFERENCE:
        return []
    causes: list[str] = []
    left = (1 - middle / mean) / 2 if mean > middle else math.inf
    for cause, share in sorted(shares.items(), key=lambda item: -item[1]):
        if left > 0 and share > 0:
            causes.append(f"{cause}, {share:.1%} of the time")
            left -= share
    why = "; ".join(causes) if left <= 0 else "steps differ, as with ragged batches or on a busy machine"
    word = "longer" if mean > middle else "shorter"
    return [f"the mean step is {abs(mean / middle - 1):.1%} {word} than the median step: {why}"]
