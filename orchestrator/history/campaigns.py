"""The campaigns of a history: the places that a user names, read as `compare` reads a side, in the order in which they ran.

A place is one campaign: a results folder, one of several that lie in a folder, or a file that `compare` accepts. Where one does not
say when it ran (a CSV file with a row an experiment, the reference's), the order of the command line stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.compare import folders, sides
from orchestrator.compare.values import Side
from orchestrator.errors import OrchestratorError, ResultsError
from orchestrator.results_folder import SUITE_FILE

MOST_CAMPAIGNS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """One campaign as it was read. `began_at` is when its first run started, in seconds since the epoch."""

    side: Side
    began_at: float | None


def read(places: Sequence[Path], *, by: Sequence[str] = ()) -> tuple[tuple[Read, ...], tuple[str, ...]]:
    """The campaigns, oldest first, and sentences about what could not be read and about their order.

    Raises ResultsError where a place that was named is none, is named twice, or nothing is named; and where none of the places in
    a folder can be read, what is wrong with the first of them: a mistake in `by` is one with all.
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
    """Each campaign's place, and whether it was named itself rather than found in a folder that was."""
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
    """The results folders that lie in a folder that is none; also one whose `suite.json` is damaged, so that it is told."""
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
