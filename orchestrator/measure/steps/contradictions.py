"""Finds steps that contradict each other, the totals in their rank's worker file, or the time of the run. Pure.

A program may write its step file itself, and a defect may write a step twice. The speed would then be computed from wrong lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from orchestrator.measure.metrics.limits import longest_s
from orchestrator.measure.steps import COUNTS, FAR, LARGEST_COUNT, Step
from orchestrator.records import StepSource

# Maps a count of a step to the name of its total in the worker file.
_TOTALS = {"tokens": "processed", **{name: name for name in COUNTS[1:]}}
# In less time than this, not even the line of a step can be written.
_SHORTEST_S = 1e-6
# If a run has more steps than this, its step file may have been read only in part.
_MOST_STEPS = 10**6
# The steady steps of all ranks may take longer than those of one rank by this share, and by two steps.
_APART = 0.1
# The times of steps add up exactly if the instrument writes them, and roughly if they come from two clocks.
_EXACT, _ROUGH = (0.01, 0.001), (1.0, 0.05)
# A part of a step may be longer than the step by this number of seconds and this share, if a program rounds its times.
_PART = (0.01, 0.05)


def contradiction(
    ranks: Mapping[int, Sequence[Step]],
    workers: Sequence[Mapping[str, Any]],
    *,
    ranks_per_batch: int = 1,
    wall_s: float | None,
    one_clock: bool = True,
) -> str | None:
    """Return a sentence about the first contradiction that is found, or None if nothing contradicts the steps.

    `ranks_per_batch` neighbouring ranks have counted the same batch. With `one_clock`, all ranks ran on one host.
    """
    by_rank = {worker.get("rank") or 0: worker for worker in workers}
    found = (why for rank, steps in ranks.items() for why in _of_rank(rank, steps, by_rank.get(rank, {}), wall_s))
    return next(chain(found, _of_groups(ranks, ranks_per_batch), _not_at_once(ranks) if one_clock else ()), None)


def fewer_steps(ranks: Mapping[int, Sequence[Step]]) -> Iterator[str]:
    """Yield a sentence about each rank that made clearly fewer steps than another one. Only the steps of all ranks are measured."""
    most = max(map(len, ranks.values()), default=0)
    for rank, steps in ranks.items():
        if len(steps) < most * (1 - _ROUGH[1]) - 2:
            yield f"rank {rank} made only {len(steps):,} steps, and another rank {most:,}; only steps of all ranks count"


def _not_at_once(ranks: Mapping[int, Sequence[Step]]) -> Iterator[str]:
    """Compare the times of ranks. One after the other, they have no common speed."""
    spans = _spans(ranks)
    began, late = max(((begin, rank) for rank, (begin, _) in spans.items()), default=(0.0, 0))
    ended, early = min(((end, rank) for rank, (_, end) in spans.items()), default=(0.0, 0))
    if began > ended:
        yield f"rank {late} began its first step {began - ended:,.3g} s after rank {early} had ended its last one"


def partly_at_once(ranks: Mapping[int, Sequence[Step]]) -> str | None:
    """Return why the steps of ranks on one host have no common speed: clearly not all of them made steps all the time.

    Ranks that wait for each other are apart by less than a step.
    """
    spans = _spans(ranks)
    if not spans:
        return None
    whole = max(end for _, end in spans.values()) - min(begin for begin, _ in spans.values())
    longest, steps = max(end - begin for begin, end in spans.values()), max(map(len, ranks.values()))
    if whole <= longest * (1 + _APART + 2 / steps):
        return None
    lost = f"in {whole - longest:,.3g} of {whole:,.3g} s, only some of them trained"
    return f"the processes made the same steps at different times: {lost}"


def _spans(ranks: Mapping[int, Sequence[Step]]) -> dict[int, tuple[float, float]]:
    """Return when each rank's first step began, and its last one ended, if the program reported it."""
    ends = {rank: (steps[0], steps[0].ended_at, steps[-1].ended_at) for rank, steps in ranks.items() if steps}
    return {
        rank: (began - first.seconds, ended)
        for rank, (first, began, ended) in ends.items()
        if began is not None and ended is not None
    }


def _of_groups(ranks: Mapping[int, Sequence[Step]], ranks_per_batch: int) -> Iterator[str]:
    """Compare the counts of each rank with those of the first rank that got the same batch."""
    for rank, steps in ranks.items():
        first = rank - rank % ranks_per_batch
        for one, two in zip(ranks.get(first, ()), steps, strict=False):
            counts = ((name, getattr(one, name), getattr(two, name)) for name in COUNTS if one.number == two.number)
            for name, known, other in counts:
                if None not in (known, other) and known != other:
                    what = f"step {one.number} of ranks {first} and {rank}, which share a batch"
                    yield f"{what}, has {known:,} and {other:,} {_noun(name)}"


def _of_rank(rank: int, steps: Sequence[Step], worker: Mapping[str, Any], wall_s: float | None) -> Iterator[str]:
    last = next(((one, two) for one, two in pairwise(steps) if two.number <= one.number), None)
    if last is not None:
        yield f"step {last[1].number} of rank {rank} came after step {last[0].number}"
    least, share = _PART
    for step in steps:
        for verb, part in (("waited", step.wait_s or 0.0), ("computed", step.compute_s or 0.0)):
            if not -least <= part <= step.seconds * (1 + share) + least:
                yield f"step {step.number} of rank {rank} took {step.seconds:,.4g} s, and {verb} for {part:,.4g} s of it"
        if wrong := next((name for name in COUNTS if not 0 <= (getattr(step, name) or 0) < LARGEST_COUNT), None):
            value = getattr(step, wrong)
            more = " or more" if value == FAR else ""
            yield f"step {step.number} of rank {rank} has {value}{more} {_noun(wrong)}"
        if step.tokens is not None and (step.real or 0) > step.tokens:
            yield f"step {step.number} of rank {rank} has {step.real:,} real tokens of {step.tokens:,}"
        # A program without tokens may write 0.
        if step.tokens and (step.samples or 0) > step.tokens:
            yield f"step {step.number} of rank {rank} has {step.samples:,} samples, and only {step.tokens:,} tokens"
    instant = sum(step.seconds < _SHORTEST_S for step in steps)
    if 2 * instant > len(steps):
        yield f"{instant:,} of {len(steps):,} steps of rank {rank} took less than 1 µs"
    seconds = sum(step.seconds for step in steps)
    if wall_s is not None and seconds > longest_s(wall_s):
        yield f"the steps of rank {rank} took {seconds:,.4g} s together, and the whole run {wall_s:,.4g} s"
    yield from _against_times(rank, steps, worker)
    if not worker.get("steps_from") and not worker.get("instrument_error") and len(steps) < _MOST_STEPS:
        yield from _against_totals(rank, steps, worker.get("tokens") or {})


def _against_times(rank: int, steps: Sequence[Step], worker: Mapping[str, Any]) -> Iterator[str]:
    """Compare the steps' durations with their ends. A program that prints its steps may time only a part of each step."""
    ends = [step.ended_at for step in steps if step.ended_at is not None]
    whole = (
        steps
        and len(ends) == len(steps)
        and [step.number for step in steps] == list(range(steps[0].number, steps[-1].number + 1))
    )
    if not whole or worker.get("toggle_steps") or worker.get("steps_from") == StepSource.STDOUT:
        return
    span, seconds = ends[-1] - ends[0], sum(step.seconds for step in steps[1:])
    least, share = _ROUGH if worker.get("steps_from") else _EXACT
    if abs(span - seconds) > least + share * max(span, seconds):
        yield f"the steps of rank {rank} took {seconds:,.4g} s together, and {span:,.4g} s passed by their times"


def _against_totals(rank: int, steps: Sequence[Step], totals: Mapping[str, Any]) -> Iterator[str]:
    made = totals.get("steps")
    if isinstance(made, int) and made != len(steps):
        yield f"rank {rank} has {len(steps):,} lines of steps, and its worker file counts {made:,} steps"
    for name, total in _TOTALS.items():
        counts = [getattr(step, name) for step in steps]
        if isinstance(totals.get(total), int) and None not in counts and sum(counts) != totals[total]:
            yield f"the steps of rank {rank} have {sum(counts):,} {_noun(name)}, and its worker file {totals[total]:,}"


def _noun(count: str) -> str:
    return {"real": "real tokens", "labelled": "labelled tokens"}.get(count, count)
