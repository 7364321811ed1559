"""Makes the lines of a step file from the output of a program that prints its steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.files.printable_text import one_line
from orchestrator.measure.steps import LARGEST_COUNT, LATEST, LONGEST_LINE


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
        steps = (self._read(self._translated(_last_state(line).rstrip())) for line in lines)
        return [step for step in steps if step is not None]

    def _translated(self, line: bytes) -> bytes:
        try:
            translated = self.translate(line) or b""
            if not isinstance(translated, bytes):
                raise TypeError(f"its answer is of the type {type(translated).__name__}, and not bytes")
            return translated
        except Exception as error:  # of the trainer, which may be another package's
            self._leave_out(line, f"its reader raised {type(error).__name__}: {error}")
            return b""

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
            self._leave_out(line, str(error))
            return None

    def _leave_out(self, line: bytes, why: str) -> None:
        self.wrong += 1
        self._mistake = self._mistake or f"{one_line(line.decode(errors='replace'), longest=80)} ({why})"

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
