"""What a command may do to the folder of its run, and what somebody does to a record: the campaign goes on, and tells the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from campaigns import Campaign, tunebench
from factories.results import of_command, record_of

from orchestrator.campaign.loop import run_benchmark
from orchestrator.executors import FakeExecutor
from orchestrator.records import RunRecord
from orchestrator.results.store import Store

GOOD = """print('{"train_runtime": 2.0}')"""


def scenario(code: str = GOOD, name: str = "a", **more: object) -> dict[str, object]:
    """Make a scenario whose trainer runs this code."""
    custom = {"command": ["{python}", "-c", "{code}", "{run_dir}"], "launcher": "none"}
    custom |= {"metrics": {"train_runtime": {}}, **more}
    return {"name": name, "trainer": "custom", "device": "cpu", "arguments": {"code": code}, "custom": custom}


def carried_out(folder: Path, *scenarios: dict[str, object], words: tuple[str, ...] = ()) -> Campaign:
    (folder / "s.yaml").write_text(json.dumps({"scenarios": scenarios}))
    return tunebench(folder, "run", "s.yaml", "--yes", *words)


def records(folder: Path, name: str = "a") -> list[RunRecord]:
    contents = Store.resume(folder / "results").contents()
    return [record for one in contents.experiments if one.experiment.scenario == name for record in one.records]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign of two experiments whose first has a record that cannot be read."""
    done = carried_out(tmp_path_factory.mktemp("damaged"), scenario(), scenario(name="b"))
    assert done.code == 0, done.err
    (done.run_dir("a-") / "record.json").write_text("{")
    return done


def test_a_record_that_cannot_be_read_is_no_success_and_is_tried_again_when_asked(damaged: Campaign) -> None:
    folder, record = damaged.folder, damaged.run_dir("a-") / "record.json"
    again = carried_out(folder, scenario(), scenario(name="b"))
    assert again.code == 1 and record.read_text() == "{"
    assert "1 run(s) have a record that cannot be read; add --retry-failed lost to repeat them" in again.err
    other = carried_out(folder, scenario(), scenario(name="b"), words=("--retry-failed", "oom_cuda"))
    assert other.code == 1 and record.read_text() == "{"
    looked = carried_out(folder, scenario(), scenario(name="b"), words=("--retry-failed", "lost", "--dry-run"))
    assert "of 2 runs 1 have ended there, and 1 would run" in looked.out
    tried = carried_out(folder, scenario(), scenario(name="b"), words=("--retry-failed", "lost"))
    assert tried.code == 0, tried.err
    lost, good = records(folder)
    (aside,) = record.parent.glob("record.json.2*")
    assert aside.read_text() == "{"
    assert (lost.status, lost.cause) == ("lost", f"its record could not be read and is now {aside.name}")
    assert (good.status, good.attempt, len(records(folder, "b"))) == ("ok", 2, 1)
    assert carried_out(folder, scenario(), scenario(name="b")).code == 0


def test_a_run_that_nobody_could_begin_is_no_success(tmp_path: Path) -> None:
    one, store = of_command("true"), Store.create(tmp_path / "results", {})
    place = store.run_dir(one.id, 1, 1)
    place.parent.mkdir(parents=True)
    place.write_text("a file in the place of the run's folder")
    summary = run_benchmark([one], store=store, executor=FakeExecutor(record_of))
    assert (summary.records, summary.missing, summary.exit_code) == ((), 1, 1)
