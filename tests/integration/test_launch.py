"""Built commands, really started: how many processes there are, on what, tied together how, with which settings."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("torch")

from factories.results import experiment

from orchestrator.machine.child_environment import child_environment
from orchestrator.plan.command import build_command
from orchestrator.records import CustomCommand, Experiment, MetricSource
from orchestrator.trainers.external import custom

ASK = """
import json, os, sys
from accelerate import Accelerator
state = Accelerator()
if state.is_main_process:
    print(json.dumps({
        "words": sys.argv[1:], "size": state.num_processes, "type": state.distributed_type.value,
        "device": state.device.type, "precision": state.mixed_precision, "threads": os.environ["OMP_NUM_THREADS"],
        "visible": os.environ["CUDA_VISIBLE_DEVICES"],
    }))
state.end_training()
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(run_dir: Path, *, num_gpus: int, words: tuple[str, ...], **changes: Any) -> Experiment:
    """Run a custom experiment in `run_dir` as the runner does; stdout goes to stdout.log."""
    one = experiment(
        num_gpus=num_gpus,
        trainer="custom",
        arguments={"note": "a b"},
        accelerate={"distributed_type": "MULTI_GPU"},
        custom=CustomCommand(command=words, **changes),
    )
    command = build_command(one, python=sys.executable, gpus=(), run_dir=run_dir, port=free_port())
    command.cwd.mkdir()
    for name, text in command.files.items():
        (run_dir / name).write_text(text)
    ended = subprocess.run(
        command.argv, env=child_environment(command.env), cwd=command.cwd, capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stderr
    (run_dir / "stdout.log").write_text(ended.stdout)
    return one


@pytest.mark.parametrize(("num_gpus", "kind"), [(1, "NO"), (2, "MULTI_CPU")])
def test_processes_on_cpu(tmp_path: Path, num_gpus: int, kind: str) -> None:
    (tmp_path / "ask.py").write_text(ASK)
    start(
        tmp_path, num_gpus=num_gpus, words=("{run_dir}/ask.py", "-m", "x", "--note", "{note}", "--num_processes", "7")
    )
    assert json.loads((tmp_path / "stdout.log").read_text().splitlines()[-1]) == {
        "words": ["-m", "x", "--note", "a b", "--num_processes", "7"],
        "size": num_gpus,
        "type": kind,
        "device": "cpu",
        "precision": "no",
        "threads": "1",
        "visible": "",
    }


def test_a_command_without_a_launcher(tmp_path: Path) -> None:
    words = ("{python}", "-c", "print('loss = 0.25')")
    metrics = {"train_loss": MetricSource(pattern=r"loss = (\S+)")}
    one = start(tmp_path, num_gpus=1, words=words, launcher="none", results="log", metrics=metrics)
    assert one.custom is not None
    [found] = custom.read_metrics(one.custom, tmp_path)
    assert found.value == 0.25
