"""What this machine can run, and what to do about what is missing: a list of findings. Prints nothing, changes nothing.

Versions are read from the packages' metadata; torch is imported in a process of its own, and only here.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from rich.table import Table
from rich.text import Text

from orchestrator.errors import OrchestratorError
from orchestrator.machine.process import capture
from orchestrator.machine.provenance import this_machine
from orchestrator.plan.data import cache_folder

NEEDED = ("torch", "transformers", "accelerate")
OPTIONAL = {
    "peft": "LoRA and QLoRA",
    "datasets": "data sets from the hub and Parquet files",
    "bitsandbytes": "QLoRA (framework configuration bnb-nf4)",
    "liger-kernel": "framework configuration liger",
    "flash-attn": "framework configuration flash-attention",
    "trl": "trainer trl",
    "fms-hf-tuning": "trainer fms_hf_tuning",
}
SMALL_DISK_BYTES = 10 * 2**30
TORCH_CHECK = (
    "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available(), torch.cuda.device_count())"
)


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at: what was found, and what to do where that is not enough."""

    name: str
    level: Level
    found: str
    todo: str | None = None


def examine(python: str | None = None) -> list[Finding]:
    """Everything that a run depends on, for the interpreter `python` (ours when None)."""
    return [
        *_interpreter(python),
        *_packages(python),
        _torch(python),
        *_gpus(),
        _nvidia_smi(),
        *_disk(),
        _port(),
        *_hub(),
    ]


def _interpreter(python: str | None) -> Iterator[Finding]:
    yield Finding(name="tunebench's Python", level=Level.OK, found=f"{sys.version.split()[0]} ({sys.executable})")
    if python:
        there = Path(python).exists()
        todo = None if there else "give --python the path of an interpreter that exists"
        yield Finding(name="training Python", level=Level.OK if there else Level.MISSING, found=python, todo=todo)


def _packages(python: str | None) -> Iterator[Finding]:
    installed = this_machine().packages(python)
    for name in NEEDED:
        version = installed.get(name)
        todo = None if version else f"install it in the training environment: pip install {name}"
        yield Finding(
            name=name, level=Level.OK if version else Level.MISSING, found=version or "not installed", todo=todo
        )
    for name, purpose in OPTIONAL.items():
        version = installed.get(name)
        todo = None if version else f"only needed for {purpose}"
        yield Finding(name=name, level=Level.OK if version else Level.NOTE, found=version or "not installed", todo=todo)


def _torch(python: str | None) -> Finding:
    try:
        version, cuda, available, count = capture([python or sys.executable, "-c", TORCH_CHECK], timeout_s=120).split()
    except (OrchestratorError, ValueError) as error:
        text = (str(error).strip().splitlines() or ["no answer"])[-1]
        return Finding(name="torch runs", level=Level.MISSING, found=text, todo="repair the installation of torch")
    if available == "True":
        return Finding(name="torch runs", level=Level.OK, found=f"{version}, CUDA {cuda}, {count} device(s)")
    todo = "a build of torch with CUDA is needed for GPUs" if cuda == "None" else "torch sees no GPU: check the driver"
    return Finding(name="torch runs", level=Level.NOTE, found=f"{version}, CPU only", todo=todo)


def _gpus() -> Iterator[Finding]:
    gpus = this_machine().gpus
    if not gpus:
        todo = "only scenarios with `device: cpu` or `auto` run here; on a GPU machine check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
        yield Finding(name="GPUs", level=Level.NOTE, found="none visible", todo=todo)
    for gpu in gpus:
        size = f", {gpu.memory_bytes / 2**30:.0f} GiB" if gpu.memory_bytes else ""
        yield Finding(name=f"GPU {gpu.index}", level=Level.OK, found=f"{gpu.name}{size}")


def _nvidia_smi() -> Finding:
    path = shutil.which("nvidia-smi")
    if path is None:
        todo = "it comes with the NVIDIA driver; without it there is no mem_nvidia_mem_reserved"
        return Finding(name="nvidia-smi", level=Level.NOTE, found="not on PATH", todo=todo)
    try:
        driver = capture([path, "--query-gpu=driver_version", "--format=csv,noheader"], timeout_s=30).split()
    except OrchestratorError as error:
        return Finding(name="nvidia-smi", level=Level.NOTE, found=str(error), todo="check the NVIDIA driver")
    return Finding(name="nvidia-smi", level=Level.OK, found=f"{path}, driver {driver[0] if driver else 'unknown'}")


def _disk() -> Iterator[Finding]:
    for name, folder in (("disk here", Path.cwd()), ("disk of the data cache", cache_folder())):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(existing).free
        enough = free >= SMALL_DISK_BYTES
        todo = None if enough else "prepared data and checkpoints may not fit; free some space"
        yield Finding(
            name=name,
            level=Level.OK if enough else Level.NOTE,
            found=f"{free / 2**30:.0f} GiB free ({folder})",
            todo=todo,
        )


def _port() -> Finding:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError as error:
            return Finding(
                name="ports", level=Level.MISSING, found=str(error), todo="let processes listen on 127.0.0.1"
            )
        return Finding(name="ports", level=Level.OK, found="a free port can be had on 127.0.0.1")


def _hub() -> Iterator[Finding]:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    models = len(list((home / "hub").glob("models--*")))
    yield Finding(name="HF cache", level=Level.OK, found=f"{home}, {models} model(s) in it")
    offline = [
        name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE") if os.environ.get(name)
    ]
    found = f"{', '.join(offline)} set" if offline else "not set"
    todo = "only models in the cache and local folders load" if offline else None
    yield Finding(name="offline switches", level=Level.NOTE if offline else Level.OK, found=found, todo=todo)


def as_json(findings: list[Finding]) -> str:
    """The findings as one JSON list."""
    return json.dumps([asdict(finding) for finding in findings], indent=2) + "\n"


def as_table(findings: list[Finding]) -> Table:
    """The findings as a table, what is to be done last."""
    view = Table(box=None, pad_edge=False, header_style="bold")
    view.add_column("what", no_wrap=True)
    view.add_column("", no_wrap=True)
    view.add_column("found", overflow="fold")
    view.add_column("to do", overflow="fold")
    styles = {Level.OK: "green", Level.NOTE: "yellow", Level.MISSING: "red"}
    for finding in findings:
        view.add_row(
            Text(finding.name),
            Text(finding.level, styles[finding.level]),
            Text(finding.found),
            Text(finding.todo or ""),
        )
    return view
