"""A comparison of two real trainings, profiled by `rerun --profile`: the operator that makes one of them slow is named first.

The new side has the example's script with one more line in each step. The two campaigns and the rerun are made once for all tests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign, tunebench
from factories.cases import text

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from test_page import data_of

from orchestrator.results.store import Store

pytest.importorskip("torch")
SCRIPT = (ROOT / "examples" / "own_script" / "train.py").read_text(encoding="utf-8")
PLANTED = """\
    step = trainer.training_step
    trainer.training_step = lambda *words: (torch.rand(500_000).sort(), step(*words))[1]
    trainer.train()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two campaigns and their comparison. Each has its own script."""
    folder = tmp_path_factory.mktemp("compared")
    slow = SCRIPT.replace("    trainer.train()\n", PLANTED)
    assert slow != SCRIPT
    for name, script in (("base", SCRIPT), ("new", slow)):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(script)
        (folder / name / "scenarios.yaml").write_text(text("scenarios/profiled-rerun.yaml"))
        done = tunebench(folder, "run", f"{name}/scenarios.yaml", "--results", f"{name}-results")
        assert done.code == 0, done.said
    done = tunebench(folder, "compare", "base-results", "new-results", "--output", "comparison.json")
    assert done.code == 1, done.said
    return folder


@pytest.fixture(scope="module")
def rerun(folder: Path) -> Campaign:
    done = tunebench(folder, "rerun", "--from", "comparison.json", "--profile")
    assert done.code == 0, done.said
    return done


def test_each_side_runs_once_with_the_profiler_beside_the_compared_folders(rerun: Campaign) -> None:
    assert "2 runs with the monitor torch_profiler:" in rerun.out
    for name in ("base", "new"):
        compared, profiled = (Store.resume(rerun.folder / f"{name}-results{end}") for end in ("", ".profiles"))
        (one,), (other,) = compared.contents().experiments, profiled.contents().experiments
        assert len(one.runs) == len(other.runs) == 1 and one.experiment.id != other.experiment.id
        assert (*one.experiment.monitors, "torch_profiler") == other.experiment.monitors
        assert one.experiment.measure == other.experiment.measure
        assert one.experiment.arguments == other.experiment.arguments
        assert one.experiment.sources == other.experiment.sources
        assert not list(compared.root.rglob("profile"))


def test_the_planted_operator_is_named_and_so_is_the_command_that_shows_the_whole(rerun: Campaign) -> None:
    sentence, command = rerun.out.splitlines()[-2:]
    assert sentence.startswith("own · ")
    assert "The largest change: aten::sort takes " in sentence and sentence.endswith(" more, since it is new.")
    name, *words = command.split()
    assert name == "tunebench"
    shown = tunebench(rerun.folder, *words)
    assert shown.code == 0, shown.said
    lines = shown.out.splitlines()
    (head,) = (at for at, line in enumerate(lines) if line.startswith("operation "))
    assert lines[head + 1].startswith("aten::sort ") and lines[-1] in sentence


def test_the_page_shows_the_operators_with_the_changed_rows(rerun: Campaign) -> None:
    done = tunebench(rerun.folder, "compare", "base-results", "new-results", "--output", "comparison.html")
    assert done.code == 1, done.said
    table = data_of((rerun.folder / "comparison.html").read_text())["table"]
    (only,) = table["profiles"]
    assert only["rows"][0][0] == "aten::sort" and only["sentence"] in rerun.out
    column = next(column for column in table["columns"] if column["name"] == "verdict")
    verdicts = [column["words"][at] for at in column["at"]]
    assert {verdict for verdict, detail in zip(verdicts, table["details"], strict=True) if "profile" in detail} == {
        "▼ regressed"
    }
    for one in only["traces"]:
        assert Path(one["href"].removeprefix("file://")).is_file()


def test_the_same_command_makes_no_further_run(rerun: Campaign) -> None:
    again = tunebench(rerun.folder, "rerun", "--from", "comparison.json", "--profile")
    assert again.code == 0
    assert "there is nothing to run." in again.out
    assert again.out.splitlines()[1:] == rerun.out.splitlines()[-2:]


def test_profiled_runs_are_not_a_campaign_of_a_history(rerun: Campaign) -> None:
    done = tunebench(rerun.folder, "history", ".", "--json")
    assert done.code == 0, done.said
    assert sorted(one["name"] for one in json.loads(done.out)["campaigns"]) == ["base-results", "new-results"]
    assert "new-results.profiles: it is left out, because profiled runs are never compared" in done.err


def test_a_removed_trace_is_made_anew_by_a_second_run(rerun: Campaign) -> None:
    (trace,) = (rerun.folder / "base-results.profiles").rglob("rank0.json.gz")
    trace.unlink()
    kept = {path: path.read_bytes() for path in trace.parents[1].rglob("*") if path.is_file()}
    again = tunebench(rerun.folder, "rerun", "--from", "comparison.json", "--profile")
    assert again.code == 0, again.said
    assert "1 run with the monitor torch_profiler:" in again.out
    assert "The largest change: aten::sort takes " in again.out.splitlines()[-2]
    assert [path.parts[-3] for path in (rerun.folder / "base-results.profiles").rglob("rank0.json.gz")] == ["r2-t1"]
    assert kept == {path: path.read_bytes() for path in trace.parents[1].rglob("*") if path.is_file()}
