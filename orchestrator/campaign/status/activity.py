"""What a running run is at, by the ends of its files: its phase, its step, its speed over the last steps, its memory. Only looks.

For a view beside a measurement: a file is looked at before it is read, and then its end alone. What the numbers leave out: the
speed is that of the last steps, with pauses for evaluation and saving in them, and no steady state; where the warm-up is not
declared, the first steps count as warm-up until `steady` finds it in the end. Memory is what the run's monitor read last, on the
GPU that had most in use, and no peak. A trainer without the instrument is running, and says no more.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from orchestrator import trainers
from orchestrator.errors import SelectionError
from orchestrator.files import reading as untrusted
from orchestrator.measure import gpu_timeline
from orchestrator.monitors import nvidia_smi
from orchestrator.records import Experiment, RunFolder

LAST_STEPS = 10
"""Over how many steps the speed is taken, at most."""

FIRST_STEPS = 10
"""Undeclared warm-up for as long as a run goes on: where `steady` still takes a spike for one. Half of the run at most."""

_STEP_TAIL_BYTES, _SAMPLE_TAIL_BYTES = 4096, 16384
_MIB = 2**20
_NVIDIA_SMI = re.compile(r", (?P<index>\d+), (?P<mib>\d+(?:\.\d+)?) MiB\s*$")


class Phase(StrEnum):
    """Where a run is. `PREPARING`: its training has not been started; `RUNNING`: it has, and nothing more can be told."""

    PREPARING = "preparing"
    LOADING = "loading"
    WARMING_UP = "warming up"
    MEASURING = "measuring"
    RUNNING = "running"
    ENDING = "ending"


@dataclass(frozen=True, kw_only=True, slots=True)
class Activity:
    """What a run is at. `of` is how many steps it makes at most, `left_s` what those to come take at the speed of the last ones.

    `tokens_per_s` is of all ranks, padding too. What cannot be told is None. `problem` names a file that is damaged.
    """

    phase: Phase
    step: int | None = None
    of: int | None = None
    step_time_s: float | None = None
    tokens_per_s: float | None = None
    loss: float | None = None
    memory_bytes: float | None = None
    left_s: float | None = None
    problem: str | None = None


def look(run_dir: Path, experiment: Experiment) -> Activity:
    """What the run of this folder is at now, as its files show it."""
    folder = RunFolder(run_dir)
    ranks = [_lines(folder.steps(rank)) for rank in range(experiment.num_gpus)]
    first = ranks[0] if ranks else None
    if first is None:
        return Activity(phase=_phase_without_steps(folder, experiment), memory_bytes=_memory(run_dir, experiment))
    last = first.steps[-1] if first.steps else None
    step = int(last["step"]) if last else 0
    of = planned_steps(experiment)
    step_time_s = sum(one["s"] for one in first.steps) / len(first.steps) if first.steps else None
    open_ended = of is None or (experiment.measure is not None and experiment.measure.within is not None)
    damaged = next((rank for rank, lines in enumerate(ranks) if lines and lines.damaged), None)
    return Activity(
        phase=_phase(folder, experiment, first, step),
        step=step,
        of=of,
        step_time_s=step_time_s,
        tokens_per_s=_tokens_per_s(ranks),
        loss=first.loss,
        memory_bytes=_memory(run_dir, experiment),
        left_s=None if open_ended or of is None or step_time_s is None else max(0, of - step) * step_time_s,
        problem=None if damaged is None else f"{folder.steps(damaged)}: lines that are no JSON",
    )


def planned_steps(experiment: Experiment) -> int | None:
    """How many steps its training makes at most; None where epochs say so, or nothing does."""
    asked = experiment.arguments.get("max_steps")
    limits = [int(asked)] if isinstance(asked, str) and asked.isdecimal() else []
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
    except SelectionError:  # somebody else's, which is not installed here
        instrumented = False
    return Phase.LOADING if instrumented else Phase.RUNNING


def _phase(folder: RunFolder, experiment: Experiment, lines: _Lines, step: int) -> Phase:
    if lines.ended or folder.worker(0).exists():
        return Phase.ENDING
    declared = experiment.measure.discard_steps if experiment.measure else None
    of = planned_steps(experiment)
    warm_up = declared if declared is not None else FIRST_STEPS if of is None else min(FIRST_STEPS, of // 2)
    return Phase.WARMING_UP if step < max(1, warm_up) else Phase.MEASURING


def _tokens_per_s(ranks: Sequence[_Lines | None]) -> float | None:
    """The sum over ranks of what each made in its last steps; None where one of them tells nothing."""
    rates = [_rate(lines.steps) if lines else None for lines in ranks]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None


def _rate(steps: Sequence[dict[str, Any]]) -> float | None:
    tokens, seconds = [one.get("tokens") for one in steps], sum(one["s"] for one in steps)
    known = [count for count in tokens if isinstance(count, int)]
    return sum(known) / seconds if known and len(known) == len(tokens) and seconds > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lines:
    """The end of a step file: the last steps, the last loss, whether training has ended; whether a whole line was no JSON."""

    steps: tuple[dict[str, Any], ...]
    loss: float | None
    ended: bool
    damaged: bool


def _lines(path: Path) -> _Lines | None:
    """None where there is no such file."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return _read_lines(path, seen.st_size, seen.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_lines(path: Path, size: int, _changed_ns: int) -> _Lines:
    found = [*_objects(_tail(path, size, _STEP_TAIL_BYTES))]
    known = [one for one in found if one is not None]
    losses = [one["loss"] for one in known if _is_number(one.get("loss"))]
    return _Lines(
        steps=tuple(one for one in known if _is_step(one))[-LAST_STEPS:],
        loss=losses[-1] if losses else None,
        ended=bool(known) and "ended" in known[-1],
        damaged=len(known) < len(found),
    )


def _is_step(line: dict[str, Any]) -> bool:
    return _is_number(line.get("s")) and isinstance(line.get("step"), int)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and untrusted.sound_number(value) is not None


def _objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any] | None]:
    """Each line as the object that it holds; None for one that holds none."""
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        yield value if isinstance(value, dict) else None


def _tail(path: Path, size: int, length: int) -> list[bytes]:
    """The last whole lines of a file that is being written: half a line at its end is no line yet."""
    start = max(0, size - length)
    try:
        with untrusted.opened(path) as file:
            file.seek(start)
            pieces = file.read(length).split(b"\n")
    except (OSError, ValueError):
        return []
    return pieces[1 if start else 0 : -1]


def _memory(run_dir: Path, experiment: Experiment) -> float | None:
    """Bytes in use on the fullest of the run's GPUs, by its monitor's last readings."""
    for name, reading in ((gpu_timeline.SAMPLES, _nvml_reading), (nvidia_smi.SAMPLES, _nvidia_smi_reading)):
        last: dict[str, float] = {}
        for line in reversed(_samples(run_dir / name)):
            found = reading(line.decode("utf-8", "replace"))
            if found is not None:
                last.setdefault(*found)
            if len(last) == experiment.num_gpus:
                break
        if last:
            return max(last.values())
    return None


def _samples(path: Path) -> list[bytes]:
    try:
        size = os.stat(path).st_size
    except OSError:
        return []
    return _tail(path, size, _SAMPLE_TAIL_BYTES)


def _nvml_reading(line: str) -> tuple[str, float] | None:
    """The GPU's place and its bytes in use, of a line that says that."""
    cells = line.split(",")
    if len(cells) != 4 or cells[2] != "memory":
        return None
    try:
        return cells[1], float(cells[3])
    except ValueError:
        return None


def _nvidia_smi_reading(line: str) -> tuple[str, float] | None:
    match = _NVIDIA_SMI.search(line)
    return (match["index"], float(match["mib"]) * _MIB) if match else None
