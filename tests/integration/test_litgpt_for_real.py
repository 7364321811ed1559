"""The trainer `litgpt` with LitGPT itself, in a software environment that `run` builds, on a checkpoint with random weights.

`tox -e environments` runs it. It downloads 30 MB the first time, and takes 2 minutes on two cores.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from campaigns import Campaign, tunebench

from orchestrator.records import Status
from orchestrator.results.store import Store

PACKAGES = "[torch==2.13.0, litgpt==0.5.13, requests, accelerate]"
STEPS, ROWS_PER_STEP, VOCABULARY = 40, 4, 512
FILE = f"""
environments: {{litgpt: {PACKAGES}}}
scenarios:
- name: methods
  trainer: litgpt
  environment: litgpt
  device: cpu
  repeats: 3
  matrix: {{subcommand: [finetune_lora, finetune_full]}}
  arguments:
    model_name_or_path: checkpoint
    data: JSON
    data.json_path: FOLDER/rows.json
    data.val_split_fraction: 0.1
    train.max_steps: {STEPS}
    train.global_batch_size: {ROWS_PER_STEP}
    train.micro_batch_size: 2
    train.lr_warmup_steps: 1
    train.max_seq_length: 256
    eval.final_validation: false
    eval.interval: 1000
    precision: 32-true
"""
# Writes a LitGPT checkpoint of 200,000 random weights. It runs in the environment, because the weights are those of LitGPT's class.
CHECKPOINT = """
import json
from dataclasses import asdict
from pathlib import Path

import torch
import yaml
from litgpt.config import Config
from litgpt.model import GPT
from tokenizers import Tokenizer, models, pre_tokenizers

END = "<|endoftext|>"
words = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END]
tokenizer = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
shape = Config(
    name="tiny", hf_config={}, block_size=256, vocab_size=512, padded_vocab_size=512, n_layer=2, n_head=4, n_embd=64,
    n_query_groups=2, rotary_percentage=1.0, parallel_residual=False, bias=False, norm_class_name="RMSNorm",
    mlp_class_name="LLaMAMLP", intermediate_size=128,
)
folder = Path("checkpoint")
folder.mkdir()
tokenizer.save(str(folder / "tokenizer.json"))
described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": END, "model_max_length": 256}
(folder / "tokenizer_config.json").write_text(json.dumps(described))
(folder / "model_config.yaml").write_text(yaml.dump(asdict(shape)))
torch.manual_seed(0)
torch.save(GPT(shape).state_dict(), folder / "lit_model.pth")
"""

pytestmark = [
    pytest.mark.skipif(not os.environ.get("TUNEBENCH_TEST_ENVIRONMENTS"), reason="needs TUNEBENCH_TEST_ENVIRONMENTS=1"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("litgpt")
    (folder / "scenarios.yaml").write_text(FILE.replace("FOLDER", str(folder)))
    rows = [{"instruction": f"Say {at}", "input": "", "output": "word " * (1 + at % 7)} for at in range(200)]
    (folder / "rows.json").write_text(json.dumps(rows))
    built = tunebench(folder, "env", "build", "scenarios.yaml")
    assert built.code == 0, built.said
    (python,) = (folder / "cache" / "environments").glob("*/venv/bin/python")
    subprocess.run([python, "-c", CHECKPOINT], cwd=folder, check=True, timeout=300)
    done = tunebench(folder, "run", "scenarios.yaml")
    assert done.code == 0, done.said
    return done


def ended(campaign: Campaign, subcommand: str) -> tuple[dict[str, Any], Path]:
    """Return the numbers of a run with this command, and its folder. In less than a second of steps, a run may not be level."""
    every = Store.resume(campaign.results).contents().experiments
    (one,) = (one for one in every if one.experiment.arguments["subcommand"] == subcommand)
    found = []
    for run in one.runs:
        assert run.record is not None and run.record.status is Status.OK, run.record
        assert run.record.provenance["packages"]["litgpt"] == "0.5.13"
        found.append(({number.name: number.value for number in run.record.measurements}, run.job.run_dir))
    return next((values, folder) for values, folder in found if values["step_time_s"] is not None)


def of_litgpt(label: str, printed: str) -> int:
    """Return a number of the summary that LitGPT prints at its end."""
    found = re.search(rf"\| - {re.escape(label)} +: +(\d+)", printed)
    assert found, printed
    return int(found[1])


@pytest.mark.parametrize("subcommand", ["finetune_lora", "finetune_full"])
def test_the_steps_and_their_tokens_are_those_that_litgpt_counts(campaign: Campaign, subcommand: str) -> None:
    values, folder = ended(campaign, subcommand)
    printed = (folder / "stdout.log").read_text()
    assert (values["steps"], values["samples_processed"]) == (STEPS, STEPS * ROWS_PER_STEP)
    lines = read_steps(folder)
    assert sum(line["real"] for line in lines) == of_litgpt("Tokens w/ Prompt", printed)
    if subcommand == "finetune_lora":  # the file of `finetune_full` has no padded tokens
        assert values["tokens_processed"] == of_litgpt("Total Tokens (w/ Padding)", printed)
        assert values["padding_share"] > 0


@pytest.mark.parametrize("subcommand", ["finetune_lora", "finetune_full"])
def test_the_first_step_is_not_part_of_the_speed(campaign: Campaign, subcommand: str) -> None:
    values, folder = ended(campaign, subcommand)
    assert values["first_step_s"] > values["step_time_s"] > 0
    assert 1 <= values["discarded_steps"] <= STEPS - 10
    lines = read_steps(folder)[values["discarded_steps"] :]
    speed = sum(line["real"] for line in lines) / sum(line["s"] for line in lines)
    assert values["real_tokens_per_s"] == pytest.approx(speed, rel=0.01)


def test_both_commands_learn_and_are_compared(campaign: Campaign) -> None:
    lora, full = (ended(campaign, command)[0]["train_loss"] for command in ("finetune_lora", "finetune_full"))
    assert 0 < full < lora < math.log(VOCABULARY) + 1, "a training of all weights learns faster"
    assert "finetune_lora" in campaign.out and "finetune_full" in campaign.out


def read_steps(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "steps-rank0.jsonl").read_text().splitlines()]
