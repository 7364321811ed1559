"""A local database of MLflow that several exports write at once, or that was being made when its export was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from factories.results import ended, experiment, stored
from mlflow.tracking import MlflowClient

from orchestrator.report.export import export

ROOT = Path(__file__).resolve().parents[2]
RUNS = 6
CELL = experiment(repeats=RUNS)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    return stored(
        tmp_path / "campaign", (CELL, [ended(CELL, repeat, tokens_per_s=1.0) for repeat in range(1, RUNS + 1)])
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mlflow"


def started(campaign: Path, destination: Path | str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "orchestrator", "export", "--to", "mlflow", str(campaign), "--dest", str(destination)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        argv, cwd=campaign.parent, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def runs_in(folder: Path) -> int:
    address = f"sqlite:///{folder / 'mlflow.db'}"
    client = MlflowClient(tracking_uri=address, registry_uri=address)
    known = client.get_experiment_by_name("campaign")
    assert known is not None
    return len(client.search_runs([known.experiment_id]))


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def check_each_run_once(folder: Path, both: list[subprocess.Popen[str]]) -> None:
    """Check that both exports end well, and that one of them added every run."""
    texts = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    assert sorted(text.partition(":")[0] for text, _ in texts) == [
        f"0 new run(s), {RUNS} there already",
        f"{RUNS} new run(s), 0 there already",
    ]
    assert runs_in(folder) == RUNS
    assert names_in(folder) == ["mlflow.db", "mlruns"]


def test_two_exports_at_once_into_a_new_database_wait_for_each_other(campaign: Path, folder: Path) -> None:
    folder.mkdir()
    database = folder / "mlflow.db"
    with (folder / ".mlflow.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        both = [started(campaign, folder), started(campaign, f"sqlite:///{database}")]
        for process in both:
            assert process.stderr is not None
            assert process.stderr.readline() == f"waiting for another export, which writes into {database}\n"
        assert names_in(folder) == [".mlflow.db.lock", "mlruns"]
    check_each_run_once(folder, both)


def test_two_exports_at_once_into_an_existing_database_add_each_run_once(campaign: Path, folder: Path) -> None:
    other = stored(campaign.parent / "other", (CELL, [ended(CELL, 1)]))
    export(other, to="mlflow", destination=str(folder))
    check_each_run_once(folder, [started(campaign, folder) for _ in range(2)])


def is_half_made(folder: Path) -> bool:
    """Return whether MLflow is replacing a table. If it is killed then, it can never use the database again."""
    for database in (folder / "mlflow.db", folder / ".mlflow.db.new"):
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as tables:
            if tables.execute("select 1 from sqlite_master where name like '\\_alembic\\_tmp%' escape '\\'").fetchone():
                return True
    return False


def killed_in_the_middle(campaign: Path, folder: Path) -> subprocess.Popen[str]:
    """Return an export that was killed while MLflow replaced a table. On a busy machine, this short moment may pass unseen."""
    for _ in range(5):
        process = started(campaign, folder)
        while process.poll() is None and not is_half_made(folder):
            pass  # without a pause, because the moment is short
        process.kill()
        process.communicate()
        if process.returncode == -9:
            break
        shutil.rmtree(folder)
    return process


def test_a_database_whose_making_was_killed_is_made_anew(campaign: Path, folder: Path) -> None:
    killed = killed_in_the_middle(campaign, folder)
    assert killed.returncode == -9
    (folder / ".mlflow.db.new-journal").write_bytes(b"half a page")
    assert export(campaign, to="mlflow", destination=str(folder)).new == RUNS
    assert runs_in(folder) == RUNS
    assert names_in(folder) == ["mlflow.db", "mlruns"]
