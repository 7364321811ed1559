"""Measures a run's speed in steady state, its use of time, its memory and its work, from the files of its ranks.

This module reads `steps-rank<R>.jsonl` and `worker-rank<R>.json` in the run's folder. It uses `steps`, `steady_state`, `flops` and
`rank_files`. A step lasts until the last rank has ended it. Its tokens are the sum over data-parallel ranks (`steps.together`). If
a rank left no file, or if there is no steady state, some numbers are missing, and a sentence says why.

Left out: the Trainer's own final metrics (`trainers.instrumented`) and the numbers of monitors. A step ends when the GPU (or the
host, on a CPU) has finished the optimizer's work. Speeds do not include the time before training began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator.measure import flops, rank_files, steady_state, steps
from orchestrator.measure.rank_files import Cells, Number, Worker
from orchestrator.measure.steps import Step, batches, contradictions, parts, recompilations
from orchestrator.records import Caveat, CaveatKind, Measurement, StepSource

_SOURCE = "steps of all ranks"
_HEADLINE = ("tokens_per_s", "tokens_per_s_per_gpu", "real_tokens_per_s", "step_time_s")
# For the steps of a command, each of these has a value or a reason: its own number must not take the place of a missing one.
_OF_STEPS = ("step_time_s", "steps_per_s", *(f"step_time_{end}_s" for end in ("low", "high", "p5", "p95")))
_OF_COUNTS = {
    **{"tokens": ("tokens_per_s", "tokens_per_s_per_gpu"), "real": ("real_tokens_per_s", "real_tokens_per_s_per_gpu")},
    **{"labelled": ("labelled_tokens_per_s",), "samples": ("samples_per_s",)},
}
_NOT_COUNTED = Caveat(detail="the steady steps do not have it")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The numbers in a run's own files, a row for each rank, and caveats.

    `impossible` is a sentence if the numbers exceed what the device can do. `contradiction` is a sentence if the steps
    contradict each other, the worker files or the run's time.
    """

    measurements: tuple[Measurement, ...] = ()
    ranks: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Caveat, ...] = ()
    impossible: str | None = None
    contradiction: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Series:
    """The steps that all ranks have: each rank's own steps, and the common steps. `lines` are the steps as they were written."""

    ranks: Mapping[int, tuple[Step, ...]]
    together: tuple[Step, ...]
    lines: Mapping[int, tuple[Step, ...]]

    def after(self, count: int) -> dict[int, tuple[Step, ...]]:
        """Return each rank's steps without the first `count` steps."""
        return {rank: own[count:] for rank, own in self.ranks.items()}


def read(
    run_dir: Path,
    workers: Sequence[Worker],
    *,
    world_size: int,
    wall_s: float | None = None,
    one_clock: bool = True,
) -> Reading:
    """Return the numbers of an instrumented run of `world_size` processes, from their files. It ended after `wall_s` seconds.

    With `one_clock`, all processes ran on one host.
    """
    if not workers:
        return Reading()
    ordered = sorted(workers, key=lambda worker: int(worker.get("rank") or 0))
    first = ordered[0]
    shared = rank_files.ranks_per_batch(first)
    series = _series(run_dir, _reporters(first, world_size), shared, rank_files.last_step(first))
    state = _state(series, first, one_clock=one_clock)
    if isinstance(series, Caveat):
        series = _Series(ranks={}, together=(), lines={})
    numbers = rank_files.numbers(ordered, world_size=world_size) | _reported(series.together, first)
    numbers["recompiled_steps"] = recompilations.count(series.together)
    notes = [*rank_files.warnings(ordered, numbers), *contradictions.fewer_steps(series.lines)]
    impossible = None
    if isinstance(state, steady_state.Steady):
        found, reasons = _of_steady_state(series, state, ordered, world_size)
        numbers |= found
        missing = _missing(reasons)
        try:
            numbers |= _work(series.together, first, numbers)
        except flops.Overcounted as error:
            impossible = str(error)
        notes += [*state.warnings, *batches.short(series.together[state.discarded_steps :])]
    else:
        numbers |= {"first_step_s": series.together[0].seconds} if series.together else {}
        missing = _missing(dict.fromkeys(_promised(series, first) or _HEADLINE, state))
    known = (
        Measurement(name=name, value=value, source=_SOURCE) for name, value in numbers.items() if value is not None
    )
    return Reading(
        measurements=(*known, *missing),
        ranks=tuple(_rank_rows(ordered, series, state, shared)),
        warnings=(
            *(Caveat(detail=note) for note in notes),
            *rank_files.busy_host(numbers.get("core_wait_share")),
            *recompilations.caveats(series.together, state),
            *([state] if isinstance(state, Caveat) else []),
        ),
        impossible=impossible,
        contradiction=contradictions.contradiction(
            series.lines, ordered, ranks_per_batch=shared, wall_s=wall_s, one_clock=one_clock
        ),
    )


def _of_steady_state(
    series: _Series, state: steady_state.Steady, workers: Sequence[Worker], world_size: int
) -> tuple[Cells, dict[str, Caveat]]:
    """Return the numbers of the steady state, and why others are missing."""
    divided, reasons = parts.read(series.after(state.discarded_steps), workers)
    numbers = _speed(series.together, state, world_size) | _warm_up(series.together, state, workers[0]) | divided
    numbers |= batches.sizes(series.together[state.discarded_steps :], world_size=world_size)
    unknown = {name: _NOT_COUNTED for name in _promised(series, workers[0]) if numbers.get(name) is None}
    return numbers, unknown | {name: Caveat(detail=why) for name, why in reasons.items()}


def _missing(reasons: Mapping[str, Caveat]) -> list[Measurement]:
    return [Measurement(name=name, value=None, source=_SOURCE, missing=why) for name, why in reasons.items()]


def _promised(series: _Series, first: Worker) -> tuple[str, ...]:
    """Return the numbers that the steps of a command give in a steady state; all of them if it has made none. () for a Trainer."""
    every = [step for steps in series.lines.values() for step in steps]
    counted = [count for count in _OF_COUNTS if not every or any(getattr(step, count) is not None for step in every)]
    return (*_OF_STEPS, *(name for count in counted for name in _OF_COUNTS[count])) if first.get("steps_from") else ()


def _rule(first: Worker) -> Mapping[str, Any]:
    return first.get("measure") or {}


def _reporters(first: Worker, world_size: int) -> int:
    """Return the number of processes that write step files. A program that prints its steps has one file for all processes."""
    return 1 if first.get("steps_from") == StepSource.STDOUT else world_size


def _reported(series: Sequence[Step], first: Worker) -> Cells:
    """Return the work done by a program that reports its own steps. Return {} for a Trainer, which reports its work itself."""
    if not first.get("steps_from"):
        return {}
    counts = {"tokens_processed": _total(series, "tokens"), "samples_processed": _total(series, "samples")}
    return {"steps": len(series) or None, **counts}


@lru_cache(maxsize=4)
def _series(run_dir: Path, reporters: int, per_batch: int, at_most: int | None) -> _Series | Caveat:
    """Return the steps that all ranks have, or the reason if there are none. `per_batch` ranks share each batch.

    A program that reports its own steps is ended shortly after the step at place `at_most`. Its later steps are left out.
    """
    ranks = {rank: own for rank, own in steps.read(run_dir).items() if own}
    if not ranks:
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail="the run has no steps")
    if set(ranks) != set(range(reporters)):
        there = f"the steps are from rank(s) {', '.join(map(str, ranks))}, and the run had {reporters} rank(s)"
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=there)
    together = steps.together(ranks, ranks_per_batch=per_batch)[:at_most]
    numbered = {rank: {step.number: step for step in own} for rank, own in ranks.items()}
    shared = {rank: tuple(own[step.number] for step in together) for rank, own in numbered.items()}
    return _Series(ranks=shared, together=together, lines=ranks)


def _state(series: _Series | Caveat, first: Worker, *, one_clock: bool = False) -> steady_state.Steady | Caveat:
    """Return the steady state, or why there is none. With `one_clock`, the ranks must have made their steps at the same time."""
    if problem := first.get("steps_problem"):
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=str(problem))
    if isinstance(series, Caveat):
        return series
    rule = _rule(first)
    found = steady_state.find(
        [step.seconds for step in series.together],
        after=[step.after for step in series.together],
        waits_s=[step.wait_s or 0.0 for step in series.together],
        discard_steps=rule.get("discard_steps"),
        at_least_steps=rule.get("at_least_steps"),
    )
    if one_clock and isinstance(found, steady_state.Steady):
        apart = contradictions.partly_at_once(series.after(found.discarded_steps))
        return Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail=apart) if apart else found
    return found


def _speed(series: Sequence[Step], state: steady_state.Steady, world_size: int) -> Cells:
    """Return the rates in the steady part, and the distribution of its step times."""
    window = series[state.discarded_steps :]
    seconds = sum(step.seconds for step in window)
    rate = {name: _rate(window, name, seconds) for name in ("tokens", "real", "labelled", "samples")}
    counted: Cells = {
        "tokens_per_s": rate["tokens"],
        "tokens_per_s_per_gpu": rate["tokens"] and rate["tokens"] / world_size,
        "real_tokens_per_s": rate["real"],
        "real_tokens_per_s_per_gpu": rate["real"] and rate["real"] / world_size,
        "labelled_tokens_per_s": rate["labelled"],
        "samples_per_s": rate["samples"],
        "padding_share": 1 - rate["real"] / rate["tokens"] if rate["real"] and rate["tokens"] else None,
    }
    return counted | {
        "steady_s": seconds,
        "steps_per_s": len(window) / seconds,
        "step_time_s": state.median_s,
        "step_time_low_s": state.interval.low if state.interval else None,
        "step_time_high_s": state.interval.high if state.interval else None,
        "step_time_p5_s": state.p5_s,
        "step_time_p95_s": state.p95_s,
        "data_wait_share": _wait_share(window),
        "spikes": len(state.spikes),
        "spike_share": state.spike_share,
        "discarded_steps": state.discarded_steps,
        "steady_steps": len(window),
        "steady_found_by": state.found_by,
    }


def _total(window: Sequence[Step], name: str) -> int | None:
    """Return the sum of one count, or None if a step could not be counted or the sum is 0."""
    counts = [getattr(step, name) for step in window]
    return None if None in counts else sum(counts) or None


def _rate(window: Sequence[Step], name: str, seconds: float) -> float | None:
    total = _total(window, name)
    return None if total is None else total / seconds


def _wait_share(window: Sequence[Step]) -> float | None:
    """Return the waits between steps as a share of the time, or None if the program did not report the waits."""
    waits = [step.wait_s for step in window if step.wait_s is not None]
    return sum(waits) / sum(step.seconds for step in window) if len(waits) == len(window) else None


def _warm_up(series: Sequence[Step], state: steady_state.Steady, first: Worker) -> Cells:
    """Return the times before the steady state. With torch.compile, the time above that of as many steady steps is compilation."""
    head = [step.seconds for step in series[: state.discarded_steps]]
    above = sum(head) - len(head) * state.median_s
    compiled = (first.get("settings") or {}).get("torch_compile")
    return {"first_step_s": series[0].seconds, "warmup_s": sum(head), "compile_s": above if compiled and head else None}


def _work(series: Sequence[Step], first: Worker, numbers: Cells) -> Cells:
    """Return FLOPs per token of the model as it was built, and their share of the device's peak: in all, and in each pass."""
    speed: Number | None = numbers["tokens_per_s_per_gpu"]
    settings = first.get("settings") or {}
    counted = [step for step in series if step.tokens is not None]
    tokens, squares = _total(counted, "tokens"), _total(counted, "squares")
    if not settings.get("architecture") or tokens is None or squares is None or speed is None:
        return {}
    per_token, per_step = squares / tokens, speed / numbers["steps_per_s"]
    passes = {name: numbers.get(f"{name}_time_s") for name in flops.PASSES}
    try:
        work = flops.achieved(settings, squares_per_token=per_token, tokens_per_s_per_gpu=speed)
        return work | flops.of_passes(settings, squares_per_token=per_token, tokens_per_step=per_step, seconds=passes)
    except (TypeError, ValueError, AttributeError, OverflowError):  # a model's config may have any value there
        return {}


def _rank_rows(
    workers: Sequence[Worker], series: _Series, state: steady_state.Steady | Caveat, shared: int
) -> Iterator[Mapping[str, Any]]:
    cut = state.discarded_steps if isinstance(state, steady_state.Steady) else len(series.together)
    seconds = shared * sum(step.seconds for step in series.together[cut:])
    for worker in workers:
        rank = int(worker.get("rank") or 0)
        peak, tokens = worker.get("peak") or {}, worker.get("tokens") or {}
        cells = {
            "rank": rank,
            "host": worker.get("host"),
            "gpu": (worker.get("gpu") or {}).get("uuid"),
            "steps": tokens.get("steps"),
            "tokens_processed": tokens.get("processed"),
            "real_tokens": tokens.get("real"),
            "labelled_tokens": tokens.get("labelled"),
            "samples_processed": tokens.get("samples"),
            "peak_allocated_bytes": peak.get("allocated_bytes"),
            "peak_reserved_bytes": peak.get("reserved_bytes"),
            "host_rss_bytes": peak.get("rss_bytes"),
            **rank_files.stage_cells(worker),
            **_rank_speed(series.ranks.get(rank, ())[cut:], seconds),
            **(parts.of_rank(series.ranks.get(rank, ())[cut:]) if "undivided" in worker else {}),
        }
        yield {name: value for name, value in cells.items() if value is not None}


def _rank_speed(window: Sequence[Step], seconds: float) -> Cells:
    """Return a rank's part of the speed. `seconds` is the common time × the ranks per batch, so the parts add up to the speed."""
    if not seconds or not sum(step.seconds for step in window):
        return {}
    computed = [step.compute_s for step in window if step.compute_s is not None]
    return {
        "tokens_per_s": _rate(window, "tokens", seconds),
        "real_tokens_per_s": _rate(window, "real", seconds),
        "compute_time_s": sorted(computed)[len(window) // 2] if len(computed) == len(window) else None,
        "data_wait_share": _wait_share(window),
    }


@lru_cache(maxsize=8)
def _steady_part(run_dir: Path) -> tuple[Step, ...] | None:
    """Return the common steady steps of all ranks. The result is cached, because each monitor of a run asks for it."""
    workers = rank_files.worker_files(run_dir)
    if not workers or workers[0].get("rank") != 0:
        return None
    first, shared = workers[0], rank_files.ranks_per_batch(workers[0])
    reporters = _reporters(first, int(first.get("world_size") or 1))
    series = _series(run_dir, reporters, shared, rank_files.last_step(first))
    if isinstance(series, Caveat):
        return None
    state = _state(series, first)
    return series.together[state.discarded_steps :] if isinstance(state, steady_state.Steady) else None


def steady_window(run_dir: Path) -> tuple[float, float] | None:
    """Return start and end of a run's steady state in seconds since the epoch; None without a steady state or without its times."""
    part = _steady_part(run_dir) or ()
    ends = [step.ended_at for step in part if step.ended_at is not None]
    return (ends[0] - part[0].seconds, ends[-1]) if ends and len(ends) == len(part) else None


def tokens_in(run_dir: Path, window: tuple[float, float]) -> int | None:
    """Return all ranks' tokens, without padding, in steps that ended inside a window (seconds since the epoch)."""
    part = _steady_part(run_dir)
    if part is None:
        return None
    inside = [step for step in part if step.ended_at is not None and window[0] < step.ended_at <= window[1]]
    return _total(inside, "real")
