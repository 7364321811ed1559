"""Fixtures that several files of integration tests share."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from campaigns import Call
from trainings import prepare

from orchestrator import cli, tree


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So few rows that an epoch ends in the middle of a step."""
    return prepare(tmp_path_factory.mktemp("prepared"), 43)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command in this process: for many calls of which each would take longer to start than to do."""

    def called(folder: Path, *words: str, **env: str) -> tuple[int, str, str]:
        for name, value in {"TUNEBENCH_CACHE": str(folder / "cache"), "COLUMNS": "200", **env}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["tunebench", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return called


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """What this process ends and does not heed INT or TERM is killed after so many seconds for each, not three."""
    patience_s = 0.3
    longest = {signal.SIGINT: patience_s, signal.SIGTERM: patience_s}
    monkeypatch.setattr(tree, "PATIENCE_S", tuple((one, longest.get(one, was)) for one, was in tree.PATIENCE_S))
    return patience_s
