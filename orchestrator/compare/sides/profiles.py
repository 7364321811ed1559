"""The profiles of both sides of a changed pair, and their difference. Reads only traces, next to the records that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orchestrator.compare.comparison import Comparison, Entry, Verdict
from orchestrator.errors import SelectionError
from orchestrator.report.profile.places import profiled
from orchestrator.report.profile.trace import Profile, read
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
    one, other = _found(base), _found(new)
    if one is None or other is None or one.trace == other.trace:
        return None
    traces = (one.trace, other.trace)
    if one.profile is None or other.profile is None:
        return Profiles(traces=traces, sentence=one.why or other.why)
    found = difference(one.profile, other.profile, most=most)
    return Profiles(traces=traces, sentence=found.verdict, difference=found)


def has_profile(entry: Entry) -> bool:
    """Return whether an entry's experiment has a trace that can be read."""
    found = _found(entry)
    return found is not None and found.profile is not None


class _Found(NamedTuple):
    """A trace and its profile. The profile is None if the trace cannot be read; then `why` says why."""

    trace: Path
    profile: Profile | None = None
    why: str = ""


def _found(entry: Entry) -> _Found | None:
    """Return the first trace of an entry that can be read. If none can be read, return the first one; None: there is none."""
    first = None
    for trace in profiled(Path(entry.folder), entry.id) if entry.folder and entry.id else ():
        try:
            return _Found(trace, read(trace))
        except SelectionError as error:
            first = first or _Found(trace, why=str(error))
    return first
