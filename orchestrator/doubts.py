"""What speaks against a number: why no claim of speed is made of an experiment.

Functions from a table to values. What a run was marked with when it ended (`monitors`, `throughput`) and what the table says of
its loss (`across`) are read off the columns; nothing is measured or judged anew. A power cap is no doubt: it is daily life on
today's GPUs, and both sides of a comparison live with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.columns import column, number
from orchestrator.monitors.nvml_numbers import NOTABLE_THROTTLING
from orchestrator.monitors.timeline import POWER_CAP, REASONS
from orchestrator.rows import Value

if TYPE_CHECKING:
    from orchestrator.table import ResultsTable


class DoubtKind(StrEnum):
    """Why a number may not be what it seems."""

    WRONG = "faster but wrong"
    OTHER_LOSS = "other loss"
    CONTAMINATED = "contaminated"
    THROTTLED = "throttled"
    NOT_STEADY = "not steady"
    PACKED = "packed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """One doubt of one experiment; `detail` are a record's own words, raw, or empty."""

    kind: DoubtKind
    detail: str = ""


NO_STEADY_SPEED = "no steady-state speed"
"""How the warning of a run begins in which `steady` found no steady state."""

_HELD_DOWN = re.compile(
    "(" + "|".join(re.escape(name) for name in REASONS.values() if name != POWER_CAP) + r") (\d{1,3})%"
)


def doubts(table: ResultsTable) -> list[tuple[Doubt, ...]]:
    """For each row of `experiments` what speaks against its speed."""
    frame = table.experiments
    names = ("doubt", "loss_difference", "contaminated", "throttle_reasons", "warnings", "neighbours", "runs_ok")
    rows = zip(*(column(frame, name) for name in names), strict=True)
    return [tuple(_of_row(dict(zip(names, row, strict=True)))) for row in rows]


def _of_row(row: dict[str, Value]) -> list[Doubt]:
    found = []
    if row["doubt"] in (DoubtKind.WRONG.value, DoubtKind.OTHER_LOSS.value):
        found.append(Doubt(kind=DoubtKind(str(row["doubt"]))))
    if not row["runs_ok"]:
        return found  # without a number there is nothing to doubt
    if row["contaminated"]:
        found.append(Doubt(kind=DoubtKind.CONTAMINATED, detail=str(row["contaminated"])))
    held = held_down(row["throttle_reasons"])
    if held:
        found.append(Doubt(kind=DoubtKind.THROTTLED, detail=held))
    for line in str(row["warnings"] or "").splitlines():
        if line.startswith(NO_STEADY_SPEED):
            reason = line.removeprefix(NO_STEADY_SPEED).lstrip(": ").partition(";")[0]  # behind it: what to do
            found.append(Doubt(kind=DoubtKind.NOT_STEADY, detail=reason))
            break
    if number(row["neighbours"]):
        found.append(Doubt(kind=DoubtKind.PACKED))
    return found


def held_down(reasons: Value) -> str:
    """What held clocks down besides the power cap for a notable share of the steady state, longest first; empty for nothing."""
    shares: dict[str, float] = {}
    for name, percent in _HELD_DOWN.findall(str(reasons or "")):
        shares[name] = max(shares.get(name, 0.0), int(percent) / 100)
    notable = sorted(shares.items(), key=lambda one: -one[1])
    return ", ".join(f"{name} {share:.0%}" for name, share in notable if share > NOTABLE_THROTTLING)
