"""Signals that ask a campaign to stop: each arrives, and none interrupts the ending of the runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from factories.results import BASE

from orchestrator.campaign.loop import run_benchmark
from orchestrator.executors import LocalExecutor
from orchestrator.machine import process
from orchestrator.machine.stop_signals import held_back, interrupted_once
from orchestrator.records import Job, JobState, Status
from orchestrator.results.store import Store


class TwiceInterrupted:
    """An executor that gets a signal while a run goes on, and others before it can hold them back."""

    def __init__(self) -> None:
        self.ended = False

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        try:
            signal.raise_signal(signal.SIGTERM)
            yield jobs[0], JobState.LOST
        finally:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.raise_signal(number)
            self.ended = True


def test_signals_that_arrive_together_do_not_interrupt_the_ending_of_the_runs(tmp_path: Path) -> None:
    """At a logout, systemd sends TERM and HUP."""
    executor = TwiceInterrupted()
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        run_benchmark([BASE], store=Store.create(tmp_path / "r", {}), executor=executor)
    assert executor.ended


def test_an_error_that_a_library_makes_of_a_signal_is_known_as_an_interruption() -> None:
    def validated() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ValueError("no schema") from None

    with pytest.raises(ValueError, match="no schema"), interrupted_once() as stopped_by:
        assert not stopped_by
        validated()
    assert stopped_by == [signal.SIGTERM]


def test_a_signal_that_was_held_back_is_not_lost_after_an_error() -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_once(), held_back():
        signal.raise_signal(signal.SIGHUP)
        raise OSError("no such program")


def test_a_signal_while_a_program_starts_leaves_no_program_behind() -> None:
    for number in range(80):
        timer = threading.Timer(number / 20_000, signal.pthread_kill, (threading.get_ident(), signal.SIGTERM))
        with pytest.raises(KeyboardInterrupt), interrupted_once():
            timer.start()
            process.capture(["sleep", "30"], timeout_s=20)
    assert not [child for child in psutil.Process().children() if child.name() == "sleep"]


class InterruptedAtTheStart(LocalExecutor):
    """An executor that gets a signal when it has started a process, and has not noted it yet."""

    def _start(self, *words: Any, **options: Any) -> Any:
        self.started = super()._start(*words, **options)
        signal.raise_signal(signal.SIGTERM)
        return self.started


def test_a_run_that_was_just_started_is_not_forgotten(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    executor = InterruptedAtTheStart((sys.executable, "-c", "import time; time.sleep(30)"))
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        run_benchmark([BASE], store=store, executor=executor)
    assert executor.started.child.returncode is not None
    (run,) = store.runs(BASE.id)
    assert run.record is not None and run.record.status is Status.CANCELLED
