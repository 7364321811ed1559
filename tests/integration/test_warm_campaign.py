"""A campaign of warm runs has the settings, the losses and the work of a campaign of cold runs, and says that it was warm."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from campaigns import Campaign, tunebench

from orchestrator.compare.comparison import Row, Verdict
from orchestrator.compare.rules import parse
from orchestrator.compare.sides.pairing import pair
from orchestrator.compare.sides.read import read
from orchestrator.compare.verdicts import compare
from orchestrator.compare.view import as_json
from orchestrator.results.store import Store

pytest.importorskip("torch")
pytest.importorskip("peft")

SCENARIOS = r"""
data_processing: {dataset_name: 'builtin:stdlib-docs', dataset_split: 'train[:60]'}
scenarios:
- name: held
  device: cpu
  framework_config: [baseline]
  num_gpus: [1, 2]
  matrix: {peft_method: [none, lora]}
  exclude: [{num_gpus: 2, peft_method: lora}]
  measure: {discard_steps: 1, at_most_steps: 4}
  arguments:
    {model_name_or_path: 'config:tiny-llama', max_seq_len: 64, max_steps: 5, logging_steps: 1, learning_rate: 1e-3,
     per_device_train_batch_size: 2, r: 4, target_modules: all-linear}
- name: own-environment
  device: cpu
  env: {TORCH_LOGS: recompiles}
  arguments: {model_name_or_path: 'config:tiny-llama', max_seq_len: 64, max_steps: 2, per_device_train_batch_size: 2}
- name: unlike
  device: cpu
  env: {PYTHONPATH: not-absolute}
  arguments: {model_name_or_path: 'config:tiny-llama', max_seq_len: 64, max_steps: 2, per_device_train_batch_size: 2}
- name: own-script
  trainer: custom
  device: cpu
  custom:
    command: ['{python}', '-c', 'print("{\"train_runtime\": 1.0}")']
    launcher: none
    metrics: {train_runtime: {key: train_runtime}}
"""


@dataclass(frozen=True, kw_only=True)
class Both:
    """The same campaign, cold and warm, with the same cache."""

    cold: Campaign
    warm: Campaign
    cache: str


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    found = {}
    cache = str(tmp_path_factory.mktemp("cache"))
    for name in ("cold", "warm"):
        folder = tmp_path_factory.mktemp(name)
        (folder / "scenarios.yaml").write_text(SCENARIOS)
        found[name] = tunebench(folder, "run", "scenarios.yaml", f"--{name}", TUNEBENCH_CACHE=cache)
        assert found[name].code == 0, found[name].said
    return Both(**found, cache=cache)


def written(campaign: Campaign) -> dict[tuple[str, str], dict[str, Any]]:
    """(experiment, rank file) → what the instrument wrote, of the runs of the first scenario."""
    files = campaign.results.glob("experiments/held*/runs/*/worker-rank*.json")
    return {(file.parents[2].name, file.name): json.loads(file.read_text()) for file in files}


def test_each_run_says_how_it_started(both: Both) -> None:
    for campaign, held in ((both.cold, "cold"), (both.warm, "warm")):
        starts = {name: records[0].provenance["start"] for name, records in campaign.records().items()}
        assert len(starts) == 6
        for name, start in starts.items():
            assert start == ("cold" if name.startswith(("own-script", "unlike")) else held), name
    with (both.warm.results / "raw_summary.csv").open(newline="") as file:
        assert {row["provenance_start"] for row in csv.DictReader(file)} == {"warm", "cold"}


@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        ("unlike", "PYTHONPATH has a folder that depends on the current folder"),
        ("own-script", "the trainer custom always starts cold"),
    ],
)
def test_the_campaign_says_once_why_a_run_started_cold(scenario: str, why: str, both: Both) -> None:
    assert [campaign.said.count(f"a run started cold: {why}") for campaign in (both.cold, both.warm)] == [0, 1]
    for campaign, reason in ((both.cold, None), (both.warm, why)):
        (found,) = (records[0] for name, records in campaign.records().items() if name.startswith(scenario))
        assert found.provenance.get("cold_because") == reason


def test_ids_and_commands_are_equal(both: Both) -> None:
    assert set(both.cold.records()) == set(both.warm.records())
    for file in both.cold.results.glob("experiments/*/runs/*/command.sh"):
        other = both.warm.results / file.relative_to(both.cold.results)
        assert other.read_text().replace(str(both.warm.folder), str(both.cold.folder)) == file.read_text()


def test_settings_losses_and_work_are_equal_to_the_byte(both: Both) -> None:
    cold, warm = written(both.cold), written(both.warm)
    assert set(cold) == set(warm) and len(cold) == 4
    same = (
        "settings",
        "losses",
        "tokens",
        "nonfinite_step",
        "stopped",
        "measure",
        "versions",
        "world_size",
        "clock",
        "gpu",
    )
    for name, one in cold.items():
        assert len(one["losses"]) == 4
        for key in same:
            texts = [
                json.dumps(side[key]).replace(str(campaign.folder), "HERE")
                for side, campaign in ((one, both.cold), (warm[name], both.warm))
            ]
            assert texts[0] == texts[1], (name, key)


def test_a_rerun_of_both_starts_each_as_its_campaign_started(both: Both, tmp_path: Path) -> None:
    """The two experiments have the same id. The new run of the warm one was cold, too."""
    for name, campaign in (("warm", both.warm), ("cold", both.cold)):
        shutil.copytree(campaign.results, tmp_path / name)
    sides = [read([tmp_path / name]) for name in ("warm", "cold")]
    found = compare(*sides, pairs=pair(*sides), rules=parse())
    chosen = next(one.label for one in found.pairs if one.base and str(one.base.id).startswith("own-environment"))
    open_row = Row(label=chosen, metric="tokens_per_s", verdict=Verdict.INCONCLUSIVE, needs=1)
    (tmp_path / "comparison.json").write_text(as_json.text(replace(found, rows=(open_row,))))
    words = ("rerun", "--from", "comparison.json", "--runs", "1", "--ignore", "git_commit,git_dirty")
    done = tunebench(tmp_path, *words, TUNEBENCH_CACHE=both.cache)
    assert done.code == 0, done.said
    for name in ("warm", "cold"):
        experiments = {one.experiment.scenario: one for one in Store.resume(tmp_path / name).contents().experiments}
        starts = [record.provenance["start"] for record in experiments["own-environment"].records]
        assert starts == [name, name], done.said


def test_nothing_is_left_of_a_warm_campaign(both: Both) -> None:
    for number in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{number}/cmdline").read_bytes()
            environ = Path(f"/proc/{number}/environ").read_bytes()
        except OSError:
            continue
        assert not (re.search(rb"workers/warm/warm\.py", words) and str(both.warm.folder).encode() in environ)
    assert not list(both.warm.results.glob("experiments/*/runs/*/run-one.log"))
    assert all(
        run.job.folder.record.exists()
        for one in Store.resume(both.warm.results).contents().experiments
        for run in one.runs
    )
