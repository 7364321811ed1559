"""Fixtures that several files of integration tests share."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns import ROOT, Call
from trainings import prepare

from orchestrator.machine import process_tree

TABLES = ("benchmarks.csv", "raw_summary.csv", "ranks.csv", "devices.csv")


@pytest.fixture(scope="session", autouse=True)
def columns_are_described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """docs/metrics.md lists every column of every table that the runs of these tests wrote."""
    yield
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    folders = [
        suite.parent for suite in tmp_path_factory.getbasetemp().rglob("suite.json")
    ]  # not the tables of unit tests
    tables = [folder / name for folder in folders for name in TABLES if (folder / name).is_file()]
    unlisted = {column: str(file) for file in tables for column in own_columns(file) if f"`{column}`" not in page}
    assert unlisted == {}, "columns that docs/metrics.md does not list; describe them in orchestrator/measure/metrics/"


def own_columns(table: Path) -> set[str]:
    """The columns of a table, without those of arguments, of a custom trainer's numbers and of the machine."""
    stored = [json.loads(file.read_text()) for file in table.parent.glob("experiments/*/experiment.json")]
    named = {name for one in stored for name in (*one["arguments"], *((one["custom"] or {}).get("metrics", ())))}
    with table.open(newline="", encoding="utf-8") as file:
        columns = {*next(csv.reader(file), [])}
    return {name for name in columns - named if not name.startswith(("provenance_", "argument_"))}


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
