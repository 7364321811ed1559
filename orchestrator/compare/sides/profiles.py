"""The profiles of both sides of a changed pair, and their difference. Reads only traces, next to the records that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.compare.comparison import Comparison, Entry, Verdict
from orchestrator.errors import SelectionError
from orchestrator.report.profile.places import profiled
from orchestrator.report.profile.trace import read
from orchestrator.report.profile.view import Difference, difference

CHANGED = (Verdict.IMPROVED, Verdict.REGRESSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profiles:
    """The traces of base and new, and their difference. It is None if a trace cannot be read; then `sentence` says why."""

    traces: tuple[Path, Path]
    sentence: str
    difference: Difference | None = None


def of(comparison: Comparison, *, most: int) -> dict[str, Profiles]:
    """Return label → profiles for each changed pair whose sides both have a trace. A table has at most `most` rows."""
    labels = {row.label for row in comparison.rows if row.verdict in CHANGED}
    pairs = [pair for pair in comparison.pairs if pair.label in labels]
    found = {pair.label: of_sides(pair.base, pair.new, most=most) for pair in pairs if pair.base and pair.new}
    return {label: profiles for label, profiles in found.items() if profiles is not None}


def of_sides(base: Entry, new: Entry, *, most: int) -> Profiles | None:
    """Return the profiles of two entries. Return None if one of them has no trace, or if both have the same."""
    one, other = trace(base), trace(new)
    if one is None or other is None or one == other:
        return None
    try:
        found = difference(read(one), read(other), most=most)
    except SelectionError as error:
        return Profiles(traces=(one, other), sentence=str(error))
    return Profiles(traces=(one, other), sentence=found.verdict, difference=found)


def trace(entry: Entry) -> Path | None:
    """Return the trace of an entry's experiment, or None if it has none."""
    return profiled(Path(entry.folder), entry.id) if entry.folder and entry.id else None
