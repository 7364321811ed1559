"""Nine runs of three settings by a command that knows nothing of Tunebench: speed-ups, findings, and the baseline that is kept."""

from __future__ import annotations

import json
import re

import pytest
from campaigns import Campaign, tunebench

TRAINER = """\
import json, random, sys
speed = {"sgd": 1000, "adamw": 1310, "lion": 1120}[sys.argv[1]] * random.uniform(0.995, 1.005)
print(json.dumps({"tokens_per_s": speed, "train_loss": 2.5, "peak": {"sgd": 4}.get(sys.argv[1], 5)}))
"""
SCENARIO = """\
scenarios:
- name: optimizers
  trainer: custom
  device: cpu
  repeats: 3
  matrix: {optimizer: [sgd, adamw, lion]}
  custom:
    command: ['{python}', '{scenario_dir}/train.py', '{optimizer}']
    launcher: none
    metrics: {tokens_per_s: {}, train_loss: {}, peak_allocated_bytes: {key: peak, unit: GiB}}
"""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("own")
    (folder / "train.py").write_text(TRAINER)
    (folder / "scenarios.yaml").write_text(SCENARIO)
    ran = tunebench(folder, "run", "scenarios.yaml", "--parallel", "2", "--yes", COLUMNS="300")
    assert ran.code == 0, ran.said
    return ran


def rows_of(campaign: Campaign) -> dict[str, dict[str, str]]:
    return {row["optimizer"]: row for row in campaign.rows()}


def test_the_closing_table_has_the_speed_up_and_names_the_reference(campaign: Campaign) -> None:
    heading = next(line for line in campaign.out.splitlines() if "speed-up" in line)
    assert heading and "compared with optimizer=sgd" in campaign.out
    assert re.search(r"^adamw .* 1\.3\d+× ", campaign.out, re.MULTILINE)
    rows = rows_of(campaign)
    assert rows["sgd"]["speedup"] == "1.0" and rows["sgd"]["speedup_low"] == ""
    low, ratio, high = (float(rows["adamw"][name]) for name in ("speedup_low", "speedup", "speedup_high"))
    assert low < ratio < high and ratio == pytest.approx(1.31, rel=0.02)
    assert float(rows["lion"]["memory_ratio"]) == 1.25


def test_the_page_has_the_findings(campaign: Campaign) -> None:
    page = (campaign.results / "report.html").read_text()
    assert "No two experiments can be compared" not in page
    assert "ratio to optimizer sgd with otherwise equal settings" in page


def test_another_baseline_is_named_by_the_option(campaign: Campaign) -> None:
    made = tunebench(campaign.folder, "report", "results", "--baseline", "optimizer=adamw", "--format", "json")
    found = {row["optimizer"]: row for row in json.loads(made.out)["experiments"]}
    assert found["adamw"]["speedup"] == 1.0 and found["sgd"]["speedup"] == pytest.approx(1 / 1.31, rel=0.02)
    wrong = tunebench(campaign.folder, "report", "results", "--baseline", "optimiser=adamw")
    assert wrong.code == 2 and "did you mean 'optimizer'?" in wrong.err and "Traceback" not in wrong.err


def test_a_scenarios_baseline_is_kept_with_the_results_and_runs_nothing_again(campaign: Campaign) -> None:
    before = campaign.records()
    (campaign.folder / "scenarios.yaml").write_text(
        SCENARIO.replace("repeats: 3", "repeats: 3\n  baseline: {optimizer: lion}")
    )
    again = tunebench(campaign.folder, "run", "scenarios.yaml", "--yes")
    assert again.code == 0 and campaign.records() == before
    assert "compared with optimizer=lion" in again.out and "its first value" not in again.out
    (campaign.folder / "scenarios.yaml").unlink()
    alone = tunebench(campaign.folder, "report", "results")
    assert "compared with optimizer=lion" in alone.out
    for file in campaign.results.glob("experiments/*/experiment.json"):  # as an older version wrote it
        content = json.loads(file.read_text())
        del content["baseline"]
        file.write_text(json.dumps(content))
    assert "compared with optimizer=sgd" in tunebench(campaign.folder, "report", "results").out
