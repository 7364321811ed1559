"""Reads the steps of a run's ranks from `steps-rank<R>.jsonl`, and combines them into common steps.

`throughput` computes speeds from these steps. `parts` says where their time went. `recompilations` finds steps in which
torch.compile compiled again. `printed` makes the lines of a step file from the output of a program that prints its steps.

A file may end in half a line, since a run can be killed at any moment: incomplete steps are skipped. Lines without a duration
(losses, and steps of older versions) are skipped too. The training process may write anything: only regular files are read, each up
to MAX_BYTES.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.records import RunFolder

_TIMES = ("t", "compute_s", "wait_s")
COUNTS = ("tokens", "real", "labelled", "samples", "squares")
# Enough for two million steps of about 250 bytes.
MAX_BYTES = 512 * 2**20
# The latest time that is accepted: the year 3058, in seconds since the epoch. A larger float is too coarse for a step's length.
LATEST = 2.0**35

LONGEST_LINE = 64 * 2**10
# A count of a step must be smaller than this. A count beyond `FAR` is read as `FAR`, because it may be too large for a float.
LARGEST_COUNT, FAR = 2**53, 2**63


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One optimizer step, of one rank or of all ranks: its end (seconds since the epoch), its duration, its counts.

    `seconds` is the time from the previous step's end to this step's end: first `wait_s` (data, logging, evaluation, saving),
    then `compute_s`. `tokens` includes padding; `real` does not; `labelled` counts tokens that have a loss. `squares` is the
    sum of length² over sequences. A count is None if the step could not be counted, and a time is None if the program did not
    report the time. `after` names evaluations and saves since the previous step. `compiled` is the number of graphs that
    torch.compile compiled in this step, if that was expected. If it was not expected, `recompiled` is this number. `new_width`
    means that a graph was compiled for a batch of a width that no earlier batch had. `parts` are the seconds of those parts of
    the step that are known (`workers/instrument/phases.py`); common steps of several ranks have none.
    """

    number: int
    ended_at: float | None
    seconds: float
    compute_s: float | None
    wait_s: float | None
    tokens: int | None
    real: int | None
    labelled: int | None
    samples: int | None
    squares: int | None
    after: tuple[str, ...] = ()
    compiled: int = 0
    recompiled: int = 0
    new_width: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)


def read(run_dir: Path) -> dict[int, tuple[Step, ...]]:
    """Return each rank's steps in order; an empty dict if nothing was written."""
    return {rank: tuple(of_file(path)) for rank, path in RunFolder(run_dir).all_steps().items()}


def together(ranks: Mapping[int, Sequence[Step]], *, ranks_per_batch: int = 1) -> tuple[Step, ...]:
    """Return the steps that all ranks have, as common steps. A common step starts and ends when the last rank starts and ends it.

    The times of one rank would mislead. If a rank ends the warm-up before the others, its next step includes the wait for them,
    which distorts the speed of a short run. Counts are sums over batches: of neighbouring ranks that get the same batch
    (`ranks_per_batch` of them), the first rank counts. A single rank keeps its own times. Ranks of one host share a clock. A
    host's clock that is ahead is not corrected. If the clock is far ahead, this host's ranks seem to be the last in every step.
    """
    by_number = [{step.number: step for step in ranks[rank]} for rank in sorted(ranks)]
    if len(by_number) <= 1:
        return tuple(step for steps in by_number for step in steps.values())
    shared = sorted(set.intersection(*map(set, by_number)))
    joint = (_together([steps[number] for steps in by_number], ranks_per_batch) for number in shared)
    return tuple(step for step in joint if step is not None)


def _together(parts: Sequence[Step], ranks_per_batch: int) -> Step | None:
    """Return the common step, or None if a rank does not report when its step ended."""
    ends = [step.ended_at for step in parts if step.ended_at is not None]
    if len(ends) < len(parts):
        return None
    end = max(ends)
    start = max(at - step.seconds for at, step in zip(ends, parts, strict=True))
    computed = [step.compute_s for step in parts if step.compute_s is not None]
    began = max(at - own for at, own in zip(ends, computed, strict=True)) if len(computed) == len(parts) else None
    counts = {name: [getattr(step, name) for step in parts[::ranks_per_batch]] for name in COUNTS}
    sums: dict[str, Any] = {name: None if None in values else sum(values) for name, values in counts.items()}
    return Step(
        number=parts[0].number,
        ended_at=end,
        seconds=end - start,
        compute_s=None if began is None else end - max(began, start),
        wait_s=None if began is None else max(0.0, began - start),
        after=tuple(dict.fromkeys(word for step in parts for word in step.after)),
        compiled=max(step.compiled for step in parts),
        recompiled=max(step.recompiled for step in parts),
        new_width=any(step.new_width for step in parts),
        **sums,
    )


def of_file(path: Path) -> Iterator[Step]:
    """Yield the steps of one rank's file. A file that cannot be read has no steps."""
    try:
        for line in reading.read_lines(path, limit=MAX_BYTES, longest=LONGEST_LINE):
            step = parse(line)
            if step is not None:
                yield step
    except (OSError, reading.Unreadable):
        return


def parse(line: bytes) -> Step | None:
    """Return the step of a line of a step file, or None."""
    try:
        return _step(json.loads(line))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _step(line: Mapping[str, Any]) -> Step | None:
    if "s" not in line or not 0 <= line["s"] < LATEST:
        return None
    if any(
        isinstance(line.get(name), str | bool) for name in ("step", "s", *_TIMES, *COUNTS)
    ):  # int() and float() read texts, too
        return None
    counts: dict[str, Any] = {
        name: None if line.get(name) is None else max(-FAR, min(int(line[name]), FAR)) for name in COUNTS
    }
    times = {name: None if line.get(name) is None else float(line[name]) for name in _TIMES}
    parts = _parts(line.get("parts"))
    step = Step(
        number=int(line["step"]),
        ended_at=times["t"],
        seconds=float(line["s"]),
        compute_s=times["compute_s"],
        wait_s=times["wait_s"],
        after=tuple(str(word) for word in line.get("after") or ()),
        compiled=int(line.get("compiled") or 0),
        recompiled=int(line.get("recompiled") or 0),
        new_width=line.get("new_width") is True,
        parts=parts,
        **counts,
    )
    sound = step.ended_at is None or 0 <= step.ended_at < LATEST
    sound = sound and all(math.isfinite(part) for part in (step.compute_s, step.wait_s) if part is not None)
    return step if sound else None


def _parts(value: object) -> Mapping[str, float]:
    """Return the parts of a step. Return {} if they are not numbers of seconds."""
    if not isinstance(value, dict) or not all(
        type(one) in (int, float) and 0 <= one < LATEST for one in value.values()
    ):
        return {}
    return {str(name): float(seconds) for name, seconds in value.items()}
