"""The comparison of an estimate with a GPU's capacity, and the words that a plan shows.

This module prints nothing.

- *fits*: the memory that the GPU would show as used is within the GPU's capacity.
- *does not fit*: the tensors need more than the capacity minus the context. This would be true even if the estimate were 5 %
  too high (ESTIMATE_ERROR) and the allocator had no reserve.
- *may not fit*: the estimate is between these two cases. The run may fail because memory runs out. Or it may succeed but be slow,
  because the allocator has to search for free memory.
- *unknown*: there is no estimate.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from orchestrator.errors import SelectionError
from orchestrator.plan.forecast.memory_fit.estimate import GIB, Estimate, Unknown, estimate
from orchestrator.records import Experiment

# Largest error of the estimate of the tensors, as a share. The largest error in 29 measured cells of three models was 1.7 %;
# docs/memory-fit.md lists these cells.
ESTIMATE_ERROR = 0.05

# Share of a GPU's nominal memory (NVML's total) that CUDA can give out: 79.2 of 79.6 GiB on an H100. The driver uses the rest.
VISIBLE_SHARE = 0.995

_UNITS = {"GIB": 1 << 30, "GB": 10**9, "MIB": 1 << 20}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


class Fit(StrEnum):
    """The result of comparing an estimate with a GPU's capacity."""

    FITS = "fits"
    DOES_NOT_FIT = "does not fit"
    MAY_NOT_FIT = "may not fit"
    UNKNOWN = "unknown"


def fits(result: Estimate | Unknown, gpu_memory_bytes: int) -> Fit:
    """Return whether the estimate fits on a GPU with this nominal memory."""
    if isinstance(result, Unknown):
        return Fit.UNKNOWN
    visible = gpu_memory_bytes * VISIBLE_SHARE
    if result.device_bytes <= visible:
        return Fit.FITS
    least = result.peak_allocated_bytes * (1 - ESTIMATE_ERROR) + result.context_bytes
    return Fit.DOES_NOT_FIT if least > visible else Fit.MAY_NOT_FIT


def parse_memory(text: str, *, option: str = "--gpu-memory") -> int:
    """Return the bytes of `80GiB`, `80 GB` or `81920MiB`.

    Raises SelectionError for other texts, such as a number without a unit.
    """
    match = _SIZE.fullmatch(text.strip())
    number, unit = (float(match[1]), match[2].upper()) if match else (0.0, "")
    if match and not unit:
        raise SelectionError(f"{option} {text!r} has no unit; write {text.strip()}GiB, {text.strip()}GB or MiB")
    if unit not in _UNITS or not (number > 0 and math.isfinite(number)):
        raise SelectionError(f"{option} {text!r} is invalid; write a number with GiB, GB or MiB, such as 80GiB")
    return round(number * _UNITS[unit])


def column(experiments: Iterable[Experiment], *, gpu_memory_bytes: int | None = None) -> tuple[str, ...]:
    """Return a text for each experiment: the memory that its GPUs would show as used, and whether the experiment fits."""
    return tuple(_cell(estimate(experiment), gpu_memory_bytes) for experiment in experiments)


def _cell(result: Estimate | Unknown, gpu_memory_bytes: int | None) -> str:
    if isinstance(result, Unknown):
        return f"unknown: {result.reason}"
    needed = f"{result.device_bytes / GIB:.1f} GiB"
    if gpu_memory_bytes is None:
        return needed
    verdict = fits(result, gpu_memory_bytes)
    if verdict is Fit.DOES_NOT_FIT:
        return f"{verdict}: {result.device_bytes / GIB:.0f} GiB"
    of_capacity = f"{needed} of {gpu_memory_bytes / GIB:.3g} GiB"
    return of_capacity if verdict is Fit.FITS else f"{verdict}: {of_capacity}"


def summary(experiments: Iterable[Experiment], *, gpu_memory_bytes: int) -> str:
    """Return one sentence: how many of the experiments fit."""
    counts = Counter(fits(estimate(experiment), gpu_memory_bytes) for experiment in experiments)
    return (
        f"On GPUs of {gpu_memory_bytes / GIB:.3g} GiB: {counts[Fit.FITS]:,} fit, {counts[Fit.DOES_NOT_FIT]:,} do not fit, "
        f"{counts[Fit.MAY_NOT_FIT] + counts[Fit.UNKNOWN]:,} unknown or too close."
    )


def json_value(experiment: Experiment, *, gpu_memory_bytes: int | None = None) -> dict[str, Any]:
    """Return an experiment's estimate for a JSON document: its parts in bytes, or the reason why it has no estimate."""
    result = estimate(experiment)
    verdict = {} if gpu_memory_bytes is None else {"verdict": str(fits(result, gpu_memory_bytes))}
    if isinstance(result, Unknown):
        return {**verdict, "unknown": result.reason}
    totals = {"peak_allocated_bytes": result.peak_allocated_bytes, "device_bytes": result.device_bytes}
    return {**verdict, **totals, "moment": str(result.moment), "unmeasured": list(result.unmeasured), **result.parts}


def unmeasured_line(results: Iterable[Estimate | Unknown]) -> Iterator[str]:
    """If parts of these estimates were not yet compared with a run on a GPU, yield a sentence that names these parts."""
    parts = dict.fromkeys(part for one in results if isinstance(one, Estimate) for part in one.unmeasured)
    if parts:
        yield f"The estimates of memory for {', '.join(parts)} were not yet compared with a run on a GPU."
