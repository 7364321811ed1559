"""Fixtures that several files of integration tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from campaigns import Call
from trainings import prepare

from orchestrator.machine import process_tree


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So few rows that an epoch ends in the middle of a step."""
    return prepare(tmp_path_factory.mktemp("prepared"), 43)


@pytest.fixture
def call(in_process: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in this process, in a given folder: for many calls, each of which would take longer to start than to do."""

    def called(folder: Path, *words: str, **env: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        return in_process(*words, folder=folder, **env)

    return called


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """What this process ends and does not heed INT or TERM is killed after so many seconds for each, not three."""
    patience_s = 0.3
    longest = {signal.SIGINT: patience_s, signal.SIGTERM: patience_s}
    monkeypatch.setattr(
        process_tree, "PATIENCE_S", tuple((one, longest.get(one, was)) for one, was in process_tree.PATIENCE_S)
    )
    return patience_s
