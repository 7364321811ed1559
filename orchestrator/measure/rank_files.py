"""Reads the files that a run's ranks write at their end: start-up times, memory, and problems.

The functions take the worker files of a run, with rank 0's file first. They return numbers and sentences. `throughput` reads steps.

Any program may write such a file. A file with a value of another type than `_RankFile` says is not used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from orchestrator.files import reading
from orchestrator.records import Caveat, CaveatKind, RunFolder, load

Number = float | int
Worker = Mapping[str, Any]
Cells = dict[str, Any]

STAGES = ("after_load", "first_step", "steady")
# If the training waited for a core for more than this share of its time, its speed is that of a busy host.
LONG_CORE_WAIT = 0.1
_STAGES_OF_COMPILATION = {
    "dynamo_s": "dynamo_compile_s",
    "inductor_s": "inductor_compile_s",
    "other_s": "other_compile_s",
}
_MEMORY_OF_A_STAGE = {
    "peak_allocated": "peak_allocated_bytes",
    "peak_reserved": "peak_reserved_bytes",
    "host_rss": "rss_bytes",
}


# Larger numbers may be too large for a float. A count may be one of bytes, or a sum of tensors, which is a float.
_Count = Annotated[float, Field(ge=0, lt=2.0**63)] | None
_Number = Annotated[float, Field(gt=-(2.0**63), lt=2.0**63)] | None
_Whole = Annotated[int, Field(ge=0, lt=2**31)] | None


@dataclass(frozen=True, slots=True)
class _Rule:
    """The scenario's `measure:`."""

    at_most_steps: _Whole = None
    at_least_steps: _Whole = None
    discard_steps: _Whole = None


@dataclass(frozen=True, slots=True)
class _Settings:
    """Those settings in effect on which all counts depend. The others come from the user's model and arguments."""

    world_size: _Whole = None
    data_parallel_ranks: _Whole = None


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The counts of a rank."""

    steps: _Count = None
    micro: _Count = None
    processed: _Count = None
    real: _Count = None
    labelled: _Count = None
    samples: _Count = None


@dataclass(frozen=True, slots=True)
class _Memory:
    """Memory at a stage, or at the peak of the process."""

    allocated_bytes: _Count = None
    reserved_bytes: _Count = None
    peak_allocated_bytes: _Count = None
    peak_reserved_bytes: _Count = None
    saved_for_backward_bytes: _Count = None
    rss_bytes: _Count = None
    alloc_retries: _Count = None
    ooms: _Count = None


@dataclass(frozen=True, slots=True)
class _Compiling:
    """The stages of compilation, in seconds, and the graphs in Inductor's cache."""

    dynamo_s: float
    inductor_s: float
    other_s: float
    cache_hits: int
    cache_misses: int
    reasons: list[str] | None = None


@dataclass(frozen=True, slots=True)
class _Profile:
    """The profiled steps and the file that has them, or the reason why there is no file."""

    first_step: _Whole = None
    last_step: _Whole = None
    file: str | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class _RankFile:
    """The content of `worker-rank<R>.json` (`workers/instrument/recorder.py`) that is read here. It may have more fields."""

    rank: _Whole = None
    world_size: _Whole = None
    host: str | None = None
    clock: str | None = None
    error: dict[str, Any] | None = None
    stopped: dict[str, _Number | str] | None = None
    stamps: dict[str, _Number] | None = None
    core_wait: dict[str, _Number] | None = None
    metrics: dict[str, Any] | None = None
    tokens: _Tokens | None = None
    peak: _Memory | None = None
    memory: dict[str, _Memory | None] | None = None
    gpu: dict[str, Any] | None = None
    settings: _Settings | None = None
    versions: dict[str, Any] | None = None
    losses: Any = None
    log_times: Any = None
    nonfinite_step: _Whole = None
    measure: _Rule | None = None
    toggle_steps: _Whole = None
    steps_from: str | None = None
    steps_note: str | None = None
    steps_problem: str | None = None
    instrument_error: str | None = None
    undivided: str | None = None
    waits_unknown: str | None = None
    compiling: _Compiling | None = None
    profile: dict[str, _Profile | None] | None = None


def worker_files(run_dir: Path) -> list[dict[str, Any]]:
    """Return the content of each rank's file, by rank. Skip files that cannot be read, and files with values of wrong types."""
    contents = (_content(path) for path in RunFolder(run_dir).all_workers().values())
    return sorted((one for one in contents if isinstance(one, dict)), key=lambda content: int(content.get("rank") or 0))


def why_wrong(run_dir: Path) -> str | None:
    """Return a sentence about the first value with a wrong type in the ranks' files. Return None if all types are right."""
    contents = ((path.name, _content(path)) for path in RunFolder(run_dir).all_workers().values())
    return next((f"{name} has a wrong value: {one}" for name, one in contents if isinstance(one, str)), None)


def _content(path: Path) -> dict[str, Any] | str | None:
    """Return the content of a rank's file, or what is wrong with its first wrong value. Return None if it cannot be read."""
    try:
        content = reading.read_json(path, limit=reading.RECORD_BYTES, finite=False)
    except (OSError, ValueError):
        return None
    try:
        load(_RankFile, json.dumps(content))
    except ValueError as error:
        return str(error)
    return dict(content)


def ranks_per_batch(first: Worker) -> int:
    """Return how many neighbouring ranks got the same batch: 1 unless ranks divided the rows of a batch, or the model."""
    settings = first.get("settings") or {}
    size, own = settings.get("world_size"), settings.get("data_parallel_ranks")
    return max(1, size // own) if isinstance(size, int) and isinstance(own, int) and own > 0 else 1


def last_step(first: Worker) -> int | None:
    """Return the number of steps that count, or None for all. A program may make more steps while it is being ended."""
    ends = ((first.get(name) or {}).get(key) for name, key in (("stopped", "step"), ("measure", "at_most_steps")))
    return min((end for end in ends if isinstance(end, int)), default=None)


def numbers(workers: Sequence[Worker], *, world_size: int) -> Cells:
    """Return start-up times, memory and the reason for an early end, named after their metrics."""
    stopped = workers[0].get("stopped") or {}
    return {
        **_start_up(workers[0]),
        **_memory(workers, world_size),
        **_compiling(workers),
        "core_wait_share": longest_core_wait(workers),
        "stopped_early": stopped.get("why"),
    }


def longest_core_wait(workers: Sequence[Worker]) -> float | None:
    """Return the largest share of time for which one of the processes waited for a core. Return None if it is unknown."""
    return max(filter(None, map(_core_wait, workers)), default=None)


def _core_wait(worker: Worker) -> float | None:
    """Return the time that a rank's threads waited for a core, as a share of the time after its first step."""
    wait = worker.get("core_wait") or {}
    waited_s, wall_s = wait.get("waited_s"), wait.get("wall_s")
    return waited_s / wall_s if waited_s is not None and wall_s else None


def busy_host(core_wait_share: float | None) -> Iterator[Caveat]:
    """Yield a caveat if the training waited long for a core."""
    if core_wait_share is not None and core_wait_share > LONG_CORE_WAIT:
        detail = f"a process's threads waited for a core in {core_wait_share:.0%} of the time"
        yield Caveat(kind=CaveatKind.BUSY_HOST, detail=detail)


def warnings(workers: Sequence[Worker], numbers: Cells) -> Iterator[str]:
    """Yield sentences about problems with the numbers of a run. The second argument is the result of the function `numbers`."""
    for worker in workers:
        rank, tokens = worker.get("rank", 0), worker.get("tokens") or {}
        unknown = f"rank {rank}'s tokens are unknown"
        if worker.get("instrument_error"):
            yield f"rank {rank} could not be measured to its end: {worker['instrument_error']}"
        elif tokens.get("steps") and not tokens.get("micro", 1):
            yield f"{unknown}: its Trainer overrides training_step and does not call the base class's"
        elif tokens.get("steps") and tokens.get("processed", 0) is None:
            yield f"{unknown}: a batch had no `input_ids`, or its tokens could not be counted"
    if note := workers[0].get("steps_note"):
        yield note
    if block := workers[0].get("toggle_steps"):
        yield f"the instrument was off in every other block of {block} steps (TUNEBENCH_TOGGLE_STEPS): speeds are of the others"
    reasons = (workers[0].get("compiling") or {}).get("reasons")
    if numbers.get("recompiled_steps") and reasons:
        yield f"torch compiled again because of guards: {'; '.join(reasons)}"
    if retries := numbers.get("alloc_retries"):
        yield (
            f"the allocator freed its cache and tried again {retries} time(s): memory is nearly full, "
            "and the speed suffers from it"
        )


def _start_up(first: Worker) -> Cells:
    """Return the times of rank 0 before its first step, in seconds."""
    stamps = first.get("stamps") or {}

    def between(start: str, end: str) -> float | None:
        return stamps[end] - stamps[start] if stamps.get(start) and stamps.get(end) else None

    return {
        "startup_s": between("process_start", "imports_done"),
        "model_load_s": between("imports_done", "model_built"),
        "trainer_setup_s": between("model_built", "train_begin"),
    }


def _compiling(workers: Sequence[Worker]) -> Cells:
    """Return the stages of compilation in the rank that took longest. Return {} if a rank's stages are not known."""
    known = [one for worker in workers if isinstance(one := worker.get("compiling"), Mapping)]
    if len(known) < len(workers):
        return {}
    stages = max(known, key=lambda one: sum(one[name] for name in _STAGES_OF_COMPILATION))
    graphs = stages["cache_hits"] + stages["cache_misses"]
    return {
        **{metric: stages[name] for name, metric in _STAGES_OF_COMPILATION.items()},
        "compile_cache_hit_share": stages["cache_hits"] / graphs if graphs else None,
    }


def stage_cells(worker: Worker) -> Cells:
    """Return a rank's memory at each stage. Add the retries and failures of its allocator until the end of the last stage."""
    stages = {name: _stage(worker, name) for name in STAGES}
    cells = {
        f"{column}_{stage}_bytes": memory.get(name)
        for stage, memory in stages.items()
        for column, name in _MEMORY_OF_A_STAGE.items()
    }
    last = next((memory for memory in reversed(stages.values()) if memory), {})
    return {**cells, "alloc_retries": last.get("alloc_retries"), "cuda_ooms": last.get("ooms")}


def _stage(worker: Worker, name: str) -> Mapping[str, Any]:
    return (worker.get("memory") or {}).get(name) or {}


def _memory(workers: Sequence[Worker], world_size: int) -> Cells:
    """Return the GPU memory of the rank that uses most, and the sum of all ranks' host memory. If a rank is missing, return {}."""
    if len(workers) < world_size:
        return {}
    peaks = [worker.get("peak") or {} for worker in workers]
    stages = {name: [_stage(worker, name) for worker in workers] for name in STAGES}
    return {
        "peak_allocated_bytes": _over_ranks(max, peaks, "allocated_bytes"),
        "peak_reserved_bytes": _over_ranks(max, peaks, "reserved_bytes"),
        "allocated_after_load_bytes": _over_ranks(max, stages["after_load"], "allocated_bytes"),
        "peak_allocated_first_step_bytes": _over_ranks(max, stages["first_step"], "peak_allocated_bytes"),
        "peak_allocated_steady_bytes": _over_ranks(max, stages["steady"], "peak_allocated_bytes"),
        "alloc_retries": _over_ranks(sum, stages["steady"], "alloc_retries"),
        "cuda_ooms": _over_ranks(sum, stages["steady"], "ooms"),
        "host_rss_bytes": _over_ranks(sum, peaks, "rss_bytes"),
        "saved_for_backward_bytes": _over_ranks(max, peaks, "saved_for_backward_bytes"),
    }


def _over_ranks(combine: Callable[[list[Any]], Number], rows: Sequence[Mapping[str, Any]], name: str) -> Number | None:
    """Return the sum or maximum of one number over all ranks, or None if a rank lacks the number."""
    values = [row.get(name) for row in rows]
    return None if None in values else combine(values)
