"""The trainer `litgpt`: LitGPT's own fine-tuning commands, `python -m litgpt finetune_lora` and `finetune_full`.

The command gets each argument as `--name value`, under LitGPT's names, which may have dots (`train.max_steps`). The argument
`subcommand` names the command. Rank 0 prints a line for each micro-batch; while the run lasts, these lines show its progress. At
the end, `metrics.csv` has a row for each micro-batch, with its time, its loss, and the tokens without padding so far.
`finetune_lora` writes a second row, with the time since the start of training and the padded tokens so far. The steps are made
from these rows.

Left out: tokens of several GPUs, because the file has those of rank 0 only; memory; the settings in effect.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.records import Caveat, CaveatKind, Experiment, Measurement, Reason, RunFolder, StepSource, Text
from orchestrator.records.run_folder import OUTPUT, path_text
from orchestrator.results import experiment_file
from orchestrator.trainers import argument_names, instrumented
from orchestrator.trainers.trainer import StepReader, Trainer

RESULTS = "logs/csv/version_0/metrics.csv"
MODEL, SUBCOMMAND = "model_name_or_path", "subcommand"
SUBCOMMANDS = ("finetune_lora", "finetune_full")
GLOBAL, MICRO = "train.global_batch_size", "train.micro_batch_size"

_MICRO_BATCH = re.compile(rb"Epoch \d+ \| iter \d+ step (\d{1,18}) \|.* iter time: (\d+(?:\.\d+)?) ms( \(step\))?")

_Row = Mapping[str, float]


class LitGpt(Trainer):
    """LitGPT's fine-tuning, full or with LoRA."""

    name = "litgpt"
    requires: tuple[str, ...] = ("torch", "accelerate", "litgpt", "requests")  # litgpt does not declare requests
    builds_models = False
    takes_defaults = False
    steps = StepSource.STDOUT

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        arguments = {name: value for name, value in experiment.arguments.items() if name not in (MODEL, SUBCOMMAND)}
        ours: dict[str, Text] = {"out_dir": path_text(run_dir, OUTPUT), "logger_name": "csv", "train.log_interval": "1"}
        counts: dict[str, Text] = {
            "devices": str(experiment.processes_per_node),
            "num_nodes": str(experiment.num_nodes),
        }
        words = ["-m", "litgpt", _subcommand(experiment), experiment.model]
        return [*words, *instrumented.flags({**arguments, **counts, **ours})]

    def metrics(self, run_dir: Path) -> list[Measurement]:
        """Return the training time, and the mean of the losses at the ends of the steps."""
        experiment = experiment_file.of_run(run_dir)
        rows, per_step = _rows(run_dir), _micro_batches(experiment)
        losses = [row["loss"] for row in rows[per_step - 1 :: per_step] if "loss" in row] if per_step else []
        values = {
            "train_runtime": rows[-1].get("time") if rows else None,
            "train_loss": sum(losses) / len(losses) if losses else None,
        }
        return [_measurement(name, value) for name, value in values.items()]

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        return argument_names.translate(argument_names.LITGPT, arguments)

    def problem(self, experiment: Experiment) -> Reason | None:
        found = _wrong(experiment)
        return Reason(kind="litgpt", text=found) if found else None

    def step_reader(self, experiment: Experiment) -> StepReader:
        return _Printed()

    def steps_at_end(self, experiment: Experiment, run_dir: Path) -> Sequence[Mapping[str, Any]]:
        per_step, gpus = _micro_batches(experiment), experiment.num_gpus
        if per_step is None:
            return ()
        return steps(_rows(run_dir), per_step, samples=int(str(experiment.arguments[GLOBAL])), gpus=gpus)


def _measurement(name: str, value: float | None) -> Measurement:
    if value is None:
        why = Caveat(detail=f"{RESULTS} has no usable rows")
    elif not math.isfinite(value):
        why = Caveat(kind=CaveatKind.NOT_FINITE, detail=f"{value} in {RESULTS}")
    else:
        return Measurement(name=name, value=value, source=RESULTS)
    return Measurement(name=name, value=None, source=RESULTS, missing=why)


class _Printed:
    """Reads the lines of micro-batches. The line of a step's last micro-batch becomes the step, with the time of all of them."""

    def __init__(self) -> None:
        self.milliseconds = 0.0

    def __call__(self, line: bytes) -> bytes:
        match = _MICRO_BATCH.fullmatch(line)
        if match is None:
            return b""
        self.milliseconds += float(match[2])
        if not match[3]:
            return b""
        seconds, self.milliseconds = self.milliseconds / 1000, 0.0
        return json.dumps({"step": int(match[1]), "seconds": round(seconds, 9)}).encode()


def _rows(run_dir: Path) -> list[_Row]:
    """Return a row for each micro-batch: the numbers of both rows in the file. Return [] if the file has gaps or is missing."""
    try:
        text = reading.read_text(RunFolder(run_dir).output / RESULTS, limit=reading.LOG_BYTES)
        text = text[: text.rfind("\n") + 1]  # a last line without a line end was cut off
        found: dict[int, dict[str, float]] = {}
        for line in csv.DictReader(io.StringIO(text, newline="")):
            numbers = {name: float(value) for name, value in line.items() if value}
            found.setdefault(int(numbers["step"]), {}).update(numbers)
    except (OSError, ValueError, TypeError, KeyError, OverflowError, csv.Error):
        return []
    rows = [found[number] for number in sorted(found) if "iter_time" in found[number]]
    whole = [row["step"] for row in rows] == [float(number) for number in range(1, len(rows) + 1)]
    return [*rows] if whole else []


def steps(rows: Sequence[_Row], per_step: int, *, samples: int, gpus: int) -> list[dict[str, Any]]:
    """Return the lines of the step file. Each optimizer step has `per_step` micro-batches, and `samples` samples on all GPUs."""
    found, before = list[dict[str, Any]](), dict[str, float]()
    for number, last in enumerate(range(per_step, len(rows) + 1, per_step), start=1):
        row, own = rows[last - 1], rows[last - per_step : last]
        grown = {name: row[name] - before.get(name, 0) for name in ("time", "lengths", "total_tokens") if name in row}
        seconds = grown["time"] if "time" in grown else sum(part["iter_time"] for part in own)
        counts = {"tokens": grown.get("lengths"), "real": grown.get("total_tokens")}
        known = {
            name: None if gpus > 1 or value is None or not math.isfinite(value) else int(value)
            for name, value in counts.items()
        }
        found.append({"step": number, "t": None, "s": round(seconds, 9), **known, "samples": samples})
        before = dict(row)
    return found


def _subcommand(experiment: Experiment) -> str:
    return str(experiment.arguments.get(SUBCOMMAND, SUBCOMMANDS[0]))


def _micro_batches(experiment: Experiment) -> int | None:
    """Return the number of micro-batches in a step, or None if the arguments do not say it."""
    sizes = [str(experiment.arguments.get(name, "")) for name in (GLOBAL, MICRO)]
    if not all(size.isascii() and size.isdecimal() and 0 < len(size) < 10 and int(size) for size in sizes):
        return None
    rows, micro = map(int, sizes)
    return None if rows % (micro * experiment.num_gpus) else rows // (micro * experiment.num_gpus)


def _wrong(experiment: Experiment) -> str | None:
    """Return a sentence about settings that LitGPT would refuse, or that leave its steps unknown, or None."""
    if experiment.model.startswith("config:"):
        return f"trainer litgpt can't build {experiment.model}; write the folder of a LitGPT checkpoint"
    if _subcommand(experiment) not in SUBCOMMANDS:
        return f"subcommand {_subcommand(experiment)} is invalid; write {' or '.join(SUBCOMMANDS)}"
    if _micro_batches(experiment) is None:
        return f"write {GLOBAL} and {MICRO}, such that the first is divisible by {experiment.num_gpus} × the second"
    if experiment.framework is not None and experiment.framework.accelerate:
        name = experiment.framework.name
        return f"framework configuration {name!r} configures accelerate, which litgpt does not use; remove it"
    return None
