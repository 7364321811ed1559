"""A campaign over two versions of transformers, from a scenario file and nothing else: environments, runs, findings, resume.

`tox -e environments` runs it. It downloads 100 MB the first time, and takes about five minutes on two cores.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from campaigns import Campaign, tunebench

from orchestrator.records import Status
from orchestrator.report.highlights import highlights
from orchestrator.results.table.baseline import pairs_of
from orchestrator.results.table.load import load

FILE = Path(__file__).parents[2] / "examples" / "two-versions.yaml"
VERSIONS = {"hf4": "4.55.4", "hf5": "5.23.0"}

pytestmark = [
    pytest.mark.skipif(not os.environ.get("TUNEBENCH_TEST_ENVIRONMENTS"), reason="needs TUNEBENCH_TEST_ENVIRONMENTS=1"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("versions")
    shutil.copy(FILE, folder / "scenarios.yaml")
    began = time.monotonic()
    done = tunebench(folder, "run", "scenarios.yaml")
    print(f"from nothing to the report in {time.monotonic() - began:.0f} s")
    assert done.code == 0, done.said
    return done


def test_every_run_had_the_packages_of_its_environment(campaign: Campaign) -> None:
    records = campaign.records()
    assert sorted(map(len, records.values())) == [3] * 4
    for id, runs in records.items():
        version = next(version for name, version in VERSIONS.items() if f".{name}-" in id)
        assert {run.status for run in runs} == {Status.OK}
        assert {run.provenance["worker_versions"]["transformers"] for run in runs} == {version}
        assert {run.provenance["packages"]["transformers"] for run in runs} == {version}


def test_the_results_folder_has_the_packages_of_each_environment(campaign: Campaign) -> None:
    for name, version in VERSIONS.items():
        (file,) = campaign.results.glob(f"{name}-*.requirements.txt")
        assert f"transformers=={version} \\\n    --hash=sha256:" in file.read_text(encoding="utf-8")


def test_environments_are_compared_within_a_framework_configuration(campaign: Campaign) -> None:
    table = load([campaign.results])
    assert set(table.experiments["environment"]) == set(VERSIONS)
    pairs = [pair for pair in pairs_of(table) if pair.match.axis == "environment" and pair.speed]
    assert len(pairs) == 2
    for pair in pairs:
        both = (table.experiments["framework_config"][row] for row in (pair.match.new, pair.match.base))
        assert len(set(both)) == 1
    assert not any("loss" in highlight.text for highlight in highlights(table)), "random weights are other weights"


def test_the_same_command_has_nothing_left_to_do(campaign: Campaign) -> None:
    again = tunebench(campaign.folder, "run", "scenarios.yaml")
    assert again.code == 0 and "building" not in again.said
    assert campaign.records() == again.records()
    listed = tunebench(campaign.folder, "env", "list")
    assert all(name in listed.out for name in VERSIONS)
    kept = tunebench(campaign.folder, "env", "gc")
    assert kept.code == 0 and len([*(campaign.folder / "cache" / "environments").glob("*/environment.json")]) == 2
