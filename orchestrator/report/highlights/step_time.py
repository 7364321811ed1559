"""Sentences about what limits a step: the data loader, the host, small or uneven batches, or the waits of ranks for each other.

A share is reported only if its 95 % interval over the runs is beyond the limit. A single run has to be beyond the limit by the
share ONE_RUN_EFFECT. One sentence names the experiments in doubt, and what would limit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import mean_of_logs
from orchestrator.measure.metrics import ONE_RUN_EFFECT, show
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import listed
from orchestrator.report.highlights.wording import percent
from orchestrator.results.table.baseline import ok_runs
from orchestrator.results.table.doubts import kinds

# The data loader, the host and the waits for other ranks are named if their share of a step is larger.
LOADER, HOST, WAITS = 0.1, 0.5, 0.1
# A GPU is little busy if kernels run for less than this share of the time.
LITTLE_BUSY = 0.5
# A step has few tokens if each GPU has fewer than this, and uneven tokens if their spread is more than this.
FEW_TOKENS, UNEVEN = 4096, 0.2
# The largest number of sentences about one limit.
MOST = 4

_DATA, _WAIT, _HOST, _BUSY = "data_time_s", "exposed_comm_time_s", "host_bound_share", "gpu_utilization"
_NAMES = (_DATA, _WAIT, _HOST, _BUSY, "steps_per_s")
_Runs = Mapping[str, Sequence[float]]


class _Share(NamedTuple):
    """A share of the time: its mean over runs, and the ends of its interval. A single run has no interval."""

    mean: float
    low: float | None
    high: float | None

    def is_above(self, limit: float) -> bool:
        return self.mean >= limit * (1 + ONE_RUN_EFFECT) if self.low is None else self.low > limit

    def is_below(self, limit: float) -> bool:
        return self.mean <= limit / (1 + ONE_RUN_EFFECT) if self.high is None else self.high < limit

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return percent(self.mean)
        low, high = f"{100 * self.low:.0f}", f"{100 * min(1.0, self.high):.0f}"
        return percent(self.mean) + ("" if low == high else f" ({low} to {high})")


_Found = Sequence[tuple[_Share, int]]
_Words = Callable[[Known, _Share, int], str]


def step_time(known: Known) -> Iterator[Highlight]:
    """Yield sentences about the experiments that something else than the GPU's work limits, the largest share first.

    A last sentence names those in doubt.
    """
    runs = ok_runs(known.table, _NAMES)
    rows = range(len(runs))
    loader = [(share, row) for row in rows if (share := _per_step(runs[row], _DATA)) and share.is_above(LOADER)]
    told = {row for _, row in loader}
    host = [(share, row) for row in rows if row not in told and (share := _host(known, runs[row], row))]
    waits = [(share, row) for row in rows if (share := _per_step(runs[row], _WAIT)) and share.is_above(WAITS)]
    ways: Sequence[tuple[str, _Found, _Words]] = (
        ("the data loader", loader, _loader),
        ("the host", host, lambda known, share, row: _host_bound(known, runs[row], row)),
        ("communication", waits, _waits),
    )
    for limit, found, words in ways:
        certain = [(share, row) for share, row in found if not known.in_doubt(row)]
        yield from _sentences(known, certain, words, f"limited by {limit}")
    yield from _withheld(known, {limit: [row for _, row in found] for limit, found, _ in ways})


def _withheld(known: Known, limits: Mapping[str, Sequence[int]]) -> Iterator[Highlight]:
    """Yield a sentence about limits whose numbers are in doubt, with the reason for the doubt."""
    names: dict[int, list[str]] = {}
    for limit, rows in limits.items():
        for row in filter(known.in_doubt, rows):
            names.setdefault(row, []).append(limit)
    if names:
        which = listed([f"{known.names.whole(row)}: {' and '.join(found)}" for row, found in names.items()])
        text = (
            f"it is not claimed what limits the steps of {counted(len(names), 'experiment')}, because the numbers are in doubt "
            f"({kinds(known.doubts, *names)}); by these numbers, it would be: {which}"
        )
        yield known.sentence(HighlightKind.NOTE, text, [*names])


def _share(values: Sequence[float]) -> _Share | None:
    if not values:
        return None
    summary = mean_of_logs(values)
    if summary.interval is None:
        return _Share(summary.mean, None, None)
    return _Share(summary.mean, summary.interval.low, summary.interval.high)


def _per_step(runs: _Runs, name: str) -> _Share | None:
    """Return a time per step as a share of the step; None if a run does not have the time."""
    times, rates = runs.get(name, ()), runs.get("steps_per_s", ())
    return (
        _share([time_s * rate for time_s, rate in zip(times, rates, strict=True)]) if len(times) == len(rates) else None
    )


def _host(known: Known, runs: _Runs, row: int) -> _Share | None:
    """Return the share that shows that the host or small batches limit a row: the host's share, or else the GPU's idle time."""
    host, busy = (_share(runs.get(name, ())) for name in (_HOST, _BUSY))
    if host and host.is_above(HOST):
        return host
    is_small = _few(known, row) or _uneven(known, row)
    return busy._replace(mean=1 - busy.mean) if busy and busy.is_below(LITTLE_BUSY) and is_small else None


def _few(known: Known, row: int) -> bool:
    tokens = known.numbers("step_tokens_per_gpu", row)
    return tokens is not None and tokens < FEW_TOKENS


def _uneven(known: Known, row: int) -> bool:
    return (known.numbers("step_tokens_spread", row) or 0.0) > UNEVEN


def _sentences(known: Known, found: _Found, words: _Words, rest: str) -> Iterator[Highlight]:
    """Yield a sentence for each of the first experiments, and a sentence that counts the others."""
    order = sorted(found, key=lambda entry: -entry[0].mean)
    for share, row in order[:MOST]:
        text = f"{known.names.whole(row)}: {words(known, share, row)}"
        yield known.sentence(HighlightKind.GAIN, text, [row])
    if others := [row for _, row in order[MOST:]]:
        yield known.sentence(HighlightKind.GAIN, f"{counted(len(others), 'more experiment')} {rest}", others)


def _loader(known: Known, share: _Share, row: int) -> str:
    device, factor = "process" if known.names.is_cpu(row) else "GPU", 1 / (1 - min(share.mean, 0.99))
    return (
        f"the data loader is the limit: {share} of a step; without the wait, the {device} would do {factor:.2f}×; try a larger "
        "dataloader_num_workers"
    )


def _host_bound(known: Known, runs: _Runs, row: int) -> str:
    host, busy = (_share(runs.get(name, ())) for name in (_HOST, _BUSY))
    parts = [f"the GPU is busy {busy} of the time"] if busy else []
    parts += [f"the host sets the pace in {host} of a step"] if host and host.is_above(HOST) else []
    tokens, spread = (known.numbers(name, row) or 0.0 for name in ("step_tokens_per_gpu", "step_tokens_spread"))
    few, uneven = _few(known, row), _uneven(known, row)
    if not few and not uneven:
        return f"host-bound: {', and '.join(parts)}; try torch.compile or a larger batch"
    size = f"a step has {show('step_tokens_per_gpu', round(tokens))} tokens per GPU"
    differ = f", which differ by {percent(spread)} between steps" if uneven else ""
    return f"host-bound: {', and '.join(parts)}; {size}{differ}; try packed rows or a larger batch"


def _waits(known: Known, share: _Share, row: int) -> str:
    device = "process" if known.names.is_cpu(row) else "GPU"
    return f"each {device} waits for the others in {share} of a step; try a larger batch or more gradient accumulation"
