"""The batch script of an array. Pure.

The script has only resources, the site's prologue and one command. Variables of the submitter, such as a token, travel in the
environment and never stand in the script.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.executors.slurm.batches import Batch
from orchestrator.executors.slurm.site import Site
from orchestrator.records import Device

_MINUTE_S = 60


def batch_script(batch: Batch, site: Site, *, folder: Path, run_array: Sequence[str]) -> str:
    """Return the script of a batch. `run_array` is the command that carries out one element; `folder` is the batch's folder."""
    command = shlex.join([*run_array, str(folder)])
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in _options(batch, site)), ""]
    lines += [site.prologue.rstrip(), ""] if site.prologue.strip() else []
    # Not quoted as a word: a site file allows no other special characters than the $ of variables, which the node replaces.
    lines += [f'export TMPDIR="{site.scratch}"', 'mkdir -p "$TMPDIR"'] if site.scratch else []
    return "\n".join([*lines, f'exec {command} "$SLURM_ARRAY_TASK_ID"', ""])


def _options(batch: Batch, site: Site) -> Iterator[str]:
    shape, throttle = batch.shape, f"%{site.throttle}" if site.throttle else ""
    yield f"--job-name={batch.name}"
    yield f"--array=0-{len(batch.elements) - 1}{throttle}"
    yield "--open-mode=append"
    yield "--requeue"
    yield f"--nodes={shape.num_nodes}"
    yield "--ntasks-per-node=1"
    if shape.device is Device.CUDA:
        kind = f"{site.gpu_type}:" if site.gpu_type else ""
        yield f"--gres=gpu:{kind}{shape.per_node}"
        if site.cpus_per_gpu:
            yield f"--cpus-per-task={site.cpus_per_gpu * shape.per_node}"
        if site.mem_per_gpu:
            yield f"--mem-per-gpu={site.mem_per_gpu}"
    else:
        yield f"--cpus-per-task={shape.per_node}"
    if batch.time_s is not None:
        yield f"--time={slurm_time(batch.time_s)}"
    for name in ("partition", "account", "qos", "constraint"):
        if value := getattr(site, name):
            yield f"--{name}={value}"
    yield from site.lines


def slurm_time(seconds: float) -> str:
    """Return a time limit as Slurm writes it. Slurm counts in minutes, so the limit is rounded up to a whole minute."""
    minutes = math.ceil(seconds / _MINUTE_S)
    days, rest = divmod(minutes, 24 * 60)
    return (f"{days}-" if days else "") + f"{rest // 60:02}:{rest % 60:02}:00"
