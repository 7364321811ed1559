"""Training scripts of a user, not edited: the example as it stands, and others that are less ordinary.

Each group is one campaign by the command. What the data hold is counted here, without the script's collator.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import spelled
from campaigns import ROOT, Call, Campaign, tunebench
from factories.cases import text

from orchestrator.records import RunRecord, Status

pytest.importorskip("torch")
EXAMPLE = ROOT / "examples" / "own_script"
PAGE = (EXAMPLE / "README.md").read_text(encoding="utf-8")
STEPS = 40
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


# --- the example -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Half of its cells: those in bfloat16."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    return tunebench(
        folder,
        "run",
        "scenarios.yaml",
        "--axis",
        "bf16=True",
        "--parallel",
        "2",
        "--results",
        f"../{folder.name}/results",
        **NO_GPU,
    )


def cells(campaign: Campaign) -> dict[tuple[int, bool], dict[str, str]]:
    """Return the rows by the number of processes and gradient checkpointing."""
    return {(int(row["num_gpus"]), row["gradient_checkpointing"] == "True"): row for row in campaign.rows()}


def test_the_example_runs_on_one_and_two_processes_with_and_without_checkpointing(example: Campaign) -> None:
    assert example.code == 0, example.said
    rows = cells(example)
    assert rows.keys() == {(1, False), (1, True), (2, False), (2, True)}
    for (processes, checkpointing), row in rows.items():
        assert (row["status"], row["model_name_or_path"]) == ("ok", "train.py")
        settings = good(example, row["id"]).settings
        assert (settings["world_size"], settings["global_batch"]) == (processes, 16 * processes)
        assert settings["gradient_checkpointing"] is checkpointing
        assert (settings["mixed_precision"], settings["optimizer"], settings["device"]) == ("bf16", "AdamW", "cpu")
        assert settings["architecture"]["layers"]


def test_every_token_of_the_example_is_counted(example: Campaign) -> None:
    sums = runpy.run_path(str(EXAMPLE / "train.py"))["Sums"](640, 4, seed=42)
    real = sum(map(len, sums.texts))
    answers = sum(len(one) - one.index("=") - 1 for one in sums.texts)
    for (processes, _), row in cells(example).items():
        (run_dir,) = example.results.glob(f"experiments/{row['id']}/runs/r1-t1")
        ranks = spelled.counted(run_dir)
        assert [rank["steps"] for rank in ranks] == [STEPS] * processes
        assert sum(rank["real"] for rank in ranks) == processes * real, "an epoch is 40 steps of one process"
        assert sum(rank["labelled"] for rank in ranks) == processes * answers
        assert sum(rank["samples"] for rank in ranks) == processes * 640
        assert int(float(row["tokens_processed"])) == sum(rank["processed"] for rank in ranks) > processes * real


def test_checkpointing_changes_no_loss(example: Campaign) -> None:
    rows = cells(example)
    for processes in (1, 2):
        losses = [float(rows[processes, checkpointing]["train_loss"]) for checkpointing in (False, True)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_nothing_is_left_next_to_the_script_nor_of_the_trained_models(example: Campaign) -> None:
    given = {path.name for path in EXAMPLE.iterdir()}
    assert {path.name for path in example.folder.iterdir()} - given <= {"results", "cache", "__pycache__"}
    assert not [*example.results.rglob("*.safetensors")]


def test_show_names_the_script_and_how_it_was_started(example: Campaign, call: Call) -> None:
    part = cells(example)[2, True]["id"]
    code, told, _ = call(example.folder, "show", part, "--results", "results")
    assert code == 0 and f"script {example.folder}/train.py · started in the run's output folder" in told
    assert "-- " + str(example.folder / "train.py") in told and "--output_dir" not in told


def block(command: str) -> list[str]:
    """Return the lines that the example's page shows for a command, its ids masked."""
    shown = re.search(rf"^```\n\$ {re.escape(command)}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown is not None
    return masked(shown[1])


def masked(text: str) -> list[str]:
    return [re.sub(r"\b[0-9a-f]{12}\b", "id", line).rstrip() for line in text.splitlines() if line.strip()]


def test_the_page_of_the_example_shows_its_plan(call: Call, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    code, told, err = call(tmp_path, "plan", "scenarios.yaml", COLUMNS="120", **NO_GPU)
    assert code == 0, err
    assert masked(told) == block("tunebench plan scenarios.yaml")


def rows_of(text: str) -> list[dict[str, str]]:
    """Return the rows of the first Markdown table."""
    first = text.partition("<details>")[0]
    heading, _, *rows = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in first.splitlines() if line[:1] == "|"
    )
    return [dict(zip(heading, row, strict=True)) for row in rows]


def test_the_page_of_the_example_shows_its_report(example: Campaign, call: Call) -> None:
    """The cells of each row that was run; the last digit of a loss may differ on another processor."""
    command = next(line for line in PAGE.splitlines() if line.startswith("$ tunebench report"))
    code, told, err = call(example.folder, *command.split()[2:], "--keep", "bf16")
    assert code == 0, err
    shown = {(row["GPUs"], row["bf16"], row["gradient_checkpointing"]): row for row in rows_of(PAGE)}
    assert len(shown) == 8 and len(rows_of(told)) == 4
    for row in rows_of(told):
        like = shown[row["GPUs"], row["bf16"], row["gradient_checkpointing"]]
        assert float(row.pop("loss")) == pytest.approx(float(like.pop("loss")), rel=0.01)
        assert {name: row[name] for name in like} == like


# --- others ----------------------------------------------------------------------------------------------------------

PACKAGED = """
import json, sys
from dataclasses import dataclass
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from pkg.own import Scaled

@dataclass
class Own:
    lengths: str

own, arguments = HfArgumentParser((Own, TrainingArguments)).parse_args_into_dataclasses()
rows = [{"input_ids": [1] * 8, "labels": [1] * 8} for _ in json.load(open(own.lengths))]
config = LlamaConfig(vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
Scaled(LlamaForCausalLM(config), arguments, train_dataset=rows).train()
"""
OWN_TRAINER = """
from transformers import Trainer

class Scaled(Trainer):
    def compute_loss(self, *args, **kwargs):
        return 2 * super().compute_loss(*args, **kwargs)
"""
SFT = """
import sys
from datasets import Dataset
from transformers import HfArgumentParser
from trl import SFTConfig, SFTTrainer

model = sys.argv.pop(1)
(arguments,) = HfArgumentParser(SFTConfig).parse_args_into_dataclasses()
rows = Dataset.from_list([{"text": "a b c d"}, {"text": "a b"}] * 4)
SFTTrainer(model=model, args=arguments, train_dataset=rows).train()
open("mine.txt", "w").write("written where it started")
"""
PLAIN = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
print("done", parser.parse_args().steps)
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    pytest.importorskip("trl")
    folder = tmp_path_factory.mktemp("others")
    spelled.make(folder)
    files = {
        "pkg/__init__.py": "",
        "pkg/train.py": PACKAGED,
        "pkg/own.py": OWN_TRAINER,
        "sft.py": SFT,
        "plain.py": PLAIN,
    }
    files |= {"lengths.json": json.dumps([*range(64)]), "scenarios.yaml": text("scenarios/own-script.yaml")}
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    return tunebench(folder, "run", "scenarios.yaml", "--parallel", "2")


def worker(campaign: Campaign, part: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((campaign.run_dir(part) / "worker-rank0.json").read_text())
    return document


def good(campaign: Campaign, part: str) -> RunRecord:
    record = campaign.record(part)
    assert record.status is Status.OK, (record.cause, record.tail)
    return record


def test_a_module_with_a_trainer_of_its_own_ends_early(others: Campaign) -> None:
    good(others, "subclass")
    document = worker(others, "subclass")
    assert document["stopped"]["why"] == "within" and document["tokens"]["steps"] == document["stopped"]["step"] < 200
    assert document["tokens"]["real"] == document["tokens"]["steps"] * 8 * 8


def test_memory_is_tracked_in_scripts_that_were_not_asked_to(others: Campaign) -> None:
    for part, tracker in (("subclass", "light"), ("trl", "native")):
        document = worker(others, part)
        assert document["memory_tracker"] == tracker and document["settings"]["skip_memory_metrics"] is False
        assert document["metrics"]["train_mem_cpu_peaked_delta"] >= 0


def test_a_trl_script_gets_a_word_before_its_arguments_and_the_run_s_output_folder(others: Campaign) -> None:
    record = good(others, "trl")
    assert (record.settings["optimizer"], record.settings["max_steps"]) == ("SGD", 4)
    assert worker(others, "trl")["tokens"]["real"] == 4 * (5 + 3), "each text with its end, two rows per step"
    assert (others.folder / "mine.txt").exists(), "cwd: scenario"
    assert not (others.folder / "any").exists() and not (others.folder / "trainer_output").exists()


def test_a_refused_argument_and_a_script_without_a_trainer_are_failures_that_say_so(others: Campaign) -> None:
    refused, without = others.record("refused"), others.record("without-trainer")
    assert (refused.kind, refused.cause) == ("bad_arguments", "rank 0: unrecognized arguments: --stepz 4")
    assert (refused.exit_code, without.exit_code) == (2, 0)
    assert without.kind == "no_metrics" and "transformers Trainer" in str(without.hint)
