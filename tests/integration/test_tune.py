"""`tunebench tune`: few runs for what is clearly slower, all repeats for the fastest, and a race that goes on where it was."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import Campaign, tunebench
from factories.results import BASE

from orchestrator.campaign.steps import with_all_rounds
from orchestrator.plan.expand import Plan

# The noise depends on the run's name only: `r3-t1` of two experiments differs, and a repeated test sees the same numbers.
TRAINER = """
import json, random, sys
kind, run_dir = sys.argv[1:]
speeds = {"a": 100, "b": 99.8, "c": 80, "d": 60, "e": 93, "broken": None}
noise = random.Random(kind + run_dir.rsplit("/", 1)[-1]).gauss(0, 0.004)
print(json.dumps({"tokens_per_s": speeds[kind] * (1 + noise)}))
"""
SCENARIOS = """
scenarios:
- name: kinds
  trainer: custom
  device: cpu
  repeats: 6
  matrix: {kind: [KINDS]}
  custom:
    command: ['{python}', '{scenario_dir}/t.py', '{kind}', '{run_dir}']
    launcher: none
    metrics: {tokens_per_s: {key: tokens_per_s}}
"""


def tune(folder: Path, *words: str, kinds: str = "a, b, c, d, e", command: str = "tune") -> Campaign:
    (folder / "t.py").write_text(TRAINER)
    (folder / "s.yaml").write_text(SCENARIOS.replace("KINDS", kinds))
    return tunebench(folder, command, "s.yaml", "--results", "results", *words)


def runs(campaign: Campaign) -> dict[str, int]:
    """Return the number of records of each kind."""
    found: Counter[str] = Counter()
    for file in campaign.results.glob("experiments/*/runs/*/record.json"):
        experiment = json.loads((file.parents[2] / "experiment.json").read_text())
        found[experiment["arguments"]["kind"]] += json.loads(file.read_text())["status"] in ("ok", "failed")
    return dict(found)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return tune(tmp_path_factory.mktemp("tuned"))


def test_what_is_clearly_slower_gets_few_runs_and_the_fastest_gets_all_repeats(tuned: Campaign) -> None:
    assert tuned.code == 0, tuned.said
    made = runs(tuned)
    assert made["d"] == 1 and made["c"] == made["e"] == 2
    assert max(made["a"], made["b"]) >= 6, "the repeats of the scenario"
    assert sum(made.values()) < 5 * 6


def test_it_says_who_left_and_why_and_what_is_fastest(tuned: Campaign) -> None:
    assert "3 of 5 left; " in tuned.out and "where the full grid has 30" in tuned.out
    assert "left in round 2, at most" in tuned.out and "leads" in tuned.out
    assert "kinds with 1 CPU process: kind " in tuned.out.splitlines()[-1]


def test_the_report_misses_no_run(tuned: Campaign) -> None:
    report = tunebench(tuned.folder, "report", "results")
    assert "fewer runs than were asked for" not in report.said
    assert "nothing left to do" in tunebench(tuned.folder, "status", "results").out


def test_a_race_that_is_over_starts_nothing_more(tuned: Campaign) -> None:
    before = runs(tuned)
    again = tunebench(tuned.folder, "tune", "s.yaml", "--results", "results")
    assert again.code == 0 and runs(again) == before
    assert again.out.splitlines()[-1] == tuned.out.splitlines()[-1]


def test_runs_of_an_earlier_campaign_count_and_run_fills_the_grid_afterwards(tmp_path: Path) -> None:
    first = tune(tmp_path, "--repeats", "1", command="run")
    assert runs(first) == dict.fromkeys("abcde", 1)
    race = tune(tmp_path)
    made = runs(race)
    assert made["d"] == 1 and made["c"] == 2
    grid = tune(tmp_path, "--repeats", "2", command="run")
    assert grid.code == 0 and min(runs(grid).values()) == 2


def test_an_experiment_that_fails_leaves_after_two_runs(tmp_path: Path) -> None:
    race = tune(tmp_path, kinds="a, broken, d")
    assert race.code == 1
    assert runs(race)["broken"] == 2 and "left in round 2, without a speed" in race.out


def test_each_number_of_processes_has_its_own_race(tmp_path: Path) -> None:
    race = tune(tmp_path, "--num-gpus", "1,2", kinds="a, d")
    assert race.code == 0, race.said
    titles = [line for line in race.out.splitlines() if line.startswith("kinds: ")]
    assert [title.split(": ")[1] for title in titles] == ["1 process", "2 processes"]
    assert "kinds with 2 CPU processes: " in race.out


def test_the_question_before_a_race_counts_all_its_rounds() -> None:
    most = with_all_rounds(
        Plan(experiments=(replace(BASE, repeats=3), replace(BASE, repeats=20)), collapsed=(), notes=())
    )
    assert [one.repeats for one in most.experiments] == [8, 20]


def test_a_suite_of_benchmarks_cannot_race(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(benchmark): benchmark(int)")
    (tmp_path / "s.yaml").write_text(
        "scenarios:\n- name: suite\n  trainer: pytest_benchmark\n  device: cpu\n  arguments: {path: test_it.py}\n"
    )
    refused = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert refused.code == 2 and not refused.results.exists()
    assert "scenario 'suite': trainer pytest_benchmark has many times and no speed, so it cannot race" in refused.err
