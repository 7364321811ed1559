"""Steps in the output of a program that prints them: lines of JSON among whatever else it prints."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measure.steps import LONGEST_LINE, parse
from orchestrator.measure.steps.printed import StepLines

KEYS = st.sampled_from(["step", "seconds", "time", "tokens", "samples", "loss"])
NUMBERS = st.one_of(st.integers(-3, 60), st.floats(), st.integers(), st.text(max_size=3), st.booleans(), st.none())
ROWS = st.dictionaries(KEYS, NUMBERS, max_size=5).map(json.dumps)
NOISE = st.text(max_size=12)
AFTER_TEXT = st.tuples(st.sampled_from(["\r", "[rank0]: ", "  "]), ROWS).map("".join)
OUTPUTS = st.lists(st.one_of(ROWS, ROWS, NOISE, AFTER_TEXT), max_size=25).map(lambda lines: "\n".join(lines).encode())


def read(*lines: dict[str, Any] | str, **options: Any) -> tuple[list[dict[str, Any]], StepLines]:
    """Return the steps of these lines of output, and their reader."""
    reader = StepLines(**options)
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    return reader.feed(text.encode()), reader


def seconds_of(*lines: dict[str, Any] | str) -> list[float]:
    return [step["s"] for step in read(*lines)[0]]


def test_a_line_with_seconds_is_a_step() -> None:
    found, reader = read("loading", {"step": 3, "seconds": 0.21, "tokens": 4096, "samples": 4, "loss": 2.5}, "done")
    assert found == [{"step": 3, "t": None, "s": 0.21, "tokens": 4096, "samples": 4}]
    assert (reader.note, reader.problem) == (None, None)


def test_with_time_a_step_lasts_from_the_line_before() -> None:
    lines = [{"step": number, "time": 100.0 + number / 4, "tokens": 8.0} for number in range(4)]
    found, _ = read(*lines, moment=lambda reading: reading + 1000)
    assert [(step["step"], step["s"], step["t"], step["tokens"]) for step in found] == [
        (1, 0.25, 1100.25, 8),
        (2, 0.25, 1100.5, 8),
        (3, 0.25, 1100.75, 8),
    ], "the first line only starts the clock"


def test_seconds_say_how_long_and_time_says_when() -> None:
    found, _ = read({"step": 1, "seconds": 0.5, "time": 7.0}, moment=lambda reading: reading * 2)
    assert (found[0]["s"], found[0]["t"]) == (0.5, 14.0)


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ('{"step": 2, "seconds": 0.2', "it is not JSON"),
        ("{'step': 2, 'seconds': 0.2}", "it is not JSON"),
        ('{"step": 2, "seconds": -0.2}', "seconds is not a number of seconds"),
        ('{"step": 2, "seconds": NaN}', "seconds is not a number of seconds"),
        ('{"step": 2, "seconds": "0.2"}', "seconds is not a number of seconds"),
        ('{"step": 2, "time": 1e300}', "time is not a number of seconds"),
        ('{"step": 2.5, "seconds": 0.2}', "step is not a whole number from 0"),
        ('{"step": true, "seconds": 0.2}', "step is not a whole number from 0"),
        ('{"step": 2, "seconds": 0.2, "tokens": -1}', "tokens is not a whole number from 0"),
        ('{"step": 1, "seconds": 0.2}', "step 1 came again"),
        ('{"step": 0, "seconds": 0.2}', "step 0 came after step 1"),
    ],
)
def test_a_wrong_line_is_left_out_and_said(line: str, mistake: str) -> None:
    found, reader = read({"step": 1, "seconds": 0.1}, line, {"step": 3, "seconds": 0.3})
    assert [step["s"] for step in found] == [0.1, 0.3]
    assert reader.note == f"1 of the step lines in stdout cannot be used; the first: {line} ({mistake})"


def test_a_clock_that_goes_back_loses_one_step() -> None:
    assert seconds_of(*({"step": at, "time": time} for at, time in enumerate([5.0, 6.0, 4.0, 4.5]))) == [1.0, 0.5]


def test_lines_with_a_loss_are_no_steps() -> None:
    found, reader = read({"step": 1, "loss": 2.0}, {"step": 1, "seconds": 0.1}, {"steps": 1}, {"loss": 1})
    assert (len(found), reader.note) == (1, None)


def test_steps_without_any_time_are_said() -> None:
    found, reader = read({"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.9})
    assert found == []
    assert reader.note == "2 lines in stdout have a step, but neither seconds nor time; print seconds or time, too"


def test_every_tenth_step_is_no_step_by_its_time() -> None:
    found, reader = read(*({"step": number, "time": float(number)} for number in (10, 20, 30)))
    assert found == []
    assert reader.note == "the lines of 18 steps are missing in stdout; print a line for every step"


def test_numbers_that_begin_again_leave_no_speed() -> None:
    epoch = [{"step": number, "seconds": 0.1} for number in range(3)]
    found, reader = read(*epoch, *epoch, {"step": 9, "seconds": 0.1})
    assert len(found) == 3
    assert (
        reader.problem == "step 1 came after step 2; number the steps of the whole run, and print them in one process"
    )


def test_a_summary_with_the_last_step_does_no_harm() -> None:
    found, reader = read({"step": 1, "seconds": 0.1}, {"step": 2, "seconds": 0.1}, {"step": 2, "seconds": 35.0})
    assert (len(found), reader.problem) == (2, None)


def test_a_progress_bar_before_a_line_is_no_part_of_it() -> None:
    assert seconds_of('\r 10%|#    \r{"step": 1, "seconds": 0.1}') == [0.1]


def test_a_line_longer_than_any_step_is_left_out() -> None:
    reader = StepLines()
    for _ in range(3):
        assert reader.feed(b'{"step": 1, ' + b" " * LONGEST_LINE) == []
    assert reader.feed(b'"seconds": 1}\n{"step": 2, "seconds": 1}\n')[0]["step"] == 2


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ('[rank0]: {"step": 2, "seconds": 0.2}', "other text comes before the JSON"),
        (' 40%|##-- | 2/5 [00:00<00:00]{"step": 2, "seconds": 0.2}', "other text comes before the JSON"),
        ('INFO:train:{"step": 2, "time": 7.5} on gpu', "other text comes before the JSON"),
        ('{"step": 2, "losses": "' + "x" * LONGEST_LINE + '", "seconds": 0.2}', "it is longer than 64 KiB"),
        ('{"step": 2, "time": 7.5}', "the line of the previous step has no time"),
    ],
)
def test_a_step_that_cannot_be_read_is_said(line: str, mistake: str) -> None:
    found, reader = read({"step": 1, "seconds": 0.1}, line, {"step": 3, "seconds": 0.3})
    assert [step["s"] for step in found] == [0.1, 0.3]
    note = str(reader.note)
    assert note.startswith(f"1 of the step lines in stdout cannot be used; the first: {line.strip()[:20]}"), note
    assert note.endswith(f"({mistake})") and len(note) < 250, note


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': 2.1, 'grad_norm': 0.3, 'learning_rate': 2e-05, 'epoch': 0.5}",
        "{'train_runtime': 12.5, 'train_samples_per_second': 80.0, 'train_steps_per_second': 4.0, 'epoch': 1.0}",
        "{'step': 1, 'loss': 2.1}",
        '{"event": "evaluation", "step": 1, "loss": 2.1}',
        'INFO {"event": "evaluation", "step": 1, "loss": 2.1}',
        '2026-01-01 {"step": 2, "time": "12:30:01", "message": "saved"}',
        'INFO {"step": 1, "seconds": 0.1}',  # a logger repeats the step that is read
        '{"config": {"scheduler": {"step": 10, "time": 3}}}',
        'set "step" to {the number}',
    ],
)
def test_an_ordinary_log_is_no_mistake(line: str) -> None:
    found, reader = read({"step": 1, "seconds": 0.1}, line, {"step": 2, "seconds": 0.2})
    assert ([step["step"] for step in found], reader.note, reader.problem) == ([1, 2], None, None)


def test_a_long_progress_bar_before_a_line_does_not_hide_it() -> None:
    bar, line = b"\r 10%|#   " * LONGEST_LINE, b'\r{"step": 1, "seconds": 0.1}\r\n'
    for pieces in ([bar + line], [bar, line], [bar, line[:-1], line[-1:]]):
        reader = StepLines()
        assert [step["s"] for piece in pieces for step in reader.feed(piece)] == [0.1]


def test_no_line_is_slow() -> None:
    """Text that a search would have to try from many places."""
    reader, began = StepLines(), time.monotonic()
    for unit in (b'{"step"', b'x{"step":', b"[{", b'"step" ', b"\r \r", b" "):
        reader.feed(b"x" + unit * (LONGEST_LINE // len(unit) - 1) + b"\n" + unit * 2**20 + b"\n")
    assert time.monotonic() - began < 5


@given(OUTPUTS, st.lists(st.integers(0, 400), max_size=6))
def test_any_output_in_any_pieces_gives_the_same_sound_steps(output: bytes, cuts: list[int]) -> None:
    whole, pieces = StepLines(), StepLines()
    found = whole.feed(output + b"\n")
    edges = sorted({0, len(output) + 1, *(min(cut, len(output)) for cut in cuts)})
    parts = [pieces.feed((output + b"\n")[begin:end]) for begin, end in pairwise(edges)]
    assert [step for part in parts for step in part] == found
    assert (pieces.note, pieces.problem) == (whole.note, whole.problem)
    assert all(before["step"] < after["step"] for before, after in pairwise(found))
    for step in found:
        read_back = parse(json.dumps(step).encode())
        assert read_back is not None and read_back.seconds == step["s"] >= 0
        assert read_back.number == step["step"] and read_back.tokens == step["tokens"]


def test_a_line_with_which_the_trainers_reader_fails_is_left_out() -> None:
    def reader_of_a_trainer(line: bytes) -> bytes | None:
        number = int(line)
        return None if number == 2 else json.dumps({"step": number, "seconds": 0.1}).encode()

    found, reader = read("1", "x", "2", "3", translate=reader_of_a_trainer)
    assert [step["step"] for step in found] == [1, 3]
    assert reader.note and reader.note.startswith(
        "1 of the step lines in stdout cannot be used; the first: x (its reader raised"
    )
