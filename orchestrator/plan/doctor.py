"""The findings of `tunebench doctor`: what this machine can run, and what to do about missing parts.

This module changes nothing. Versions come from the metadata of packages. Only torch is imported, in a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version
from rich.table import Table
from rich.text import Text

from orchestrator.errors import OrchestratorError
from orchestrator.files.cache import cache_folder
from orchestrator.files.redaction import masker
from orchestrator.machine import cgroup
from orchestrator.machine.process import capture
from orchestrator.machine.provenance import asked, python_version, this_machine

if TYPE_CHECKING:
    from orchestrator.executors.slurm.cluster.probe import Probed

NEEDED = ("torch", "transformers", "accelerate")
OPTIONAL = {
    "peft": "LoRA and QLoRA",
    "datasets": "data sets from the hub and Parquet files",
    "bitsandbytes": "QLoRA (framework configuration bnb-nf4)",
    "liger-kernel": "framework configuration liger",
    "flash-attn": "framework configuration flash-attention",
    "trl": "trainer trl",
    "fms-hf-tuning": "trainer fms_hf_tuning",
    "llamafactory": "trainer llamafactory",
    "axolotl": "trainer axolotl",
    "litgpt": "trainer litgpt",
    "lightning-thunder": "trainer thunder",
}
# The versions that pyproject.toml accepts. It is not installed where Tunebench runs from its source tree.
VERSIONS = {
    "torch": ">=2.4",
    "transformers": ">=4.46",
    "accelerate": ">=1.2,<2",
    "peft": ">=0.14",
    "datasets": ">=3",
    "bitsandbytes": ">=0.45",
    "liger-kernel": ">=0.5",
    "trl": ">=1.0",
}
SMALL_DISK_BYTES = 10 * 2**30
CLOCK_S = 5.0
IMPORT_TORCH = "import torch; gpus = torch.cuda.is_available(); nccl = torch.cuda.nccl.version() if gpus else ()"
TORCH_FACTS = (
    "[str(torch.__version__), torch.version.cuda, gpus, torch.cuda.device_count(), '.'.join(map(str, nccl)) or '-']"
)


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check: what was found, and what to do if a part is missing."""

    name: str
    level: Level
    found: str
    todo: str | None = None


def examine(python: str | None = None) -> list[Finding]:
    """Return a finding for everything that a run depends on. `python` is the interpreter of the runs (None: the current one)."""
    return [
        *_interpreter(python),
        *_packages(python),
        _torch(python),
        *_gpus(),
        _nvidia_smi(),
        *_disk(),
        _port(),
        _control_group(),
        *_hub(),
    ]


def of_node(probed: Probed) -> list[Finding]:
    """Return the findings about a cluster and one of its nodes: what the node says, the folder that both share, the clocks."""
    if probed.answer is None:
        todo = "correct the site file (`tunebench site check`), or change to a folder that the nodes share"
        return [_finding("job on a node", probed.problem or "no answer", todo=todo, level=Level.MISSING)]
    return [*_of_cluster(probed, probed.answer), *map(_on_node, probed.answer.get("findings", []))]


def _of_cluster(probed: Probed, answer: Mapping[str, Any]) -> Iterator[Finding]:
    yield _finding(
        "job on a node", f"{answer.get('node')} answered after {probed.took_s:.0f} s, with its wait in the queue"
    )
    yield _finding("shared folder", f"{Path.cwd()}: each side reads what the other writes")
    no_links = "keep results on a file system with hard links: they decide which of two records of a run is the first"
    works = bool(answer.get("links"))
    yield _finding("links", "link(2) works there" if works else "link(2) fails there", todo=None if works else no_links)
    offset_s = abs(probed.offset_s or 0.0)
    todo = None if offset_s < CLOCK_S else "set the clocks by NTP, or the times of runs and heartbeats are wrong"
    yield _finding("clock", f"the node's clock differs by at most {max(1.0, offset_s):.0f} s", todo=todo)


def _on_node(told: Mapping[str, Any]) -> Finding:
    todo = told.get("todo")
    return Finding(name=f"node: {told['name']}", level=Level(told["level"]), found=str(told["found"]), todo=todo)


def _finding(name: str, found: str, *, todo: str | None = None, level: Level = Level.NOTE) -> Finding:
    """Return a finding. Without `todo`, the finding is ok. With `todo`, `level` says how serious the finding is."""
    return Finding(name=name, level=level if todo else Level.OK, found=found, todo=todo)


def _interpreter(python: str | None) -> Iterator[Finding]:
    yield _finding("tunebench's Python", f"{sys.version.split()[0]} ({sys.executable})")
    if python:
        exists = Path(python).expanduser().exists()  # raises OSError if the path is too long
        version = python_version(python)
        problem = "it gave no answer" if exists else "it does not exist"
        todo = None if version else f"{problem}; give --python the path of an existing interpreter"
        yield _finding(
            "training Python", f"{version} ({python})" if version else python, todo=todo, level=Level.MISSING
        )


def _packages(python: str | None) -> Iterator[Finding]:
    if python and python_version(python) is None:
        for name in (*NEEDED, *OPTIONAL):
            yield _finding(name, "unknown: the interpreter gave no answer", todo="see training Python")
        return
    installed = this_machine().packages(python)
    needed = {name: f"install it in the training environment: pip install {name}" for name in NEEDED}
    optional = {name: f"only needed for {purpose}" for name, purpose in OPTIONAL.items()}
    for name, how in {**needed, **optional}.items():
        version = installed.get(name)
        level = Level.MISSING if name in NEEDED else Level.NOTE
        todo = how if version is None else _other_version(name, version)
        yield _finding(name, version or "not installed", todo=todo, level=level)


def _other_version(name: str, version: str) -> str | None:
    """Return what to do about a version that Tunebench does not support; None if it is supported or unknown."""
    accepted = VERSIONS.get(name, "")
    with suppress(InvalidVersion):  # such as a checkout that is called "main"
        # A vendor's build of a release may have a version before it, such as NVIDIA's 2.4.0a0+….
        if not SpecifierSet(accepted).contains(Version(version).base_version):
            return f"Tunebench does not support this version: pip install '{name}{accepted}'"
    return None


def _torch(python: str | None) -> Finding:
    try:
        version, cuda, available, count, nccl = asked(python, TORCH_FACTS, IMPORT_TORCH, timeout_s=120)
    except (OrchestratorError, ValueError) as error:
        text = (str(error).strip().splitlines() or ["no answer"])[-1]
        started = not python or python_version(python) is not None
        todo = "repair the installation of torch" if started else "see training Python"
        return _finding("torch runs", text, todo=todo, level=Level.MISSING)
    if available:
        return _finding("torch runs", f"{version}, CUDA {cuda}, {count} device(s), NCCL {nccl}")
    todo = "install a build of torch with CUDA to use GPUs" if cuda is None else "torch sees no GPU: check the driver"
    return _finding("torch runs", f"{version}, CPU only", todo=todo)


def _gpus() -> Iterator[Finding]:
    gpus = this_machine().gpus
    if not gpus:
        todo = "only scenarios with `device: cpu` or `auto` run here; on a GPU machine check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
        yield _finding("GPUs", "none visible", todo=todo)
    for gpu in gpus:
        size = f", {gpu.memory_bytes / 2**30:.0f} GiB" if gpu.memory_bytes else ""
        yield _finding(f"GPU {gpu.index}", f"{gpu.name}{size}")


def _nvidia_smi() -> Finding:
    path = shutil.which("nvidia-smi")
    if path is None:
        todo = "install the NVIDIA driver, which contains it; without it there is no mem_nvidia_mem_reserved"
        return _finding("nvidia-smi", "not on PATH", todo=todo)
    try:
        driver = capture([path, "--query-gpu=driver_version", "--format=csv,noheader"], timeout_s=30).split()
    except OrchestratorError as error:
        return _finding("nvidia-smi", str(error), todo="check the NVIDIA driver")
    return _finding("nvidia-smi", f"{path}, driver {driver[0] if driver else 'unknown'}")


def _disk() -> Iterator[Finding]:
    for name, folder in (("disk here", Path.cwd()), ("disk of the data cache", cache_folder())):
        existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
        disk = shutil.disk_usage(existing)
        if not disk.total:  # such as ramfs
            yield _finding(name, f"it does not report its size ({folder})")
            continue
        todo = None if disk.free >= SMALL_DISK_BYTES else "free some space; prepared data and checkpoints may not fit"
        yield _finding(name, f"{disk.free / 2**30:.0f} GiB free ({folder})", todo=todo)


def _port() -> Finding:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", 0))
        except OSError as error:
            return _finding("ports", str(error), todo="let processes listen on 127.0.0.1", level=Level.MISSING)
    return _finding("ports", "127.0.0.1 has a free port")


def _control_group() -> Finding:
    group = cgroup.create(uuid.uuid4().hex)
    if group is not None:
        group.remove()
        return _finding("control groups", "each run gets its own")
    todo = "let this user create control groups (systemd: Delegate=yes), else a daemon may go on if run-one is killed"
    return _finding("control groups", "none can be created", todo=todo)


def _hub() -> Iterator[Finding]:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    models = len(list((home / "hub").glob("models--*")))
    yield _finding("HF cache", f"{home}, {models} model(s) in it")
    offline = [
        name for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE") if os.environ.get(name)
    ]
    todo = "unset them to load models from the hub; now only cached models and local folders load" if offline else None
    yield _finding("offline switches", f"{', '.join(offline)} set" if offline else "not set", todo=todo)


def as_json(findings: list[Finding]) -> str:
    """Return the findings as one JSON list."""
    return json.dumps(masker()([asdict(finding) for finding in findings]), indent=2) + "\n"


def as_table(findings: list[Finding]) -> Table:
    """Return the findings as a table."""
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
