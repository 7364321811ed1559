"""An executor of a third party, installed by its entry point, runs a campaign by the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign, tunebench
from factories.cases import text

from orchestrator.results import claims

SCENARIOS = text("scenarios/executors.yaml")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Install the executor that docs/add-a-plug.md shows."""
    section = (ROOT / "docs" / "add-a-plug.md").read_text().partition("## An executor")[2]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "executor.py").write_text(code)
    info = tmp_path / "my_package-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tunebench.executors]\none_by_one = my_package.executor:OneByOne\n")
    (tmp_path / "scenarios.yaml").write_text(SCENARIOS)
    return tmp_path


def run(folder: Path, *words: str) -> Campaign:
    return tunebench(folder, "run", "scenarios.yaml", "--yes", *words, PYTHONPATH=f"{folder}:{ROOT}")


def test_the_file_and_the_option_choose_it(folder: Path) -> None:
    campaign = run(folder)
    assert campaign.code == 1, campaign.err
    assert {row["kind"]: row["status"] for row in campaign.rows()} == {"good": "ok", "bad": "failed"}
    (folder / "scenarios.yaml").write_text(SCENARIOS.removeprefix("executor: one_by_one\n"))
    again = run(folder, "--executor", "one_by_one", "--retry-failed")
    claimed = [claims.read_claim(run_dir) for run_dir in again.results.glob("experiments/*/runs/*")]
    assert [claim.executor for claim in claimed if claim] == ["one_by_one"] * 3, (
        "the ids are the same: one was run again"
    )


def test_options_of_the_local_executor_are_refused(folder: Path) -> None:
    for words in (("--parallel", "2"), ("--gpus", "0")):
        campaign = run(folder, *words)
        said = f"error: {words[0]} works only with the executor 'local', not with 'one_by_one'; leave {words[0]} out\n"
        assert (campaign.code, campaign.err) == (2, said)
    assert not campaign.results.exists()


def test_a_name_that_does_not_exist_is_told_with_its_place(folder: Path) -> None:
    (folder / "scenarios.yaml").write_text(SCENARIOS.replace("one_by_one", "slrm"))
    expected = "unknown executor 'slrm'; did you mean 'slurm'? Allowed: local, one_by_one, slurm"
    assert tunebench(folder, "plan", "scenarios.yaml", PYTHONPATH=f"{folder}:{ROOT}").err == (
        f"error: scenarios.yaml:1:1: {expected}\n"
    )
    assert run(folder, "--executor", "slrm").err == f"error: {expected}\n"
    assert run(folder, "--executor", "local").code == 1, "the option is asked before the file"
