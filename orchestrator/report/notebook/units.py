"""Readable units for a frame: those of the report's charts. The name of a converted column ends with its unit. Pure.

Memory is in GiB. If all times of a column are below 1 s, they are in ms. If all its energies are below 1 J, they are in mJ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.measure.metrics import MIB, Show, metric
from orchestrator.report.page.charts.chart import scale_of
from orchestrator.results.table.column_types import OTHERS

if TYPE_CHECKING:
    import pandas as pd

_ENDS = ("_bytes", "_s", "_j")
_PER_GIB = {Show.BYTES: 1 / (1024 * MIB), Show.MIB: 1 / 1024}
_LETTERS = {Show.SECONDS: "s", Show.JOULES: "j"}


def readable(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the frame in readable units, and a dict from each old name to the new name.

    A column keeps its base unit if another column already has the new name.
    """
    found = {str(name): _readable(frame, str(name)) for name in frame.columns}
    kept = {old: new for old, new in found.items() if new and (new[0] == old or new[0] not in frame)}
    columns = {old: frame[old] * factor for old, (_, factor) in kept.items() if factor != 1}
    names = {old: new for old, (new, _) in kept.items()}
    return frame.assign(**columns).rename(columns=names), names


def _readable(frame: pd.DataFrame, name: str) -> tuple[str, float] | None:
    """Return the name of a column with its readable unit, and the factor. Return None for a column that has no such unit."""
    column = frame[name]
    show = Show.BYTES if name in OTHERS and name.endswith("_bytes") else metric(name).show
    if str(column.dtype) not in ("Int64", "Float64"):
        return None
    stem = name.removesuffix(next((end for end in _ENDS if name.endswith(end)), ""))
    if show in _PER_GIB:
        return f"{stem}_gib", _PER_GIB[show]
    if show in _LETTERS:
        factor, _ = scale_of(name, float(column.max()) if column.notna().any() else 1.0)
        return f"{stem}_{'m' if factor > 1 else ''}{_LETTERS[show]}", factor
    return None
