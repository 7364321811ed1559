"""A user's script that is edited: between campaigns, between plan and run, and while a run goes on."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from campaigns import Call, Campaign, tunebench

from orchestrator.records import RunRecord, Status

SCENARIOS = """\
scenarios:
- name: own
  trainer: custom
  device: cpu
  matrix: {speed: [100, 200]}
  custom:
    command: ['{python}', '{scenario_dir}/train.py', '{speed}']
    launcher: none
    metrics: {train_runtime: {}, train_tokens_per_second: {}}
"""
TRAIN = """\
import json, sys
from model import factor
print(json.dumps({"train_runtime": 2.0, "train_tokens_per_second": factor * float(sys.argv[1])}))
"""
WORDS = ("run", "scenarios.yaml", "--yes", "--parallel", "2")


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    (folder / "train.py").write_text(TRAIN)
    (folder / "model.py").write_text("factor = 1\n")
    return folder


@dataclass(frozen=True, kw_only=True)
class Edited:
    """Two campaigns in one results folder with edited files between them; `monday` is a copy of the folder after the first.

    `undone` and `dry` are what dry runs said, before the edit and after it. `plan` is what `tunebench plan` said after it.
    """

    folder: Path
    first: dict[str, list[RunRecord]]
    undone: str
    plan: str
    dry: str
    second: Campaign


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Edited:
    folder = project(tmp_path_factory.mktemp("edited") / "project")
    first = tunebench(folder, *WORDS)
    assert first.code == 0 and "since the runs" not in first.err, first.said
    shutil.copytree(first.results, folder / "monday")
    records = first.records()
    undone = tunebench(folder, *WORDS, "--dry-run").out
    (folder / "model.py").write_text("from extra import factor\n")
    (folder / "extra.py").write_text("factor = 3\n")
    plan, dry = (tunebench(folder, *words).out for words in (("plan", "scenarios.yaml"), (*WORDS, "--dry-run")))
    return Edited(folder=folder, first=records, undone=undone, plan=plan, dry=dry, second=tunebench(folder, *WORDS))


def test_a_plan_names_each_changed_file_once(edited: Edited) -> None:
    date, anew = r"in results \(\d{1,2} \w{3} \d{4}\)", "2 experiments are new; the older runs stay"
    for said in (edited.plan, edited.dry, edited.second.err):
        text = " ".join(said.split())
        assert re.search(rf"note: model\.py changed since the runs of own {date}: {anew}", text)
        assert re.search(rf"note: extra\.py is new since the runs of own {date}: {anew}", text)
        assert text.count("since the runs of") == 2
    assert "and 2 would run" in edited.dry and "and 2 would run" in edited.plan
    assert "since the runs of" not in edited.undone and "2 have ended" in edited.undone


def test_a_plan_names_changed_files_of_the_folder_that_the_user_names(edited: Edited, call: Call) -> None:
    code, out, _ = call(edited.folder, "plan", "scenarios.yaml", "--results", "monday")
    assert code == 0 and re.search(r"model\.py changed since the runs of own in monday \(", out)
    assert "since the runs" not in call(edited.folder, "plan", "scenarios.yaml")[1], "these experiments have run"
    code, out, _ = call(edited.folder, "plan", "scenarios.yaml", "--results", "tuesday")
    assert code == 0 and "tuesday: there is no such folder yet, so all runs are new." in out


def test_an_edited_file_runs_anew_and_the_older_runs_stay(edited: Edited) -> None:
    assert edited.second.code == 0
    after = edited.second.records()
    assert len(edited.first) == 2 and len(after) == 4
    assert all(after[name] == records for name, records in edited.first.items())
    rows = {row["speed"]: float(row["train_tokens_per_second"]) for row in edited.second.rows()}
    assert rows == {"100": 300.0, "200": 600.0}


def test_compare_and_history_pair_old_with_new_and_name_the_file(edited: Edited, call: Call) -> None:
    folder = edited.folder
    code, out, _ = call(folder, "compare", "monday", "results", "--metrics", "train_tokens_per_second")
    assert code == 0 and "2 experiments on both sides" in out
    assert re.search(r"content of model\.py: sha256:\w{12} → sha256:\w{12}", out) and "train.py" not in out
    _, out, _ = call(folder, "history", "monday", "results", "--metrics", "train_tokens_per_second")
    assert "2 campaigns" in out


def test_show_lists_the_files(edited: Edited, call: Call) -> None:
    _, out, _ = call(edited.folder, "show", next(iter(edited.first)))
    assert re.search(r"^  file train\.py \(sha256 \w{12}…\)$", out, re.MULTILINE) and "  file model.py (sha256" in out


def test_rerun_refuses_the_side_whose_files_changed(edited: Edited, call: Call) -> None:
    folder = edited.folder
    call(folder, "compare", "monday", "results", "--output", "comparison.json")
    document = json.loads((folder / "comparison.json").read_text())
    for row in document["rows"]:
        row.update(verdict="inconclusive", needs=2)
    (folder / "comparison.json").write_text(json.dumps(document))
    _, out, err = call(folder, "rerun", "--from", "comparison.json", "--dry-run", "--ignore", "all")
    said = " ".join((out + err).split())
    assert (
        "base is not run: model.py changed since its runs; put the old file back, then repeat this command, or make a new campaign"
        in said
    )
    assert "new is not run" not in said


IN_TURN = """\
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "model.py"), "a") as file:
    file.write("# edited by the run itself\\n")
print(json.dumps({"train_runtime": 2.0, "train_tokens_per_second": 1.0}))
import model
"""


def test_a_run_is_not_started_with_other_files_than_its_plan_and_only_the_next_call_repeats_it(tmp_path: Path) -> None:
    folder = project(tmp_path / "project")
    (folder / "train.py").write_text(IN_TURN)
    (folder / "scenarios.yaml").write_text(SCENARIOS.replace("[100, 200]", "[100]"))
    words = (*WORDS[:-2], "--repeats", "2")
    ended = tunebench(folder, *words)
    ((first, second),) = ended.records().values()
    assert ended.code == 1
    assert first.status is Status.OK
    assert [caveat.sentence for caveat in first.warnings][-1] == (
        "model.py changed during the run, so it is unknown which content was in use"
    )
    assert (second.status, second.kind, second.cause) == (
        Status.FAILED,
        "files_changed",
        "model.py changed after the plan of this run",
    )
    assert second.hint == "repeat the same `tunebench run`: it makes a new experiment from the changed file"
    (folder / "model.py").write_text("factor = 1\n")
    again = tunebench(folder, *words)
    (runs,) = again.records().values()
    assert [(run.repeat, run.attempt, run.status) for run in runs] == [
        (1, 1, Status.OK),
        (2, 1, Status.FAILED),
        (2, 2, Status.OK),
    ]
    assert again.code == 0
