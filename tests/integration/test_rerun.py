"""More runs of what a comparison left open, with real processes: exactly these, the sides in turns, and nothing else again.

Two campaigns of a fake trainer: `steady` gives the same number each time, `noisy` one that hangs on its run alone, so that every
run of this test finds the same. The two sides differ in nothing, and the noise leaves it open.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from campaigns import Campaign, ended, started, tunebench
from factories.cases import text

from orchestrator.campaign.status.campaign import Reader
from orchestrator.compare.comparison import Comparison, Verdict
from orchestrator.compare.rules import parse
from orchestrator.compare.sides.pairing import pair
from orchestrator.compare.sides.read import read
from orchestrator.compare.verdicts import compare
from orchestrator.compare.view import as_json
from orchestrator.records import RunRecord, Status
from orchestrator.results.store import Store

TRAINER = """\
import hashlib, json, os, sys
run = "/".join(os.path.normpath(sys.argv[2]).split(os.sep)[-5:])
noise = int(hashlib.sha256(run.encode()).hexdigest()[:6], 16) / 0xffffff - 0.5
speed = 1000 * (1 + (0.3 * noise if sys.argv[1] == "noisy" else 0))
print(json.dumps({"train_tokens_per_second": speed}))
"""

SCENARIOS = text("scenarios/rerun.yaml")

RERUN = """
import sys, typer
from orchestrator.cli.results.history_rerun_bisect import rerun
sys.argv[0] = 'rerun'
typer.run(rerun)
"""


def rerun(folder: Path, *words: str) -> Campaign:
    return ended(folder, started(folder, *command(*words)))


def command(*words: str) -> tuple[str, ...]:
    return ("-c", RERUN, "--from", "comparison.json", *words)


def compared(folder: Path) -> Comparison:
    """The two campaigns as they stand now, written down as `tunebench compare` does."""
    base, new = (read([folder / name]) for name in ("base", "new"))
    found = compare(base, new, pairs=pair(base, new), rules=parse())
    (folder / "comparison.json").write_text(as_json.text(found))
    return found


def records(folder: Path) -> dict[str, list[RunRecord]]:
    """`base/noisy` and its like → records, by repeat and attempt."""
    stored = [(name, one) for name in ("base", "new") for one in Store.resume(folder / name).contents().experiments]
    return {f"{name}/{one.experiment.arguments['kind']}": list(one.records) for name, one in stored}


def counts(folder: Path) -> dict[str, int]:
    return {name: len(found) for name, found in records(folder).items()}


@pytest.fixture(scope="module")
def campaigns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open")
    (folder / "trainer.py").write_text(TRAINER)
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    for name in ("base", "new"):
        done = tunebench(folder, "run", "scenarios.yaml", "--yes", "--results", name)
        assert done.code == 0, done.err
    return folder


@pytest.fixture
def folder(campaigns: Path, tmp_path: Path) -> Path:
    """The two campaigns, for one test; the trainer stays where it is."""
    for name in ("base", "new"):
        shutil.copytree(campaigns / name, tmp_path / name)
    found = compared(tmp_path)
    expected = {"noisy": Verdict.INCONCLUSIVE, "steady": Verdict.SAME}
    assert {row.label.split("=")[-1]: row.verdict for row in found.rows} == expected
    return tmp_path


def order_of(found: dict[str, list[RunRecord]], names: Sequence[str], *, after: int) -> list[str]:
    """The sides of the runs behind the first `after` of each, in the order in which they started."""
    later = [(record.started_at, name) for name in names for record in found[name][after:]]
    return [name for _, name in sorted(later)]


def test_what_is_open_runs_again_in_turns_and_nothing_else_does(folder: Path) -> None:
    before = records(folder)
    done = rerun(folder, "--runs", "3")
    assert done.code == 0, done.err
    assert "6 run(s) of 2 experiment(s), in 3 round(s)" in done.out
    assert "Compare again: tunebench compare" in done.out
    ends = [line for line in done.err.splitlines() if "/6 ok " in line]
    assert sorted(line.split(" in ")[1].split()[0] for line in ends) == ["base"] * 3 + ["new"] * 3
    found = records(folder)
    assert counts(folder) == {"base/noisy": 6, "base/steady": 3, "new/noisy": 6, "new/steady": 3}
    assert all(found[name][:3] == before[name] for name in found)
    assert all(record.status is Status.OK for one in found.values() for record in one)
    order = order_of(found, ("base/noisy", "new/noisy"), after=3)
    rounds = [set(order[at : at + 2]) for at in range(0, 6, 2)]
    assert rounds == [{"base/noisy", "new/noisy"}] * 3
    spans = sorted((record.started_at, record.started_at + record.wall_s) for one in found.values() for record in one)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans)), "one at a time"
    as_if_asked_for_as_much(folder)


def as_if_asked_for_as_much(folder: Path) -> None:
    """What `status`, the report and the next comparison say of folders in which more was run."""
    for name in ("base", "new"):
        store = Store.resume(folder / name)
        experiments = [one.experiment for one in store.contents().experiments]
        assert sorted(one.repeats for one in experiments) == [3, 6]
        assert not store.plan(experiments)
        assert Reader(store).look().is_over()
        assert "noisy" in (folder / name / "benchmarks.csv").read_text()
    found = compared(folder)
    assert {row.ratio.n_base for row in found.rows if row.ratio} == {3, 6}


def test_by_itself_it_makes_as_many_runs_as_the_comparison_asks_for(folder: Path) -> None:
    file = folder / "comparison.json"
    document = json.loads(file.read_text())
    (row,) = [row for row in document["rows"] if row["verdict"] == "inconclusive"]
    assert row["needs"] > 1
    row["needs"] = 1
    file.write_text(json.dumps(document))
    assert rerun(folder).code == 0
    assert counts(folder)["base/noisy"] == counts(folder)["new/noisy"] == 4


def test_a_dry_run_writes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    shown = rerun(folder, "--runs", "2", "--dry-run")
    assert shown.code == 0 and "4 run(s)" in shown.out
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_base_of_another_environment_is_left_alone(folder: Path) -> None:
    for path in (folder / "base").rglob("record.json"):
        record = json.loads(path.read_text())
        record["provenance"]["packages"]["torch"] = "1.0.0"
        path.write_text(json.dumps(record))
    compared(folder)
    done = rerun(folder, "--runs", "1")
    assert done.code == 0
    assert "base is not run: it was measured in another environment (torch was 1.0.0" in done.err
    assert counts(folder) == {"base/noisy": 3, "base/steady": 3, "new/noisy": 4, "new/steady": 3}
    done = rerun(folder, "--runs", "1", "--ignore", "torch")
    assert counts(folder) == {"base/noisy": 4, "base/steady": 3, "new/noisy": 4, "new/steady": 3}


def test_two_at_once_make_no_run_twice(folder: Path) -> None:
    both = [started(folder, *command("--runs", "2")) for _ in range(2)]
    assert [ended(folder, process).code for process in both] == [0, 0]
    assert counts(folder) == {"base/noisy": 5, "base/steady": 3, "new/noisy": 5, "new/steady": 3}
    assert all(record.attempt == 1 for one in records(folder).values() for record in one)


def test_killed_in_the_midst_the_same_command_makes_the_rest(folder: Path) -> None:
    process = started(folder, *command("--runs", "2"))
    deadline = time.monotonic() + 120
    while not list(folder.glob("*/experiments/*/runs/r4-t1/record.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    ended(folder, process)
    assert rerun(folder, "--runs", "2").code == 0
    found = records(folder)
    expected = {"base/noisy": 5, "base/steady": 3, "new/noisy": 5, "new/steady": 3}
    assert {name: len({one.repeat for one in made}) for name, made in found.items()} == expected
    assert all(record.attempt == 1 or record.repeat > 3 for one in found.values() for record in one)
    again = rerun(folder, "--runs", "2")
    assert "already have their further runs" in again.out
