"""What the meter writes, with a clock whose moments come when the test says so."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import compilations  # noqa: E402
import counting  # noqa: E402
import ending  # noqa: E402
import meter as meters  # noqa: E402
import phases  # noqa: E402
from clocks import CudaClock, HostClock, waited_s  # noqa: E402

from orchestrator.run import watchdog  # noqa: E402

Meter = functools.partial(meters.Meter, counting=counting, compilations=compilations, divide=phases.Phases)


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
    meter = Meter(str(tmp_path), rank=0, clock=clock)
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


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the meter reads; sleeping moves it."""
    moment = [100.0]

    def sleep(seconds: float) -> None:
        moment[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: moment[0], time=time.time, sleep=sleep)
    monkeypatch.setattr(meters, "time", clock)
    return moment


def harvests(meter: meters.Meter, steps: int, now: list[float], *, step_s: float) -> list[int]:
    """The steps within which there was one, as the Trainer goes: it ends a step behind its last micro-batch."""
    found = []
    for number in range(1, steps + 1):
        now[0] += step_s
        meter.begin()
        meter.count(batch())
        if meter.due():
            found.append(number)
            meter.harvest()
        meter.end(number)
    return found


def test_short_steps_are_written_ten_at_once(tmp_path: Path, now: list[float]) -> None:
    """The first ones singly, so that a run that soon hangs has begun; the tenth before each look at an early end."""
    clock = LateClock()
    clock.reached = 1e9
    meter = Meter(str(tmp_path), rank=0, clock=clock)
    assert harvests(meter, 45, now, step_s=0.01) == [*range(1, 12), 20, 30, 40]
    assert ending.LOOK_EVERY % meters.EVERY_STEPS == 0 and watchdog.WRITTEN_LATE_S == meters.EVERY_S
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, 40))
    meter.close()
    assert [line["step"] for line in lines(tmp_path) if "s" in line] == list(range(1, 46))


def test_no_step_waits_for_longer_than_a_second_and_its_own_time(tmp_path: Path, now: list[float]) -> None:
    meter = Meter(str(tmp_path), rank=0, clock=LateClock())
    assert harvests(meter, 24, now, step_s=0.4) == [*range(1, 12), 14, 17, 20, 23]
    other = Meter(str(tmp_path), rank=1, clock=LateClock())
    assert harvests(other, 15, now, step_s=1.5) == list(range(1, 16))


def test_the_end_of_a_block_is_written_in_the_next_step(tmp_path: Path, now: list[float]) -> None:
    """Or as soon as the GPU has passed it: the sampler sleeps through the blocks that are off."""
    clock = LateClock()
    meter = Meter(str(tmp_path), rank=0, clock=clock, toggle=7)
    ends, written = [0.0, 0.0], []
    for number in range(1, 41):
        meter.begin()
        meter.count(batch())
        clock.reached = ends[-2]  # the GPU is a step behind
        if meter.due():
            meter.harvest()
        meter.end(number)
        ends.append(clock.last)
        written.append(len(lines(tmp_path, "blocks-rank0.jsonl")))
    assert [written.index(blocks) + 1 for blocks in (1, 2, 3, 4, 5)] == [9, 16, 23, 30, 37]


def test_what_happened_between_steps_is_said_of_the_next(tmp_path: Path) -> None:
    clock = LateClock()
    clock.reached = 1e9
    meter = Meter(str(tmp_path), rank=0, clock=clock)
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
    meter = Meter(str(tmp_path), rank=0, clock=clock)
    step(meter, 1)
    step(meter, 2)
    clock.reached = 30
    meter.close()
    assert [line["step"] for line in lines(tmp_path)] == [1]
    assert meter.tokens()["processed"] == 6
    assert meter.tokens()["steps"] == 1


def test_trouble_ends_the_measuring_and_not_the_training(tmp_path: Path) -> None:
    clock = LateClock()
    meter = Meter(str(tmp_path), rank=0, clock=clock)
    step(meter, 1)
    clock.fails = True
    assert meter.harvest() is None
    step(meter, 2)
    meter.close()
    assert meter.trouble == "harvest: RuntimeError: an illegal memory access was encountered"
    assert meter.tokens()["processed"] is None


def test_a_folder_that_cannot_be_written_is_trouble_too(tmp_path: Path) -> None:
    meter = Meter(str(tmp_path / "none"), rank=0, clock=LateClock())
    step(meter, 1)
    assert meter.harvest() is None
    assert "FileNotFoundError" in (meter.trouble or "")


def test_every_other_block_of_steps_is_left_alone(tmp_path: Path) -> None:
    clock = LateClock()
    clock.reached = 1e9
    meter = Meter(str(tmp_path), rank=0, clock=clock, toggle=3)
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
    meter = Meter(str(tmp_path), rank=0, clock=clock)
    step(meter, 1)
    meter.count(counting.kept(inputs))
    meter.end(2)
    meter.harvest()
    line = lines(tmp_path)[-1]
    assert (line["tokens"], line["squares"], line["micro"]) == (None, None, 1)
    assert meter.tokens() == {**dict.fromkeys(counting.COUNTS[1:]), "processed": None, "steps": 2, "micro": 2}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux says how long a thread waited")
def test_the_time_that_a_busy_core_costs_is_the_kernel_s() -> None:
    """Two programs share one core with this one for half a second."""
    cores = os.sched_getaffinity(0)
    others = []
    try:
        os.sched_setaffinity(0, {min(cores)})
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        time.sleep(0.3)
        before, until = waited_s(), time.monotonic() + 0.5
        while time.monotonic() < until:
            pass
        after = waited_s()
    finally:
        os.sched_setaffinity(0, cores)
        for other in others:
            other.kill()
            other.wait()
    assert before is not None and after is not None
    assert 0.1 < after - before < 0.7


@pytest.mark.parametrize("newer", [True, False])
def test_a_mark_is_an_event_also_of_a_torch_without_the_newer_class(
    newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for torch: there is no GPU here, and the class came with 2.4."""
    made: list[tuple[str, tuple[object, ...], dict[str, object]]] = []

    def events(name: str) -> Any:
        def event(*args: object, **how: object) -> SimpleNamespace:
            made.append((name, args, how))
            return SimpleNamespace(record=lambda: None)

        return event

    old = SimpleNamespace(cuda=SimpleNamespace(Event=events("torch.cuda.Event")))
    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(Event=events("torch.Event"), cuda=old.cuda) if newer else old
    )
    CudaClock().mark()
    expected = ("torch.Event", ("cuda",)) if newer else ("torch.cuda.Event", ())
    assert made == [(*expected, {"enable_timing": True})]
