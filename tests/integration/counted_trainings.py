"""Trainings whose data loader is counted a second time, token by token in plain Python, and what both counts came to.

One start trains several models one after the other in the same processes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainings import INSTRUMENT, SFT_FOLDER, Run, launched, start, training

COUNTED = """
import gc, json, os, shutil, sys
sys.path.insert(0, sys.argv.pop(1))
variants = json.loads(sys.argv.pop(1))
import sft

def counted(batch):
    rows = batch["input_ids"].tolist()
    positions = batch["position_ids"].tolist() if "position_ids" in batch else [list(range(len(row))) for row in rows]
    mask = batch["attention_mask"].tolist() if "attention_mask" in batch else [[1] * len(row) for row in rows]
    lengths = []
    for row in positions:
        for position in row:
            if position == 0:
                lengths.append(0)
            lengths[-1] += 1
    return {
        "tokens": sum(len(row) for row in rows),
        "real": sum(value == 1 for row in mask for value in row),
        "labelled": sum(label != -100 for row in batch["labels"].tolist() for label in row),
        "samples": len(lengths),
        "squares": sum(length * length for length in lengths),
    }

folder, rank = os.environ["TUNEBENCH_RUN_DIR"], os.environ.get("RANK", "0")
for name, words in variants.items():
    trainer = sft.build_trainer([*sys.argv[1:], *words])
    expected = [counted(batch) for batch in trainer.get_train_dataloader()]
    trainer.train()
    del trainer
    gc.collect()
    json.dump(expected, open(f"{folder}/expected-{name}-{rank}.json", "w"))
    shutil.copy(f"{folder}/steps-rank{rank}.jsonl", f"{folder}/{name}-{rank}.jsonl")
sft.leave_process_group()
"""
THEIRS = """
import sys
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

class Theirs(Trainer):
    def training_step(self, *args, **kwargs):
        return super().training_step(*args, **kwargs)

    def compute_loss(self, *args, **kwargs):
        loss = super().compute_loss(*args, **kwargs)
        return loss * float("nan") if self.state.global_step + 1 == bad_step else loss

bad_step, every, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
row = {"input_ids": [5] * 16, "attention_mask": [1] * 12 + [0] * 4, "labels": [-100] * 5 + [5] * 7 + [-100] * 4}
small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
given = {"logging_nan_inf_filter": False} if "unfiltered" in words else {}
args = TrainingArguments("out", use_cpu=True, report_to="none", save_strategy="no", max_steps=7, logging_steps=every,
                         per_device_train_batch_size=2, gradient_accumulation_steps=2, **given)
Theirs(LlamaForCausalLM(LlamaConfig(**small)), args, train_dataset=[row] * 99).train()
"""
"""A trainer that is not ours, as a module: `theirs BAD_STEP LOGGING_STEPS [unfiltered]`; that step's loss is no number."""

EPOCH = ["--num_train_epochs", "1", "--max_seq_len", "256"]
PADDED = [*EPOCH, "--gradient_accumulation_steps", "3"]
PACKED = [*EPOCH, "--packing", "True", "--gradient_accumulation_steps", "2"]
FREE = [*EPOCH, "--padding_free", "True", "--attn_implementation", "eager", "--gradient_accumulation_steps", "2"]
VARIANTS = {"padded": PADDED, "packed": PACKED, "free": FREE}
SAVERS = {
    "chunked": [*PADDED, "--chunked_loss", "True"],
    "offloaded": [*PADDED, "--activation_offloading", "True", "--sdpa_backend", "math"],
}
"""They need less memory than the padded training, and learn the same."""
ACCUMULATED = {"padded": 3, "packed": 2, "free": 2}
COUNTS = ("tokens", "real", "labelled", "samples", "squares")
Counts = dict[str, int]


def trained(
    folder: Path,
    prepared: Path,
    processes: int,
    variants: dict[str, list[str]],
    *,
    cpu: bool = True,
    sharded: bool = False,
    before: str = "",
    **env: str,
) -> Run:
    """`before` is Python that the processes run before they build their trainers."""
    (folder / "counted.py").write_text(COUNTED.replace("import sft\n", f"import sft\n{before}"))
    script = [INSTRUMENT, "--", str(folder / "counted.py"), SFT_FOLDER, json.dumps(variants)]
    launcher = launched(folder, processes, cpu=cpu, sharded=sharded) if processes > 1 else []
    run = start(folder / "run", [*launcher, *script, *training(prepared)], cpu=cpu, **env)
    assert run.code == 0, run.last_line
    return run


def trained_by_theirs(folder: Path, *words: str) -> Run:
    (folder / "theirs.py").write_text(THEIRS)
    run = start(folder / "run", [INSTRUMENT, "--", "-m", "theirs", *words], PYTHONPATH=str(folder))
    assert run.code == 0, run.last_line
    return run


def steps(run: Run, variant: str, rank: int) -> list[dict[str, Any]]:
    lines = map(json.loads, (run.folder / f"{variant}-{rank}.jsonl").read_text().splitlines())
    return [line for line in lines if "s" in line]


def losses(run: Run, variant: str) -> list[float]:
    lines = map(json.loads, (run.folder / f"{variant}-0.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def by_step(run: Run, variant: str, rank: int, accumulated: int) -> list[Counts]:
    """What the data loader gave, added up over the micro-batches of each step."""
    batches: list[Counts] = json.loads((run.folder / f"expected-{variant}-{rank}.json").read_text())
    groups = [batches[i : i + accumulated] for i in range(0, len(batches), accumulated)]
    return [{**{name: sum(batch[name] for batch in group) for name in COUNTS}, "micro": len(group)} for group in groups]


def counts(lines: list[dict[str, Any]]) -> list[Counts]:
    return [{name: line[name] for name in (*COUNTS, "micro")} for line in lines]
