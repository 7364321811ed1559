"""Counts of parameters and FLOPs, without a training: models are built without weights, by a program in the training environment.

The program (`workers/sft/counts.py`) builds each model as the built-in trainer does, and reads it as the instrument does in a run.
So the numbers are those of a run. It needs no GPU and little memory.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.compare.published.values import COUNTED, Found
from orchestrator.errors import LaunchError
from orchestrator.files.package import WORKERS
from orchestrator.machine import process
from orchestrator.measure.flops import model_flops_per_token
from orchestrator.records import Experiment
from orchestrator.trainers.huggingface import HuggingFace
from orchestrator.trainers.instrumented import SOURCES, flags

PROGRAM = WORKERS / "sft" / "counts.py"
# Six models take eight seconds on two cores; torch may load slowly from a network drive.
LIMIT_S = 300.0


def count(experiments: Sequence[Experiment]) -> Mapping[str, Found]:
    """Return id → the numbers COUNTED, for experiments of the built-in trainer that share one interpreter.

    FLOPs are for rows of `max_seq_len` tokens. If the models cannot be built, all have the reason as their problem.
    """
    try:
        counted = _counted(experiments)
    except LaunchError as error:
        return {one.id: Found(problem=str(error)) for one in experiments}
    return {one.id: _found(one, facts) for one, facts in zip(experiments, counted, strict=True)}


def _counted(experiments: Sequence[Experiment]) -> list[dict[str, Any]]:
    """Return the program's answer for each experiment. Raise LaunchError if the program fails."""
    python = os.path.expanduser(experiments[0].python or sys.executable)
    with tempfile.TemporaryDirectory(prefix="tunebench-counts-") as name:
        file, answer = Path(name) / "commands.json", Path(name) / "counts.json"
        commands = [flags(HuggingFace().arguments(experiment, Path(name))) for experiment in experiments]
        file.write_text(json.dumps(commands), encoding="utf-8")
        process.capture([python, str(PROGRAM), str(file), str(SOURCES), str(answer)], LIMIT_S)
        counted: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
    return counted


def _found(experiment: Experiment, facts: Mapping[str, Any]) -> Found:
    length = int(str(experiment.arguments["max_seq_len"]))
    flops = model_flops_per_token(facts["architecture"], squares_per_token=length, longest=length)
    numbers = {**facts, "model_flops_per_token": flops}
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return Found(numbers={name: numbers[name] for name in COUNTED if numbers[name] is not None}, software=versions)
