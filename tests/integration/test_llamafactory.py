"""LLaMA-Factory, in a software environment that `run` builds: our counts of a training beside LLaMA-Factory's own.

`tox -e environments` runs it. It downloads 600 MB the first time.
"""

from __future__ import annotations

import json
import os
import shutil

import pytest
import spelled
import yaml
from campaigns import ROOT, Campaign, tunebench

from orchestrator.records import Status

STEPS, BATCH = 20, 2

pytestmark = [
    pytest.mark.skipif(not os.environ.get("TUNEBENCH_TEST_ENVIRONMENTS"), reason="needs TUNEBENCH_TEST_ENVIRONMENTS=1"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The example, with a tiny model, fewer steps, and LLaMA-Factory's own count of tokens; alone and on two processes."""
    folder = tmp_path_factory.mktemp("llamafactory")
    spelled.make(folder)
    spelled.for_transformers_4(folder)
    shutil.copytree(ROOT / "examples" / "instructions", folder / "instructions")
    file = yaml.safe_load((ROOT / "examples" / "llamafactory.yaml").read_text(encoding="utf-8"))
    (scenario,) = file["scenarios"]
    scenario |= {"device": "cpu", "num_gpus": [1, 2], "repeats": 1, "keep": "all"}
    scenario["exclude"] = [{"finetuning_type": "full", "num_gpus": 2}, {"finetuning_type": "lora", "num_gpus": 1}]
    scenario["arguments"] |= {
        "model_name_or_path": "./model",
        "max_steps": STEPS,
        "logging_steps": 1,
        "include_num_input_tokens_seen": True,
    }
    (folder / "scenarios.yaml").write_text(yaml.safe_dump(file))
    return tunebench(folder, "run", "scenarios.yaml")


def test_every_run_is_measured(campaign: Campaign) -> None:
    assert campaign.code == 0, campaign.said
    records = [run for runs in campaign.records().values() for run in runs]
    assert [run.status for run in records] == [Status.OK] * 2
    assert {run.provenance["packages"]["llamafactory"] for run in records} == {"0.9.3"}
    assert {run.provenance["worker_versions"]["transformers"] for run in records} == {"4.52.4"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_steps_and_losses_are_those_of_llamafactory(campaign: Campaign, ranks: int) -> None:
    run_dir = campaign.run_dir(f".gpus{ranks}.")
    counts = spelled.counted(run_dir)
    assert [(count["steps"], count["samples"]) for count in counts] == [(STEPS, BATCH * STEPS)] * ranks
    own = json.loads((run_dir / "output" / "all_results.json").read_text())
    assert sum(count["processed"] for count in counts) == own["num_input_tokens_seen"]
    lines = [json.loads(line) for line in (run_dir / "output" / "trainer_log.jsonl").read_text().splitlines()]
    losses = [[line["current_steps"], line["loss"]] for line in lines if "loss" in line]
    assert len(losses) == STEPS
    assert json.loads((run_dir / "worker-rank0.json").read_text())["losses"] == losses
    for count in counts:
        assert 0 < count["labelled"] < count["real"] < count["processed"]


def test_what_took_effect_is_read_off_its_trainer(campaign: Campaign) -> None:
    full, lora = (campaign.record(f".gpus{ranks}.").settings for ranks in (1, 2))
    assert (full["peft_method"], lora["peft_method"], lora["lora_rank"]) == (None, "lora", 8)
    assert (full["world_size"], lora["world_size"], lora["global_batch"]) == (1, 2, 2 * BATCH)
    assert {full["gradient_checkpointing"], lora["gradient_checkpointing"]} == {False}, "LLaMA-Factory's default is on"
