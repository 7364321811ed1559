"""Read the campaigns of a history, each as a side of `compare`, and sort them by their start.

A campaign is a results folder, or a file that `compare` accepts. The user names the folder itself, a folder that contains it, or a
database, which has several campaigns. Several tables of one folder are one campaign.

Some files have no start times: a CSV file with one row per experiment, or a file of the reference. If there is such a file, all
campaigns keep the order of the command line. If several campaigns have the same run, the run counts only in the first of these
campaigns on the command line.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.compare.comparison import Entry, Run, Side
from orchestrator.compare.sides import folders
from orchestrator.compare.sides import read as sides
from orchestrator.compare.sides.same_runs import not_among
from orchestrator.errors import OrchestratorError, ResultsError
from orchestrator.files.printable_text import counted
from orchestrator.files.reading import resolved
from orchestrator.records import Status
from orchestrator.report.profile.places import has_profiled_runs
from orchestrator.results.folder import SUITE_FILE, may_exist

MOST_CAMPAIGNS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """One campaign as it was read. `began_at` is the start of its first run, also of a failed one, in seconds since the epoch."""

    side: Side
    began_at: float | None


def read(places: Sequence[Path], *, by: Sequence[str] = ()) -> tuple[tuple[Read, ...], tuple[str, ...]]:
    """Return two values: the campaigns, oldest first, and warnings about unreadable places and about the order.

    Raise ResultsError if a named place is not a campaign or is named twice, or if nothing is named. If no place can be read, raise
    the error of the first place: all places may have the same error, such as a mistake in `by`.
    """
    found: list[Side] = []
    errors: list[OrchestratorError] = []
    every, warnings = _places(places)
    for place, is_named in every:
        try:
            read_here = sides.campaigns(place, by=by)
        except OrchestratorError as error:
            if is_named:
                raise
            errors.append(error)
            warnings.append(f"left out: {error}")
            continue
        found += read_here
        warnings += [warning for side in read_here for warning in side.warnings]
    if errors and not found:
        raise errors[0]
    campaigns = [Read(side=side, began_at=_began_at(side)) for side in _without_copies(found, warnings)]
    timeless = [campaign.side.name for campaign in campaigns if campaign.began_at is None and _has_runs(campaign.side)]
    if timeless:
        which = (
            f"{timeless[0]} does not say when it"
            if len(timeless) == 1
            else f"{timeless[0]} and {len(timeless) - 1} more do not say when they"
        )
        warnings.append(f"{which} ran: the campaigns are shown in the order of the command line")
    else:
        campaigns.sort(key=lambda campaign: math.inf if campaign.began_at is None else campaign.began_at)
    return tuple(campaigns), (*warnings, *(_failures(campaigns[-1]) if campaigns else ()))


def _without_copies(found: Sequence[Side], warnings: list[str]) -> Iterator[Side]:
    """Yield the campaigns, with each run only once. Leave out a campaign if others have all of its runs, and add a warning."""
    known: dict[str, list[Run]] = defaultdict(list)
    for side in found:
        entries = [_without_known(entry, known) for entry in side.entries]
        before, after = (sum(len(entry.runs) for entry in one) for one in (side.entries, entries))
        if before and not after:
            warnings.append(f"{side.name} is left out, because other campaigns have all of its runs")
            continue
        if after < before:
            runs = counted(before - after, "run")
            warnings.append(
                f"{side.name} has {runs} that other campaigns also have: these runs are counted only in the other campaigns"
            )
            # Failed runs are not told apart, so they may be those of the other campaigns.
            entries = [replace(entry, failed_at=None) for entry in entries]
        yield replace(side, entries=tuple(entries))


def _without_known(entry: Entry, known: dict[str, list[Run]]) -> Entry:
    """Return the entry without the runs that are in `known`. Add its remaining runs to `known`."""
    if entry.id is None:
        return entry
    own = not_among(entry.runs, known[entry.id])
    known[entry.id] += own
    return replace(entry, runs=own)


def _began_at(side: Side) -> float | None:
    starts = [start for entry in side.entries for start in (entry.failed_at, *(run.started_at for run in entry.runs))]
    return min((start for start in starts if start is not None), default=None)


def _failures(newest: Read) -> Iterator[str]:
    """Yield a sentence if experiments failed in the newest campaign: they have no point in it, so nothing else shows this."""
    entries = newest.side.entries
    failed = [entry for entry in entries if entry.status == Status.FAILED.value]
    if failed:
        have = "has" if len(failed) == 1 else "have"
        which = (
            f"{len(failed)} of its {len(entries)} experiments {have}" if len(entries) > 1 else "its only experiment has"
        )
        yield f"{newest.side.name}: {which} no run that ended ok"


def _places(places: Sequence[Path]) -> tuple[list[tuple[Path, bool]], list[str]]:
    """Return two values: the place of each campaign, and warnings about tables that are left out.

    A place comes with whether the user named it directly. If not, the user named its parent folder.
    """
    every: list[tuple[Path, bool]] = []
    for place in places:
        every += [(inner, False) for inner in _inside(place)] or [(place, True)]
    if len({resolved(place) for place, _ in every}) < len(every):
        raise ResultsError("the same folder or file is named twice, so its campaign would count twice; name it once")
    profiled = [place for place, _ in every if has_profiled_runs(place)]
    kept, warnings = folders.without_own_tables([place for place, _ in every if place not in profiled])
    warnings += [f"{place}: it is left out, because profiled runs are never compared" for place in profiled]
    if len(kept) > MOST_CAMPAIGNS:
        raise ResultsError(f"{len(kept):,} campaigns are named; name at most {MOST_CAMPAIGNS:,}")
    is_named = dict(every)
    return [(place, is_named[place]) for place in kept], warnings


def _inside(place: Path) -> list[Path]:
    """Return the results folders inside a folder. Return an empty list if the folder itself is a results folder.

    A folder with a damaged or hidden `suite.json` counts, so that it is reported. A link from one folder in `place` to another one
    does not count. Also return an empty list if this user may not enter `place`.
    """
    if not place.is_dir() or not os.access(place, os.X_OK) or folders.holds_results(place):
        return []
    return [
        inner
        for inner in sorted(place.iterdir())
        if not (inner.is_symlink() and resolved(inner).parent == resolved(place))
        and (folders.holds_results(inner) or may_exist(inner / SUITE_FILE))
    ]


def _has_runs(side: Side) -> bool:
    return any(entry.runs for entry in side.entries)
