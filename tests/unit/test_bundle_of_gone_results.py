"""A bundle that lacks results says so, and results that go away while it is written are an error: it would look complete."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from factories.results import ended, experiment, stored

from orchestrator.errors import ResultsError
from orchestrator.report.bundle import bundle, progress, summary
from orchestrator.results.store import Store

FIRST, SECOND = experiment(), experiment("b")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stored(tmp_path / "results", *((one, [ended(one, 1)]) for one in (FIRST, SECOND)))


def test_a_folder_whose_experiments_are_gone_makes_no_bundle(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / "experiments")
    (root / "experiments").mkdir()
    with pytest.raises(ResultsError, match="lists 2 experiments, and none of them is there"):
        bundle(root, output=tmp_path / "b.tar.gz")
    assert not list(tmp_path.glob("*.tar.gz*"))


def test_a_missing_experiment_is_left_out_with_a_warning(root: Path, tmp_path: Path) -> None:
    shutil.rmtree(root / "experiments" / SECOND.id)
    done = bundle(root, output=tmp_path / "b.tar.gz")
    (warning,) = done.warnings
    assert warning.endswith(f"{SECOND.id}: the folder of this experiment is missing")
    assert f"left out: 1 file(s) or folder(s), such as experiments/{SECOND.id}" in [*summary(done)]


def test_an_experiment_whose_file_is_missing_is_packed_as_it_is(root: Path, tmp_path: Path) -> None:
    (root / "experiments" / SECOND.id / "experiment.json").unlink()
    done = bundle(root, output=tmp_path / "b.tar.gz")
    packed = [entry["path"] for entry in done.manifest["files"]]
    assert f"experiments/{SECOND.id}/runs/r1-t1/record.json" in packed
    assert not done.warnings and not done.manifest["left_out"]


GONE: dict[str, Callable[[Path], object]] = {
    "the folder": lambda root: root.rename(root.with_name("elsewhere")),
    "all experiments": lambda root: shutil.rmtree(root / "experiments"),
    "an experiment": lambda root: shutil.rmtree(root / "experiments" / SECOND.id),
    "a run": lambda root: shutil.rmtree(root / "experiments" / SECOND.id / "runs" / "r1-t1"),
}


@pytest.mark.parametrize("what", GONE)
@pytest.mark.parametrize("stage", ["looking for names", "packing"])
def test_results_that_go_away_meanwhile_make_no_bundle(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, stage: str
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    gone: list[str] = []

    def say(sentence: str) -> None:
        if sentence.startswith(stage) and not gone:
            gone.append(sentence)
            GONE[what](root)

    with pytest.raises(ResultsError, match="went away while the bundle was written"):
        bundle(root, output=tmp_path / "b.tar.gz", say=say)
    assert gone and not list(tmp_path.glob("*.tar.gz*"))


def test_other_files_may_go_away_meanwhile(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign that runs makes and removes files such as an empty log."""
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    log = root / "experiments" / SECOND.id / "runs" / "r1-t1" / "run-one.log"
    log.touch()
    done = bundle(root, output=tmp_path / "b.tar.gz", say=lambda _: log.unlink(missing_ok=True))
    assert [entry["path"] for entry in done.manifest["left_out"]] == [str(log.relative_to(root))]
    assert Store(root).ids() and not done.warnings
