"""The slowdown of concurrent runs, as measured by `--parallel auto`. A file in `packing/` in the results folder has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from orchestrator.files import reading

PACKING, COST_FILE = "packing", "cost.json"


def read(roots: Sequence[Path]) -> float | None:
    """Return the largest change of speed measured in these folders, as a difference of logarithms; None without a measurement."""
    costs = [cost for root in roots if (cost := _of_folder(root)) is not None]
    return max(costs, default=None)


def _of_folder(root: Path) -> float | None:
    try:
        written = reading.read_json(root / PACKING / COST_FILE, limit=reading.CLAIM_BYTES)
        single, packed = float(written["single"]), float(written["packed"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return abs(math.log(packed / single)) if single > 0 and packed > 0 else None
