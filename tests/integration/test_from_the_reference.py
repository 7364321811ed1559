"""The journey of somebody who comes from the reference suite: their folder as it is, one line for each scenario file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPAT = ROOT / "tests" / "golden" / "compat"

# Scenario file → cells, and the cells that a stale short name skips.
FILES = {
    "scenarios.yaml": (31, 0),
    "scenarios-granite.yaml": (4, 0),
    "scenarios-moe.yaml": (2, 1),
    "scenarios-orca.yaml": (2, 0),
    "scenarios-pretok.yaml": (2, 0),
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Returns a folder that is laid out like a clone of the reference system."""
    benchmarks = tmp_path / "scripts" / "benchmarks"
    benchmarks.mkdir(parents=True)
    for name in ("scenarios.yaml", "defaults.yaml"):
        shutil.copy(COMPAT / "input" / name, benchmarks)
    for file in (COMPAT / "journey").iterdir():
        shutil.copy(file, benchmarks)
    (tmp_path / "sample-configurations").mkdir()
    shutil.copy(COMPAT / "input" / "CONTENTS.yaml", tmp_path / "sample-configurations")
    return tmp_path


def tunebench(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "orchestrator", *words]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", FILES)
def test_one_line_plans_each_scenario_file(checkout: Path, name: str) -> None:
    ended = tunebench(checkout, "plan", f"scripts/benchmarks/{name}", "--trainer", "fms_hf_tuning", "--json")
    assert ended.returncode == 0, ended.stderr
    experiments = json.loads(ended.stdout)["experiments"]
    stale = [cell for cell in experiments if cell["skip"] and cell["skip"]["kind"] == "stale_framework"]
    assert (len(experiments), len(stale)) == FILES[name]


def test_a_stale_short_name_says_where_it_is_and_the_notes_say_whose_configurations_are_used(checkout: Path) -> None:
    ended = tunebench(checkout, "plan", "scripts/benchmarks/scenarios-moe.yaml", "--trainer", "fms_hf_tuning")
    assert ended.returncode == 0, ended.stderr
    assert (
        "scripts/benchmarks/scenarios-moe.yaml:5:15: unknown framework configuration 'moe-megablocks'" in ended.stdout
    )
    assert f"framework configurations are those of {checkout / 'sample-configurations'}" in ended.stdout + ended.stderr


FMS = ("--trainer", "fms_hf_tuning")


def test_without_a_folder_of_configurations_the_error_says_where_it_was_looked_for(checkout: Path) -> None:
    (checkout / "sample-configurations").rename(checkout / "elsewhere")
    ended = tunebench(checkout, "plan", "scripts/benchmarks/scenarios.yaml", *FMS)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.splitlines()[0] == (
        "error: scripts/benchmarks/scenarios.yaml: its framework configurations are Tunebench's own, because no frameworks/ or "
        "CONTENTS.yaml is next to it, and no sample-configurations/ next to it or above it; for others, add --frameworks FOLDER"
    )
    assert "scenarios.yaml:5:5: scenario 'full-finetuning': unknown framework configuration" in ended.stderr


def test_a_named_folder_skips_stale_short_names_as_a_found_one_does(checkout: Path) -> None:
    (checkout / "sample-configurations").rename(checkout / "elsewhere")
    words = ("plan", "scripts/benchmarks/scenarios-moe.yaml", *FMS, "--frameworks", "elsewhere", "--json")
    ended = tunebench(checkout, *words)
    assert ended.returncode == 0, ended.stderr
    assert [one["skip"] and one["skip"]["kind"] for one in json.loads(ended.stdout)["experiments"]] == [
        None,
        "stale_framework",
    ]


def test_a_list_of_configurations_next_to_the_scenario_file_is_found(checkout: Path) -> None:
    benchmarks = checkout / "scripts" / "benchmarks"
    shutil.move(checkout / "sample-configurations" / "CONTENTS.yaml", benchmarks)
    ended = tunebench(checkout, "plan", "scripts/benchmarks/scenarios.yaml", *FMS, "--json")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert "framework configurations are those of scripts/benchmarks" in document["notes"]
    digests = [one["id"].rsplit("-", 1)[-1] for one in document["experiments"]]
    assert len(set(digests)) == len(digests) == 31, "also without the plugin files"


def test_the_five_positions_of_the_reference(checkout: Path) -> None:
    ended = subprocess.run(
        [
            "bash",
            str(ROOT / "scripts/run_benchmarks.sh"),
            "1 2",
            "4 8",
            "out",
            "scripts/benchmarks/scenarios.yaml",
            "none",
        ],
        cwd=checkout,
        env={**os.environ, "PYTHON": sys.executable, "TRAINER": "fms_hf_tuning", "DRY_RUN": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "124 experiments" in ended.stdout
    assert not (checkout / "out").exists()
