"""What the meter writes, with a clock whose moments come when the test says so; and its counts of a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
import meter as meters  # noqa: E402
from clocks import HostClock  # noqa: E402


class LateClock(HostClock):
    """Marks are the numbers 10, 20, 30…, and the GPU has come as far as `reached`."""

    name = "late"

    def __init__(self) -> None:
        self.last, self.reached = 0.0, 0.0
        self.fails = False

    def mark(self) -> float:
        self.last += 10
        return self.last

    def ready(self, mark: float) -> bool:
        if self.fails:
            raise RuntimeError("an illegal memory access was encountered")
        return mark <= self.reached

    def anchor(self) -> tuple[float, float]:
        return self.mark(), 1000.0


def batch(rows: int = 2, width: int = 3) -> dict[str, Any]:
    ids = torch.ones((rows, width), dtype=torch.int64)
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}


def step(meter: meters.Meter, number: int, micro: int = 1) -> None:
    meter.begin()
    for _ in range(micro):
        meter.count(batch())
    meter.end(number)


def lines(folder: Path, name: str = "steps-rank0.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_steps_are_written_late_in_order_and_at_once_flushed(tmp_path: Path) -> None:
    clock = LateClock()
    meter = meters.Meter(str(tmp_path), rank=0, clock=clock)
    for number in (1, 2, 3):
        step(meter, number, micro=2)
        meter.loss(number, 0.5)
        assert meter.harvest() == []
    assert lines(tmp_path) == []
    clock.reached = 50  # the end of the second step; its begin was at 40, the first step's at 20 and 30
    assert meter.harvest() == [20, 20]
    assert [line["step"] for line in lines(tmp_path)] == [1, 1, 2, 2]
    first, loss, second, _ = lines(tmp_path)
    assert (first["t"], first["s"], first["wait_s"], first["compute_s"]) == (1020, 20, 10, 10)
    assert (second["t"], loss["loss"]) == (1040, 0.5)
    counts = {"tokens": 12, "real": 12, "labelled": 12, "samples": 4, "squares": 36, "micro": 2}
    assert {name: first[name] for name in counts} == counts
    assert meter.first_end == 1020


def test_what_happened_between_steps_is_said_of_the_next(tmp_path: Path) -> None:
    clock = LateClock()
    clock.reached = 1e9
    meter = meters.Meter(str(tmp_path), rank=0, clock=clock)
    step(meter, 1)
    for what in ("evaluate", "save", "evaluate"):
        meter.happened(what)
    step(meter, 2)
    step(meter, 3)
    meter.harvest()
    assert [line.get("after") for line in lines(tmp_path)] == [None, ["evaluate", "save"], None]


def test_a_gpu_that_hangs_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "LONGEST_WAIT_S", 0.05)
    clock = LateClock()
    meter = meters.Meter(str(tmp_path), rank=0, clock=clock)
    step(meter, 1)
    step(meter, 2)
    clock.reached = 30
    meter.close()
    assert [line["step"] for line in lines(tmp_path)] == [1]
    assert meter.tokens()["processed"] == 6
    assert meter.tokens()["steps"] == 1


def test_trouble_ends_the_measuring_and_not_the_training(tmp_path: Path) -> None:
    clock = LateClock()
    meter = meters.Meter(str(tmp_path), rank=0, clock=clock)
    step(meter, 1)
    clock.fails = True
    assert meter.harvest() is None
    step(meter, 2)
    meter.close()
    assert meter.trouble == "harvest: RuntimeError: an illegal memory access was encountered"
    assert meter.tokens()["processed"] is None


def test_a_folder_that_cannot_be_written_is_trouble_too(tmp_path: Path) -> None:
    meter = meters.Meter(str(tmp_path / "none"), rank=0, clock=LateClock())
    step(meter, 1)
    assert meter.harvest() is None
    assert "FileNotFoundError" in (meter.trouble or "")


def test_every_other_block_of_steps_is_left_alone(tmp_path: Path) -> None:
    clock = LateClock()
    clock.reached = 1e9
    meter = meters.Meter(str(tmp_path), rank=0, clock=clock, toggle=3)
    marks = []
    for number in range(1, 11):
        before = clock.last
        step(meter, number)
        marks.append((clock.last - before) / 10)
        meter.loss(number, 0.5)
        meter.harvest()
    meter.close()
    assert marks == [2, 2, 2, 0, 0, 1, 2, 2, 2, 0]
    assert [line["step"] for line in lines(tmp_path) if "s" in line] == [1, 2, 3, 7, 8, 9]
    blocks = lines(tmp_path, "blocks-rank0.jsonl")
    assert [(line["block"], line["on"], line["steps"], line["s"]) for line in blocks] == [
        (0, True, 3, 60),
        (1, False, 3, 10),
        (2, True, 3, 60),
    ]
    ends = {line["step"]: line["t"] for line in lines(tmp_path) if "s" in line}
    assert (ends[3], ends[7]) == (1060, 1090), "the time of blocks that are off goes on"
    assert meter.tokens()["steps"] == 6


@pytest.mark.parametrize("inputs", [{"pixel_values": torch.zeros(2, 3)}, [1, 2], {"input_ids": [1, 2]}])
def test_a_batch_without_tokens_is_unknown_and_not_zero(inputs: Any, tmp_path: Path) -> None:
    clock = LateClock()
    clock.reached = 1e9
    meter = meters.Meter(str(tmp_path), rank=0, clock=clock)
    step(meter, 1)
    meter.count(meters.held(inputs))
    meter.end(2)
    meter.harvest()
    line = lines(tmp_path)[-1]
    assert (line["tokens"], line["squares"], line["micro"]) == (None, None, 1)
    assert meter.tokens() == {**dict.fromkeys(meters.COUNTS[1:]), "processed": None, "steps": 2, "micro": 2}


Lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(Lengths, st.integers(0, 3))
def test_padded_rows_are_counted_with_and_without_padding(lengths: list[int], masked: int) -> None:
    width = max(lengths)
    mask = torch.tensor([[int(i < length) for i in range(width)] for length in lengths])
    labels = torch.where(mask == 1, 5, -100)
    labels[0, :masked] = -100
    values = meters.sizes({"input_ids": mask.clone(), "attention_mask": mask, "labels": labels})
    labelled = sum(lengths) - min(masked, lengths[0])
    tokens = len(lengths) * width
    assert [int(value) for value in values] == [tokens, sum(lengths), labelled, len(lengths), tokens * width]


@given(st.lists(Lengths, min_size=1, max_size=3))
def test_rows_of_several_samples_are_told_apart(rows: list[list[int]]) -> None:
    """As one long row, which is how padding-free batches come, and as several with samples of their own."""
    flat = [length for row in rows for length in row]
    positions = torch.tensor([[i for length in flat for i in range(length)]])
    values = meters.sizes({"input_ids": torch.ones_like(positions), "position_ids": positions})
    expected = [sum(flat), sum(flat), 0, len(flat), sum(length**2 for length in flat)]
    assert [int(value) for value in values] == expected


def test_numbers_that_are_not_of_the_tokens_shape_are_left_aside() -> None:
    ids = torch.ones((2, 3), dtype=torch.int64)
    mask, positions = torch.ones((2, 1, 3, 3)), torch.zeros((3, 2, 3))
    values = meters.sizes({"input_ids": ids, "attention_mask": mask, "position_ids": positions, "labels": ids})
    assert values is not None and [int(value) for value in values] == [6, 6, 6, 2, 18]


class OnGpu(torch.Tensor):  # type: ignore[misc]
    """A tensor that says that it is on a GPU."""

    is_cuda = True


class LateEvent:
    """An event that a GPU passes between the first look at it and the second."""

    looks = 0

    def record(self) -> None:
        self.looks = 0

    def query(self) -> bool:
        self.looks += 1
        return self.looks > 1


@given(st.sets(st.sampled_from(["input_ids", "attention_mask", "labels", "position_ids"]), min_size=1))
def test_numbers_that_come_from_a_gpu_fall_into_their_places(away: set[str]) -> None:
    positions = torch.tensor([[0, 1, 2, 0, 1, 0]])
    mask, labels = torch.tensor([[1, 1, 1, 1, 1, 0]]), torch.tensor([[-100, 5, 5, -100, 5, 5]])
    whole = {"input_ids": labels, "attention_mask": mask, "labels": labels, "position_ids": positions}
    inputs = {name: value.as_subclass(OnGpu) if name in away else value for name, value in whole.items()}
    counter = meters.Counter()
    counter.free = [(torch.empty(5, dtype=torch.int64), LateEvent())]
    counted = meters.Batch(meters.sizes(inputs), counter)
    assert counted.ready() is (away == {"input_ids"}), "of which the shape alone is needed"
    assert counted.ready()
    assert counted.read() == [6, 5, 4, 2, 9 + 4 + 1]
    assert len(counter.free) == 1, "the slot is given back"
