"""Read the campaigns of a history: the places that a user names, each read like a side of `compare`, in the order in which they
ran.

A place is one campaign: a results folder, one of several inside a folder, or a file that `compare` accepts. Some files do not say
when they ran (a CSV file with a row per experiment, the reference's). Then the order of the command line counts for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.compare.comparison import Side
from orchestrator.compare.sides import folders
from orchestrator.compare.sides import read as sides
from orchestrator.errors import OrchestratorError, ResultsError
from orchestrator.results.folder import SUITE_FILE

MOST_CAMPAIGNS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """One campaign as it was read. `began_at` is when its first run started, in seconds since the epoch."""

    side: Side
    began_at: float | None


def read(places: Sequence[Path], *, by: Sequence[str] = ()) -> tuple[tuple[Read, ...], tuple[str, ...]]:
    """Return the campaigns, oldest first, and sentences about unreadable places and about the order.

    Raises ResultsError if a named place is not a campaign or is named twice, or if nothing is named. If no place in a folder can
    be read, the error of the first is raised: a mistake in `by` affects all.
    """
    found: list[Read] = []
    said: list[str] = []
    wrong: list[OrchestratorError] = []
    for place, is_named in _each(places):
        try:
            side = sides.read([place], by=by)
        except OrchestratorError as error:
            if is_named:
                raise
            wrong.append(error)
            said.append(f"left out: {error}")
            continue
        starts = [run.started_at for entry in side.entries for run in entry.runs if run.started_at is not None]
        found.append(Read(side=side, began_at=min(starts, default=None)))
        said += side.warnings
    if wrong and not found:
        raise wrong[0]
    ordered, timeless = _in_order(found)
    return ordered, (*said, *timeless)


def _each(places: Sequence[Path]) -> list[tuple[Path, bool]]:
    """Return each campaign's place, and whether the user named it, rather than a folder around it."""
    every: list[tuple[Path, bool]] = []
    for place in places:
        inside = _inside(place)
        every += [(one, False) for one in inside] or [(place, True)]
    if len({place.resolve() for place, _ in every}) < len(every):
        raise ResultsError("The same folder or file is named twice: its campaign would count twice.")
    if len(every) > MOST_CAMPAIGNS:
        raise ResultsError(f"{len(every):,} campaigns are named, and a history takes {MOST_CAMPAIGNS:,} at most.")
    return every


def _inside(place: Path) -> list[Path]:
    """Return the results folders inside a folder that is not one. A damaged `suite.json` counts, so that it is reported."""
    if not place.is_dir() or folders.holds_results(place):
        return []
    return [one for one in sorted(place.iterdir()) if folders.holds_results(one) or (one / SUITE_FILE).is_file()]


def _in_order(found: Sequence[Read]) -> tuple[tuple[Read, ...], tuple[str, ...]]:
    timeless = [one.side.name for one in found if one.began_at is None and _has_numbers(one.side)]
    if not timeless:
        return tuple(sorted(found, key=lambda one: math.inf if one.began_at is None else one.began_at)), ()
    which = f"{timeless[0]} does" if len(timeless) == 1 else f"{timeless[0]} and {len(timeless) - 1} more do"
    return tuple(found), (f"{which} not say when it ran: the campaigns are in the order in which they were named",)


def _has_numbers(side: Side) -> bool:
    return any(entry.runs for entry in side.entries)
