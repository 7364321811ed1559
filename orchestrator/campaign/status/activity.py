"""The activity of a running run: its phase, step, speed and memory, read from the ends of its files.

Only the end of a file is read, and only if the file has changed. So a view does not disturb a measurement. Steps that compiled may
be earlier in a file than this end; `compiled_steps` finds them. The speed is that of the last steps and includes pauses for
evaluation and saving, so it is not the steady-state speed. Without a declared warm-up, the first steps count as warm-up. Memory is
the monitor's last reading for the fullest GPU; it is not a peak. Without the instrument, the only phase of a training is `RUNNING`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator import trainers
from orchestrator.campaign.status import compiled_steps
from orchestrator.errors import SelectionError
from orchestrator.files import reading as untrusted
from orchestrator.measure import memory_logs
from orchestrator.measure.gpu_timeline import sampler_file
from orchestrator.measure.steps import recompilations
from orchestrator.measure.steps.printed import StepLines
from orchestrator.plan.command.parallelism import context_size
from orchestrator.records import Experiment, RunFolder, StepSource, whole_number
from orchestrator.trainers.trainer import StepReader, as_printed

# The speed is computed from at most this number of steps.
LAST_STEPS = 10
# If no warm-up is declared, this number of steps counts as warm-up, but at most half of the run.
FIRST_STEPS = 10

_STEP_TAIL_BYTES, _SAMPLE_TAIL_BYTES = 4096, 16384
# Lines of the monitors' files that contain the memory in use on a GPU.
_NVML = re.compile(rb"^[^,]*,(?P<gpu>[^,]*),memory,(?P<used>\d+(?:\.\d+)?)\s*$")
_NVIDIA_SMI = re.compile(rb", (?P<gpu>\d+), (?P<used>\d+(?:\.\d+)?) MiB\s*$")


class Phase(StrEnum):
    """The phase of a run. `PREPARING`: its training has not started; `RUNNING`: training has started, and nothing more is known."""

    PREPARING = "preparing"
    LOADING = "loading"
    WARMING_UP = "warming up"
    MEASURING = "measuring"
    RUNNING = "running"
    ENDING = "ending"


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """The activity of a run; unknown values are None.

    `of` is the largest number of steps that the training may make. `left_s` is an estimate of the time for the remaining steps
    (`compiled_steps.left_s`). `tokens_per_s` is the sum over ranks and includes padding. `recompiled_at` has the numbers of the
    steps that recompiled; `widths_vary` says whether batches of new widths caused the recompilations. `problem` names a damaged
    file.
    """

    phase: Phase
    step: int | None = None
    of: int | None = None
    step_time_s: float | None = None
    tokens_per_s: float | None = None
    loss: float | None = None
    memory_bytes: float | None = None
    left_s: float | None = None
    recompiled_at: tuple[int, ...] = ()
    widths_vary: bool = False
    problem: str | None = None


def look(run_dir: Path, experiment: Experiment) -> Activity:
    """Return the current activity of the run in this folder."""
    folder = RunFolder(run_dir)
    printed = experiment.steps is StepSource.STDOUT
    files = [folder.stdout] if printed else [folder.steps(rank) for rank in range(experiment.num_gpus)]
    printed_as = _step_reader(experiment) if printed else None
    ranks = [_lines(file, printed_as) for file in files]
    first = ranks[0] if ranks else None
    if first is None or (printed and not first.steps):
        return Activity(phase=_phase_without_steps(folder, experiment), memory_bytes=_memory(run_dir, experiment))
    step = int(first.steps[-1]["step"]) if first.steps else 0
    of = planned_steps(experiment)
    step_time_s = sum(line["s"] for line in first.steps) / len(first.steps) if first.steps else None
    may_end_early = experiment.measure is not None and experiment.measure.within is not None
    compiled = {} if printed else compiled_steps.read(files)
    recompiled = [one for one in compiled.values() if one.recompiled]
    damaged = next((rank for rank, lines in enumerate(ranks) if lines and lines.damaged), None)
    return Activity(
        phase=_phase(folder, experiment, first, step),
        step=step,
        of=of,
        step_time_s=step_time_s,
        tokens_per_s=_tokens_per_s(ranks[:: context_size(experiment.accelerate)]),
        loss=first.loss,
        memory_bytes=_memory(run_dir, experiment),
        left_s=compiled_steps.left_s(first.steps, compiled, of=None if may_end_early else of),
        recompiled_at=tuple(one.number for one in recompiled),
        widths_vary=recompilations.widths_vary(recompiled),
        problem=None if damaged is None else f"{files[damaged]}: some lines are not JSON",
    )


def _step_reader(experiment: Experiment) -> StepReader:
    try:
        return trainers.get(experiment.trainer).step_reader(experiment)
    except SelectionError:  # a trainer of another package, which is not installed here
        return as_printed


def planned_steps(experiment: Experiment) -> int | None:
    """Return the largest number of steps that the training may make. Return None if only epochs limit the training."""
    max_steps = whole_number(experiment.arguments.get("max_steps"))
    limits = [] if max_steps is None else [max_steps]
    if experiment.measure is not None and experiment.measure.at_most_steps is not None:
        limits.append(experiment.measure.at_most_steps)
    return min((limit for limit in limits if limit > 0), default=None)


def _phase_without_steps(folder: RunFolder, experiment: Experiment) -> Phase:
    if not folder.stdout.exists():
        return Phase.PREPARING
    if folder.worker(0).exists():
        return Phase.ENDING
    try:
        instrumented = trainers.get(experiment.trainer).instrumented
    except SelectionError:  # a trainer of another package, which is not installed here
        instrumented = False
    return Phase.LOADING if instrumented or experiment.steps else Phase.RUNNING


def _phase(folder: RunFolder, experiment: Experiment, lines: _Lines, step: int) -> Phase:
    if lines.ended or folder.worker(0).exists():
        return Phase.ENDING
    declared = experiment.measure.discard_steps if experiment.measure else None
    of = planned_steps(experiment)
    warm_up = declared if declared is not None else FIRST_STEPS if of is None else min(FIRST_STEPS, of // 2)
    return Phase.WARMING_UP if step < max(1, warm_up) else Phase.MEASURING


def _tokens_per_s(ranks: Sequence[_Lines | None]) -> float | None:
    """Return the sum of the rates of data-parallel ranks over their last steps; None if a rank has no rate."""
    rates = [_rate(lines.steps) if lines else None for lines in ranks]
    return None if None in rates else sum(rate for rate in rates if rate is not None)


def _rate(steps: Sequence[dict[str, Any]]) -> float | None:
    tokens, seconds = [step.get("tokens") for step in steps], sum(step["s"] for step in steps)
    known = [count for count in tokens if isinstance(count, int)]
    return sum(known) / seconds if known and len(known) == len(tokens) and seconds > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lines:
    """The end of a step file. `loss` is the last loss. `ended`: the training has ended. `damaged`: a complete line is not JSON."""

    steps: tuple[dict[str, Any], ...]
    loss: float | None
    ended: bool
    damaged: bool


def _lines(path: Path, printed_as: StepReader | None) -> _Lines | None:
    """Return the end of a step file, or None without the file. `printed_as` reads the lines of a trainer that prints its steps."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return _read_lines(path, seen.st_size, seen.st_mtime_ns, printed_as)


@lru_cache(maxsize=256)
def _read_lines(path: Path, _size: int, _changed_ns: int, printed_as: StepReader | None) -> _Lines:
    tail = _tail(path, _STEP_TAIL_BYTES)
    if printed_as is None:
        lines = [*map(_object, tail)]
    else:
        lines = [*StepLines(translate=printed_as).feed(b"".join(line + b"\n" for line in tail))]
    whole = [line for line in lines if line is not None]
    losses = [line["loss"] for line in whole if _is_number(line.get("loss"))]
    steps = [line for line in whole if _is_number(line.get("s")) and isinstance(line.get("step"), int)]
    return _Lines(
        steps=tuple(steps[-LAST_STEPS:]),
        loss=losses[-1] if losses else None,
        ended=bool(whole) and "ended" in whole[-1],
        damaged=len(whole) < len(lines),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and untrusted.sound_number(value) is not None


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line, or None."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _tail(path: Path, length: int) -> list[bytes]:
    """Return the last complete lines of a file that a process is writing. Return no lines if the file cannot be read."""
    try:
        with untrusted.opened(path) as file:
            start = max(0, os.fstat(file.fileno()).st_size - length)
            file.seek(start)
            pieces = file.read(length).split(b"\n")
    except (OSError, ValueError):
        return []
    return pieces[1 if start else 0 : -1]


def _memory(run_dir: Path, experiment: Experiment) -> float | None:
    """Return the bytes in use on the fullest of the run's GPUs, from the last readings of a monitor."""
    for name, pattern, unit in ((sampler_file.SAMPLES, _NVML, 1), (memory_logs.SAMPLES, _NVIDIA_SMI, 2**20)):
        last: dict[bytes, float] = {}
        for line in reversed(_tail(run_dir / name, _SAMPLE_TAIL_BYTES)):
            match = pattern.search(line)
            if match and len(last) < experiment.num_gpus:
                last.setdefault(match["gpu"], float(match["used"]) * unit)
        if last:
            return max(last.values())
    return None
