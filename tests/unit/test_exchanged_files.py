"""A program may put a pipe in place of any file of its run: opening it must not wait for the other end, which never comes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from factories.results import experiment

from orchestrator.files import content, reading, writing
from orchestrator.machine import process_identity, stacks
from orchestrator.plan.identity.sources import changed
from orchestrator.records import CustomCommand, RunFolder
from orchestrator.run import run_one
from orchestrator.run.data_preparation import damage
from orchestrator.trainers.external.custom import Custom

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "e-1" / "runs" / "r1-t1" / "record.json"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    return path


@pytest.fixture
def handled() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    yield
    signal.signal(signal.SIGUSR2, before)


def test_the_processes_of_a_run_are_noted_anew(pipe: Path) -> None:
    process_identity.note(pipe, marker="0" * 32, group=None, pids=[os.getpid()])
    assert process_identity.noted(pipe).living == {os.getpid()}


def test_no_stacks_are_read_from_a_log_that_is_a_pipe(pipe: Path, handled: None) -> None:
    assert stacks.by_signal(os.getpid(), pipe) is None
    assert stacks.by_signal(os.getpid(), pipe.with_name("missing")) is None


def test_a_record_and_an_experiment_that_are_pipes_are_refused(pipe: Path) -> None:
    with pytest.raises(reading.Unreadable):
        run_one.run_one(pipe.parent)
    os.mkfifo(RunFolder(pipe.parent).experiment)
    with pytest.raises(reading.Unreadable):
        Custom().metrics(pipe.parent)


def test_a_source_that_became_a_pipe_has_changed(pipe: Path) -> None:
    with pytest.raises(reading.Unreadable):
        content.digest(pipe)
    custom = CustomCommand(command=(pipe.name,), folder=str(pipe.parent))
    assert changed(experiment(custom=custom, sources={pipe.name: "0" * 12})) == (pipe.name,)


def test_prepared_data_that_became_a_pipe_is_damaged(pipe: Path) -> None:
    (pipe.parent / "manifest.json").write_text('{"files": {"record.json": {"bytes": 0}}}')
    assert damage(pipe.parent) == f"there is no {pipe}"


def test_an_output_that_is_a_pipe_is_refused_with_its_name(pipe: Path) -> None:
    with pytest.raises(OSError, match="record"):
        writing.to_append(pipe)
