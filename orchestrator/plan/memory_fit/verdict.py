"""An estimate against a card: fits, does not fit, or unknown, with the words that a plan shows.

Between the two lies a zone that is honestly unknown: the estimate may be off by 5 % (ESTIMATE_ERROR), and the allocator's
reserve is comfort, not need. *Fits*: what the card would show as used is within it. *Does not fit*: the tensors alone, a
twentieth fewer and without any reserve, are more than it has beside the context. What lies between may run, slower for the
allocator's searching, or end out of memory. Text in, values and text out; nothing is printed here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from orchestrator.errors import SelectionError
from orchestrator.plan.memory_fit.estimate import GIB, Estimate, Unknown, estimate
from orchestrator.records import Experiment

ESTIMATE_ERROR = 0.05
"""How far the estimate of the tensors may be from the truth, as a share. The largest error against 29 measured cells of three
models was 1.7 %; docs/memory-fit.md lists them."""

VISIBLE_SHARE = 0.995
"""Of the memory on a card's label, what torch may have: 79.6 of 80 GiB on an H100. The rest is the driver's."""

_UNITS = {"GIB": 1 << 30, "GB": 10**9, "MIB": 1 << 20}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


class Fit(StrEnum):
    """Whether an experiment can run on a card."""

    FITS = "fits"
    DOES_NOT_FIT = "does not fit"
    UNKNOWN = "unknown"


def fits(found: Estimate | Unknown, gpu_memory_bytes: int) -> Fit:
    """Whether a GPU with this much memory on its label holds it; see above for what lies between yes and no."""
    if isinstance(found, Unknown):
        return Fit.UNKNOWN
    visible = gpu_memory_bytes * VISIBLE_SHARE
    if found.device_bytes <= visible:
        return Fit.FITS
    least = found.peak_allocated_bytes * (1 - ESTIMATE_ERROR) + found.context_bytes
    return Fit.DOES_NOT_FIT if least > visible else Fit.UNKNOWN


def parse_memory(text: str) -> int:
    """`80GiB`, `80 GB` or `81920MiB` in bytes. Raises SelectionError, for a number without a unit too."""
    found = _SIZE.fullmatch(text.strip())
    number, unit = (float(found[1]), found[2].upper()) if found else (0.0, "")
    if found and not unit:
        raise SelectionError(f"--gpu-memory {text!r} has no unit: write {text.strip()}GiB, {text.strip()}GB or MiB.")
    if unit not in _UNITS or not (number > 0 and math.isfinite(number)):
        raise SelectionError(
            f"--gpu-memory {text!r} is no amount of memory: give a number with GiB, GB or MiB, such as 80GiB."
        )
    return round(number * _UNITS[unit])


def column(experiments: Iterable[Experiment], *, gpu_memory_bytes: int | None = None) -> tuple[str, ...]:
    """The cell of each experiment, in order: the memory that its GPUs would show as used, and whether that fits."""
    return tuple(_cell(estimate(experiment), gpu_memory_bytes) for experiment in experiments)


def _cell(found: Estimate | Unknown, gpu_memory_bytes: int | None) -> str:
    if isinstance(found, Unknown):
        return f"unknown: {found.reason}"
    needed = f"{found.device_bytes / GIB:.1f} GiB"
    if gpu_memory_bytes is None:
        return needed
    verdict = fits(found, gpu_memory_bytes)
    if verdict is Fit.DOES_NOT_FIT:
        return f"does not fit: {found.device_bytes / GIB:.0f} GiB"
    of_card = f"{needed} of {gpu_memory_bytes / GIB:.3g} GiB"
    return of_card if verdict is Fit.FITS else f"may not fit: {of_card}"


def summary(experiments: Iterable[Experiment], *, gpu_memory_bytes: int) -> str:
    """How many of them fit, as one sentence."""
    counts = dict.fromkeys(Fit, 0)
    for experiment in experiments:
        counts[fits(estimate(experiment), gpu_memory_bytes)] += 1
    card = f"{gpu_memory_bytes / GIB:.3g} GiB"
    return (
        f"On GPUs of {card}: {counts[Fit.FITS]:,} fit, {counts[Fit.DOES_NOT_FIT]:,} do not fit, "
        f"{counts[Fit.UNKNOWN]:,} unknown or too close."
    )


def json_value(experiment: Experiment, *, gpu_memory_bytes: int | None = None) -> dict[str, Any]:
    """An experiment's estimate for a JSON document: its parts in bytes, or the reason why there is none."""
    found = estimate(experiment)
    verdict = {} if gpu_memory_bytes is None else {"verdict": str(fits(found, gpu_memory_bytes))}
    if isinstance(found, Unknown):
        return {**verdict, "unknown": found.reason}
    return {
        **verdict,
        "peak_allocated_bytes": found.peak_allocated_bytes,
        "device_bytes": found.device_bytes,
        "moment": str(found.moment),
        "weights_bytes": found.weights_bytes,
        "gradients_bytes": found.gradients_bytes,
        "optimizer_bytes": found.optimizer_bytes,
        "activations_bytes": found.activations_bytes,
        "logits_bytes": found.logits_bytes,
        "workspace_bytes": found.workspace_bytes,
    }
