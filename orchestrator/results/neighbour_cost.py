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
        single, packed = (reading.sound_number(written[name]) or 0.0 for name in ("single", "packed"))
        return abs(math.log(packed) - math.log(single))  # of the quotient it would fail where the quotient is 0
    except (OSError, ValueError, TypeError, KeyError):  # ValueError also for a number that is not above 0
        return None
