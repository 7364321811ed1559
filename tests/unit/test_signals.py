"""Signals that ask a campaign to stop: each arrives, and none interrupts the ending of the runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from factories.results import BASE

from orchestrator.campaign.loop import run_benchmark
from orchestrator.executors import LocalExecutor
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
    with pytest.raises(KeyboardInterrupt):
        run_benchmark([BASE], store=Store.create(tmp_path / "r", {}), executor=executor)
    assert executor.ended


class InterruptedAtTheStart(LocalExecutor):
    """An executor that gets a signal when it has started a process, and has not noted it yet."""

    def _start(self, *words: Any, **options: Any) -> Any:
        self.started = super()._start(*words, **options)
        signal.raise_signal(signal.SIGTERM)
        return self.started


def test_a_run_that_was_just_started_is_not_forgotten(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    executor = InterruptedAtTheStart((sys.executable, "-c", "import time; time.sleep(30)"))
    with pytest.raises(KeyboardInterrupt):
        run_benchmark([BASE], store=store, executor=executor)
    assert executor.started.child.returncode is not None
    (run,) = store.runs(BASE.id)
    assert run.record is not None and run.record.status is Status.CANCELLED
