"""Reads the steps of a run's ranks from `steps-rank<R>.jsonl`, and combines them into common steps.

`throughput` computes speeds from these steps. `recompilations` finds steps in which torch.compile compiled again. `StepLines` makes
the lines of a step file from the output of a program that prints its steps.

A file may end in half a line, since a run can be killed at any moment: incomplete steps are skipped. Lines without a duration
(losses, and steps of older versions) are skipped too. The training process may write anything: only regular files are read, each up
to MAX_BYTES.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.files.printable_text import one_line
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
    means that a graph was compiled for a batch of a width that no earlier batch had.
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


def read(run_dir: Path) -> dict[int, tuple[Step, ...]]:
    """Return each rank's steps in order; an empty dict if nothing was written."""
    return {rank: tuple(_steps(path)) for rank, path in RunFolder(run_dir).all_steps().items()}


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
        **{name: None if None in values else sum(values) for name, values in counts.items()},
    )


def _steps(path: Path) -> Iterator[Step]:
    try:
        for line in reading.read_lines(path, limit=MAX_BYTES, longest=LONGEST_LINE):
            step = parse(line)
            if step is not None:
                yield step
    except (OSError, reading.Unreadable):  # a file that cannot be read has no steps
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
    counts = {name: None if line.get(name) is None else max(-FAR, min(int(line[name]), FAR)) for name in COUNTS}
    times = {name: None if line.get(name) is None else float(line[name]) for name in _TIMES}
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
        **counts,
    )
    sound = step.ended_at is None or 0 <= step.ended_at < LATEST
    sound = sound and all(math.isfinite(part) for part in (step.compute_s, step.wait_s) if part is not None)
    return step if sound else None


class StepLines:
    """Finds the steps in a program's output, which arrives in pieces. Each line that is a JSON object with `step` is a step.

    A line has `seconds` or `time`. `time` is a reading of any clock in seconds; the step began at the previous line's reading.
    `moment` turns a reading into seconds since the epoch, or into None if the clock is unknown. Lines with a mistake are left
    out, and `note` counts them. A step number that does not exceed the previous number is a mistake. After a second such
    mistake, no further line is read, and `problem` says so. If other text comes before the JSON, the line is a mistake only if
    the JSON is a step that was not read yet: other programs' logs may mention a step. `translate` turns each line of a program
    with a form of its own into this form.
    """

    def __init__(
        self,
        moment: Callable[[float], float | None] = lambda reading: None,
        translate: Callable[[bytes], bytes] = lambda line: line,
    ) -> None:
        self.moment, self.translate = moment, translate
        self.problem: str | None = None
        self.found = self.missing = self.wrong = self.untimed = 0
        self._mistake, self._backward = "", False
        self._rest = b""
        self._number: int | None = None
        self._reading: float | None = None

    def feed(self, piece: bytes) -> list[dict[str, Any]]:
        """Return the lines of the step file for all steps that this piece of output completes."""
        *lines, rest = (self._rest + piece).split(b"\n")
        # Of a line that is too long, only a part is kept. This part is still too long, so the line is left out.
        self._rest = _last_state(rest)[: LONGEST_LINE + 1]
        steps = (self._read(self.translate(_last_state(line).rstrip())) for line in lines)
        return [step for step in steps if step is not None]

    @property
    def note(self) -> str | None:
        """A sentence about the lines that were left out, or None."""
        if self.wrong:
            return f"{self.wrong} of the step lines in stdout cannot be used; the first: {self._mistake}"
        if self.missing:
            return f"the lines of {self.missing} steps are missing in stdout; print a line for every step"
        if self.untimed and not self.found:
            return (
                f"{self.untimed} lines in stdout have a step, but neither seconds nor time; print seconds or time, too"
            )
        return None

    def _read(self, line: bytes) -> dict[str, Any] | None:
        if self.problem is not None or not _names_step(line[:LONGEST_LINE]):
            return None
        try:
            if not line.startswith(b"{"):
                self._refuse_after_text(line)
                return None
            if len(line) > LONGEST_LINE:
                raise ValueError(f"it is longer than {LONGEST_LINE // 2**10} KiB")
            fields = _fields(line)
            if fields["step"] is None:
                return None
            if fields["seconds"] is None and fields["time"] is None:  # for example, a line with the loss
                self.untimed += 1
                return None
            return self._step(fields)
        except ValueError as error:
            self.wrong += 1
            self._mistake = self._mistake or f"{one_line(line.decode(errors='replace'), longest=80)} ({error})"
            return None

    def _refuse_after_text(self, line: bytes) -> None:
        """Raise a ValueError if other text and then a new step are in the line."""
        fields = _fields_after_text(line) if len(line) <= LONGEST_LINE else {}
        number = fields.get("step")
        timed = fields.get("seconds") is not None or fields.get("time") is not None
        if number is not None and timed and (self._number is None or number > self._number):
            raise ValueError("other text comes before the JSON")

    def _step(self, fields: Mapping[str, Any]) -> dict[str, Any] | None:
        number, reading = fields["step"], fields["time"]
        before, last = self._number, self._reading
        if before is not None and number <= before:
            came = f"step {number} came {'again' if number == before else f'after step {before}'}"
            if self._backward:
                self.problem = f"{came}; number the steps of the whole run, and print them in one process"
                return None
            self._backward = True
            raise ValueError(came)
        self._number, self._reading = number, reading
        self.found += 1
        self.missing += 0 if before is None else number - before - 1
        seconds = fields["seconds"]
        if seconds is None and before == number - 1:
            if last is None:
                raise ValueError("the line of the previous step has no time")
            seconds = round(reading - last, 9)
            if seconds < 0:
                raise ValueError("its time is earlier than the time of the previous line")
        if seconds is None:
            return None
        own = {"step": number, "t": None if reading is None else self.moment(reading), "s": seconds}
        return {**own, "tokens": fields["tokens"], "samples": fields["samples"]}


def _last_state(line: bytes) -> bytes:
    """Return the part of a line after the last carriage return that has text after it. A terminal shows only this part."""
    return line[line.rfind(b"\r", 0, len(line.rstrip())) + 1 :].lstrip()


def _names_step(line: bytes) -> bool:
    """Return whether a line has the key of a step. A dict that Python printed must also have the key of a time."""
    if b'"step"' in line:
        return True
    return line.startswith(b"{") and b"'step'" in line and (b"'seconds'" in line or b"'time'" in line)


def _fields_after_text(line: bytes) -> dict[str, Any]:
    """Return the fields of the first JSON object in a line. Return {} if the object is not a sound step."""
    text = line.decode(errors="replace")
    try:
        content, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
        return _checked(content)
    except (ValueError, RecursionError):
        return {}


def _fields(line: bytes) -> dict[str, Any]:
    """Return the fields of a step line; a missing field is None. For a mistake, raise a ValueError that names it."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    return _checked(content)


def _checked(content: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: content.get(name) for name in ("step", "seconds", "time", "tokens", "samples")}
    for name in ("step", "tokens", "samples"):
        value = fields[name]
        if isinstance(value, float) and value.is_integer():  # sums of tensors may be floats
            value = fields[name] = int(value)
        if value is not None and not (type(value) is int and 0 <= value < LARGEST_COUNT):
            raise ValueError(f"{name} is not a whole number from 0")
    for name, least in (("seconds", 0), ("time", -LATEST)):
        value = fields[name]
        if value is not None and not (type(value) in (int, float) and least <= value < LATEST):
            raise ValueError(f"{name} is not a number of seconds")
    return fields
