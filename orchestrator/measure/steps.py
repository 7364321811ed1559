"""Reads the steps of a run's ranks from `steps-rank<R>.jsonl`, and combines them into common steps. `throughput` makes speeds.

A file may end in half a line, since a run can be killed at any moment: incomplete steps are skipped. Lines without a duration
(losses, and steps of older versions) are skipped too. The training process may write anything: only regular files are read, each up
to MAX_BYTES.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.records import RunFolder

COUNTS = ("tokens", "real", "labelled", "samples", "squares")
# Two million steps of about 250 bytes.
MAX_BYTES = 512 * 2**20
# The latest time that is accepted: the year 3058, in seconds since the epoch. A larger float could not resolve a step's length.
LATEST = 2.0**35

_LONGEST_LINE = 64 * 2**10


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step, of one rank or of all ranks: its end (seconds since the epoch), its duration, its counts.

    `seconds` is the time from the previous step's end to this step's end: first `wait_s` (data, logging, evaluation, saving), then
    `compute_s`. `tokens` includes padding; `real` does not; `labelled` counts tokens that have a loss. `squares` is the sum of
    length² over sequences. A count is None if the step could not be counted. `after` names what the Trainer did since the
    previous step.
    """

    number: int
    ended_at: float
    seconds: float
    compute_s: float
    wait_s: float
    tokens: int | None
    real: int | None
    labelled: int | None
    samples: int | None
    squares: int | None
    after: tuple[str, ...] = ()


def read(run_dir: Path) -> dict[int, tuple[Step, ...]]:
    """Return each rank's steps in order; empty if nothing was written."""
    return {rank: tuple(_steps(path)) for rank, path in RunFolder(run_dir).all_steps().items()}


def together(ranks: Mapping[int, Sequence[Step]]) -> tuple[Step, ...]:
    """Return the steps that all ranks have, as common steps. Each begins and ends when the last rank begins and ends it.

    The times of one rank would mislead: a rank that ends the warm-up first waits for the others in its next step, which distorts
    the speed of a short run. Counts are sums. A single rank keeps its own times. Ranks of one host share a clock. Between hosts, a
    clock that is ahead is not corrected. If it is far ahead, the ranks of its host seem to be the last in every step.
    """
    by_number = [{step.number: step for step in own} for own in ranks.values()]
    if len(by_number) <= 1:
        return tuple(step for steps in by_number for step in steps.values())
    shared = sorted(set.intersection(*map(set, by_number)))
    return tuple(_together([steps[number] for steps in by_number]) for number in shared)


def _together(parts: Sequence[Step]) -> Step:
    end = max(step.ended_at for step in parts)
    start = max(step.ended_at - step.seconds for step in parts)
    began = max(step.ended_at - step.compute_s for step in parts)
    counts = {name: [getattr(step, name) for step in parts] for name in COUNTS}
    return Step(
        number=parts[0].number,
        ended_at=end,
        seconds=end - start,
        compute_s=end - max(began, start),
        wait_s=max(0.0, began - start),
        after=tuple(dict.fromkeys(word for step in parts for word in step.after)),
        **{name: None if None in values else sum(values) for name, values in counts.items()},
    )


def _steps(path: Path) -> Iterator[Step]:
    try:
        for line in reading.read_lines(path, limit=MAX_BYTES, longest=_LONGEST_LINE):
            try:
                step = _step(json.loads(line))
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue
            if step is not None:
                yield step
    except (OSError, reading.Unreadable):  # a file that cannot be read has no steps
        return


def _step(line: Mapping[str, Any]) -> Step | None:
    if "s" not in line or not 0 <= line["s"] < LATEST:
        return None
    counts = {name: None if line.get(name) is None else int(line[name]) for name in COUNTS}
    step = Step(
        number=int(line["step"]),
        ended_at=float(line["t"]),
        seconds=float(line["s"]),
        compute_s=float(line.get("compute_s", line["s"])),
        wait_s=float(line.get("wait_s", 0.0)),
        after=tuple(str(word) for word in line.get("after") or ()),
        **counts,
    )
    sound = 0 <= step.ended_at < LATEST and all(math.isfinite(part) for part in (step.compute_s, step.wait_s))
    return step if sound else None
