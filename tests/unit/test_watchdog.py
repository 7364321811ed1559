"""Whether a run gets on: startup, stalls, the end of training, and the heartbeat."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.records import Limit
from orchestrator.run import watchdog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The moment, to be set."""
    moment = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    return moment


def looked(watch: watchdog.Watch, clock: list[float], *, until: float) -> tuple[float, Limit] | None:
    """Looks as often as the watch wants to be asked, as `process.run` does."""
    while True:
        pause = watch.next_look_s()
        if pause is None or clock[0] + pause > until:
            clock[0] = until
            return None
        clock[0] += max(pause, 1e-6)
        limit = watch.look()
        if limit is not None:
            return clock[0] - 1000.0, limit


def write(folder: Path, lines: str, rank: int = 0) -> None:
    with (folder / f"steps-rank{rank}.jsonl").open("a") as file:
        file.write(lines)


def test_a_first_step_that_does_not_come(tmp_path: Path, clock: list[float]) -> None:
    watch = watchdog.Watch(lambda: watchdog.by_steps(tmp_path), startup_timeout_s=60.0, stall_timeout_s=5.0)
    assert looked(watch, clock, until=1059.0) is None
    assert looked(watch, clock, until=1100.0) == (pytest.approx(60.0, abs=0.01), Limit.STARTUP)


def test_no_limits_no_looks(tmp_path: Path, clock: list[float]) -> None:
    assert watchdog.Watch(lambda: watchdog.by_steps(tmp_path)).next_look_s() is None


def test_a_stall_is_noticed_at_most_a_fourth_of_its_limit_late(tmp_path: Path, clock: list[float]) -> None:
    watch = watchdog.Watch(lambda: watchdog.by_steps(tmp_path), stall_timeout_s=40.0)
    for _ in range(5):
        write(tmp_path, '{"step": 1, "s": 0.1}\n')
        assert looked(watch, clock, until=clock[0] + 30.0) is None
    found = looked(watch, clock, until=clock[0] + 100.0)
    assert found is not None and found[1] is Limit.STALL
    assert 160.0 <= found[0] <= 170.0, "the last step was 120 s after the start"


def test_what_is_written_late_stands_still_later(tmp_path: Path, clock: list[float]) -> None:
    watch = watchdog.Watch(lambda: watchdog.by_steps(tmp_path), stall_timeout_s=1.0, late_s=watchdog.WRITTEN_LATE_S)
    for _ in range(5):
        write(tmp_path, '{"step": 1, "s": 0.3}\n')
        assert looked(watch, clock, until=clock[0] + 1.3) is None
    found = looked(watch, clock, until=clock[0] + 10.0)
    assert found is not None and 5.2 + 2.0 <= found[0] <= 5.2 + 2.6


def test_one_rank_that_still_writes_is_progress(tmp_path: Path, clock: list[float]) -> None:
    watch = watchdog.Watch(lambda: watchdog.by_steps(tmp_path), stall_timeout_s=10.0)
    write(tmp_path, "{}\n")
    for _ in range(10):
        write(tmp_path, "{}\n", rank=1)
        assert looked(watch, clock, until=clock[0] + 8.0) is None


def test_behind_the_last_step_nobody_waits_for_steps(tmp_path: Path, clock: list[float]) -> None:
    watch = watchdog.Watch(lambda: watchdog.by_steps(tmp_path), stall_timeout_s=10.0, startup_timeout_s=10.0)
    write(tmp_path, '{"step": 1, "s": 0.1}\n{"ended": 12.5}\n')
    assert looked(watch, clock, until=clock[0] + 1000.0) is None


def test_a_program_without_steps_is_judged_by_what_it_prints(tmp_path: Path, clock: list[float]) -> None:
    logs = (tmp_path / "stdout.log", tmp_path / "stderr.log")
    watch = watchdog.Watch(lambda: watchdog.by_output(*logs), stall_timeout_s=10.0, startup_timeout_s=20.0)
    assert looked(watch, clock, until=1015.0) is None
    logs[1].write_text("loading\n")
    found = looked(watch, clock, until=1100.0)
    assert found is not None and found[1] is Limit.STALL


def test_the_heart_beats_on_time_and_costs_no_looks(clock: list[float]) -> None:
    beats: list[float] = []
    watch = watchdog.Watch(
        lambda: pytest.fail("there is nothing to look for"),
        chores=[watchdog.Chore(lambda: beats.append(clock[0]), pause_s=lambda _: 30.0)],
    )
    assert looked(watch, clock, until=1100.0) is None
    assert beats == pytest.approx([1030.0, 1060.0, 1090.0], abs=0.01)


class EnoughAt:
    """Steps that are enough at a moment, looked at every two seconds."""

    def __init__(self, moment: float) -> None:
        self.moment, self.looked = moment, 1000.0

    def next_look_at(self) -> float:
        return self.looked + 2.0

    def enough(self) -> bool:
        self.looked = time.monotonic()
        return self.looked >= self.moment


def test_enough_steps_end_a_run_without_any_limit(tmp_path: Path, clock: list[float]) -> None:
    watch = watchdog.Watch(lambda: watchdog.by_steps(tmp_path), ending=EnoughAt(1007.0))
    assert looked(watch, clock, until=1100.0) == (pytest.approx(8.0, abs=0.01), Limit.MEASURED)


def test_a_run_may_stall_before_it_has_made_enough_steps(tmp_path: Path, clock: list[float]) -> None:
    write(tmp_path, "{}\n")
    watch = watchdog.Watch(lambda: watchdog.by_steps(tmp_path), ending=EnoughAt(2000.0), stall_timeout_s=4.0)
    found = looked(watch, clock, until=1100.0)
    assert found is not None and found[1] is Limit.STALL
