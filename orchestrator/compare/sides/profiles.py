"""The profiles of both sides of a changed pair, and their difference. Reads only traces and the records of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from orchestrator.compare import comparison
from orchestrator.compare.comparison import Comparison, Entry, Verdict
from orchestrator.compare.sides import environment, experiments, folders
from orchestrator.compare.sides.keys import EFFECTIVE
from orchestrator.compare.sides.pairing import differing_arguments
from orchestrator.errors import SelectionError
from orchestrator.files.redaction import redact_cells, redactor
from orchestrator.report.profile.places import Profiled, profiled
from orchestrator.report.profile.trace import Profile, read
from orchestrator.report.profile.view import Difference, difference
from orchestrator.results.table.baseline import STEP_TIME
from orchestrator.results.table.baseline.other_work import other_work

CHANGED = (Verdict.IMPROVED, Verdict.REGRESSED)
# A profiled run has another monitor, starts cold, and is usually by itself on the machine.
_OF_PROFILES = (environment.MONITORING, environment.START, environment.NEIGHBOURS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Profiles:
    """The traces of base and new, and their difference. It is None if a trace cannot be read; then `sentence` says why.

    `elsewhere` maps `base` or `new` to the differences between the environments of its runs and of its profile, if there are any.
    """

    traces: tuple[Path, Path]
    sentence: str
    difference: Difference | None = None
    elsewhere: Mapping[str, Sequence[comparison.Difference]] = field(default_factory=dict)


def of(compared: Comparison, *, most: int) -> dict[str, Profiles]:
    """Return label → profiles for each changed pair whose sides both have a trace. A table has at most `most` rows."""
    labels = {row.label for row in compared.rows if row.verdict in CHANGED}
    pairs = [pair for pair in compared.pairs if pair.label in labels]
    found = {pair.label: of_sides(pair.base, pair.new, most=most) for pair in pairs if pair.base and pair.new}
    return {label: profiles for label, profiles in found.items() if profiles is not None}


def of_sides(base: Entry, new: Entry, *, most: int) -> Profiles | None:
    """Return the profiles of two entries. Return None if one of them has no trace, or if both have the same."""
    one, other = _found(base), _found(new)
    if one is None or other is None or one.made.trace == other.made.trace:
        return None
    traces = (one.made.trace, other.made.trace)
    if one.profile is None or other.profile is None:
        return Profiles(traces=traces, sentence=one.why or other.why)
    found = difference(one.profile, other.profile, most=most)
    of_both = {"base": _elsewhere(base, one.made), "new": _elsewhere(new, other.made)}
    elsewhere = {side: differences for side, differences in of_both.items() if differences}
    changed = other_work(STEP_TIME, [one.name.removeprefix(EFFECTIVE) for one in differing_arguments(base, new)])
    sentence = found.verdict + (f" The steps have other work, because {changed} differs." if changed else "")
    return Profiles(traces=traces, sentence=sentence, difference=found, elsewhere=elsewhere)


def has_profile(entry: Entry) -> bool:
    """Return whether an entry's experiment has a trace that can be read."""
    found = _found(entry)
    return found is not None and found.profile is not None


class _Found(NamedTuple):
    """A trace and its profile. The profile is None if the trace cannot be read; then `why` says why."""

    made: Profiled
    profile: Profile | None = None
    why: str = ""


def _found(entry: Entry) -> _Found | None:
    """Return the first trace of an entry that can be read. If none can be read, return the first one; None: there is none."""
    first = None
    for made in profiled(Path(entry.folder), entry.id) if entry.folder and entry.id else ():
        try:
            return _Found(made, read(made.trace))
        except SelectionError as error:
            first = first or _Found(made, why=str(error))
    return first


def _elsewhere(entry: Entry, made: Profiled) -> tuple[comparison.Difference, ...]:
    """Return the differences between the environments of an entry's runs and of its profiled run, without what a profile changes.

    If the entry's runs differ in a fact, the value of one of them is not a difference.
    """
    row = folders.row_of(made.experiment, made.job, made.record)
    if row is None:
        return ()
    profile = experiments.entry([row], experiments.Origin(whole=True))
    profile = replace(profile, environment=redact_cells(profile.environment, redactor()))  # as that of `entry`
    differences = environment.differences(entry, profile)
    return tuple(
        differing
        for differing in differences
        if differing.name not in _OF_PROFILES and str(differing.new) not in str(differing.base).split(", ")
    )
