"""A plugin of fms-acceleration, in a software environment that `run` builds: nf4 and LoRA with the trainer `fms_hf_tuning`.

`tox -e environments` runs it. fms-hf-tuning asks for an older torch, so the environment has `overrides:`.
"""

from __future__ import annotations

import json
import os

import pytest
import spelled
from campaigns import Campaign, tunebench
from factories.cases import text

from orchestrator.records import Status

pytestmark = [
    pytest.mark.skipif(not os.environ.get("TUNEBENCH_TEST_ENVIRONMENTS"), reason="needs TUNEBENCH_TEST_ENVIRONMENTS=1"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("plugins")
    spelled.make(folder)
    spelled.for_transformers_4(folder)
    (folder / "scenarios.yaml").write_text(text("scenarios/fms-plugins.yaml"))
    return tunebench(folder, "run", "scenarios.yaml")


def test_the_plugin_quantised_the_model(campaign: Campaign) -> None:
    assert campaign.code == 0, campaign.said
    record = campaign.record("nf4")
    assert (record.status, record.provenance["packages"]["fms-acceleration-peft"]) == (Status.OK, "0.4.4")
    settings = record.settings
    assert (settings["quantization"], settings["peft_method"], settings["lora_rank"]) == ("nf4", "lora", 4)
    assert settings["mixed_precision"] == "bf16"


def test_its_steps_and_tokens_are_measured(campaign: Campaign) -> None:
    (counts,) = spelled.counted(campaign.run_dir("nf4"))
    assert (counts["steps"], counts["samples"]) == (6, 12)
    assert 0 < counts["labelled"] < counts["real"] < counts["processed"]
    losses = json.loads((campaign.run_dir("nf4") / "worker-rank0.json").read_text())["losses"]
    assert [step for step, _ in losses] == [1, 2, 3, 4, 5, 6]
