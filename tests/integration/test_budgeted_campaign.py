"""`--budget`: a campaign starts no run that may exceed it, and the same command with a larger one goes on."""

from __future__ import annotations

from pathlib import Path

from campaigns import Campaign, tunebench

TRAINER = """
import json, sys, time
time.sleep(1)
print(json.dumps({"tokens_per_s": {"a": 9.0, "b": 8.0}[sys.argv[1]]}))
"""
SCENARIOS = """
scenarios:
- name: kinds
  trainer: custom
  device: cpu
  repeats: 3
  matrix: {kind: [a, b]}
  custom:
    command: ['{python}', '{scenario_dir}/t.py', '{kind}']
    launcher: none
    metrics: {tokens_per_s: {key: tokens_per_s}}
"""


def run(folder: Path, *words: str, command: str = "run") -> Campaign:
    (folder / "t.py").write_text(TRAINER)
    (folder / "s.yaml").write_text(SCENARIOS)
    return tunebench(folder, command, "s.yaml", "--results", "results", *words)


def ended(campaign: Campaign) -> int:
    return sum(map(len, campaign.records().values()))


def test_a_campaign_stops_at_its_budget_and_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    price = ("--price", "3600USD/nodeh")  # a second costs 1 USD
    first = run(tmp_path, *price, "--budget", "0.5USD")
    assert (first.code, ended(first)) == (1, 1), first.said
    assert "--budget 0.5USD: " in first.err and "; 5 runs are left, which the same command with a larger" in first.err
    assert "cost/B tok" in first.out, "the report is written"
    again = run(tmp_path, *price, "--budget", "0.5USD")
    assert (again.code, ended(again)) == (1, 1) and "5 runs are left" in again.err
    rest = run(tmp_path, *price, "--budget", "1000USD")
    assert (rest.code, ended(rest)) == (0, 6) and "--budget" not in rest.err


def test_concurrent_runs_end_and_no_others_start(tmp_path: Path) -> None:
    first = run(tmp_path, "--budget", "0.0001h", "--parallel", "2")
    assert first.code == 1 and ended(first) == 2, "two start before the time of a run is known"
    assert all(record.status == "ok" for records in first.records().values() for record in records)
    assert first.err.count("--budget 0.0001h: ") == 1


def test_a_race_stops_at_its_budget_too(tmp_path: Path) -> None:
    race = run(tmp_path, "--budget", "0.0001h", command="tune")
    assert (race.code, ended(race)) == (1, 1), race.said
    assert race.err.count("--budget 0.0001h: ") == 1 and "the same command goes on" in race.out
    assert "kinds: the only experiment that ended ok is kind " in race.out, "it is not called the fastest"
    assert (
        "the race is not over: in its present round, 1 experiment did not run yet (kinds on 1 CPU process, kind "
        in race.out
    )
    assert "the same command goes on, with a larger --budget if a budget stopped it" in race.out.replace("\n", " ")
    assert "than were asked for" not in race.out
    assert "; at least 1 run is left, which the same command with a larger --budget runs\n" in race.err, "of this round"
