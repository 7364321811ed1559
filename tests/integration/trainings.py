"""Trainings under the instrument, started as a launcher would start them: what tests of them share."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.trainers.instrumented import FILE_NAME as INSTRUMENT
from orchestrator.trainers.instrumented import single_file

WORKERS = Path(__file__).parents[2] / "orchestrator/workers"
SFT_FOLDER = str(WORKERS / "sft")
SFT = f"{SFT_FOLDER}/sft.py"
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
machine_rank: 0
main_training_function: main
mixed_precision: 'no'
num_machines: 1
num_processes: {processes}
rdzv_backend: static
same_network: true
use_cpu: {cpu}
"""
SHARDED = """\
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: SHARDED_STATE_DICT
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: its folder, exit code and last line of stderr."""

    folder: Path
    code: int
    last_line: str

    def worker(self, rank: int = 0) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.folder / f"worker-rank{rank}.json").read_text())
        return document

    def steps(self, rank: int = 0) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in (self.folder / f"steps-rank{rank}.jsonl").read_text().splitlines())
        return [line for line in lines if "step" in line]

    @cached_property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = self.worker()["settings"]
        return settings


def start(
    folder: Path, words: list[str], *, until: Callable[[Path], bool] | None = None, cpu: bool = True, **more: str
) -> Run:
    """Runs to the end, or until the folder looks as wanted: then all processes are killed. `more` are variables.

    It runs in the folder, where the instrument lies as in a run's own, alone.
    """
    folder.mkdir()
    (folder / INSTRUMENT).write_text(single_file(), encoding="utf-8")
    leaks = ("ACCELERATE_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_", "TUNEBENCH_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(leaks)}
    ours = {"TUNEBENCH_RUN_DIR": str(folder), "OMP_NUM_THREADS": "1", **more}
    ours |= {"ACCELERATE_USE_CPU": "true"} if cpu else {}
    with (folder / "stderr.log").open("w") as stderr, (folder / "stdout.log").open("w") as stdout:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={**env, **ours},
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        deadline = time.monotonic() + 180
        try:
            while until is not None and process.poll() is None and not until(folder):
                assert time.monotonic() < deadline, "it never came to be as wanted"
                time.sleep(0.01)
            code = process.wait(timeout=180) if until is None else -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):  # the ranks too, which the launcher's end would leave behind
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = (folder / "stderr.log").read_text().strip().splitlines()
    return Run(folder=folder, code=code, last_line=lines[-1] if lines else "")


def at_once(*starts: Callable[[], Run]) -> list[Run]:
    """Two at a time, as most machines have cores: most of a short training is spent importing torch."""
    with ThreadPoolExecutor(2) as pool:
        return [run.result() for run in [pool.submit(one) for one in starts]]


def training(prepared: Path, *words: str, model: str = "config:tiny-llama") -> list[str]:
    data = ["--training_data_path", str(prepared), "--model_name_or_path", model]
    return [*data, "--per_device_train_batch_size", "2", "--logging_steps", "1", *words]


def prepare(folder: Path, rows: int) -> Path:
    """So many rows of many lengths, as the built-in trainer reads them."""
    spec = {"source": "builtin:stdlib-docs", "split": f"train[:{rows}]", "path": str(folder / "made"), "form": "tokens"}
    (folder / "spec.json").write_text(json.dumps(spec))
    subprocess.run([sys.executable, WORKERS / "prepare" / "prepare.py", folder / "spec.json"], check=True, timeout=120)
    return folder / "made"


def launched(folder: Path, processes: int, *, cpu: bool = True, sharded: bool = False) -> list[str]:
    """The launcher's words before a script's, with its configuration in `folder`; sharded is FSDP 2, else there are replicas."""
    settings = ACCELERATE.format(processes=processes, cpu=str(cpu).lower())
    if sharded:
        settings = settings.replace("MULTI_GPU", "FSDP") + SHARDED
    (folder / "accelerate.yaml").write_text(settings)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launch = ["-m", "accelerate.commands.launch", "--config_file", str(folder / "accelerate.yaml")]
    return [*launch, "--main_process_port", port]
