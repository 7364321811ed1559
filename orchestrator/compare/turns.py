"""Find out whether two sides' runs took turns on a machine, so that a drift can be separated from their difference. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from orchestrator.compare.values import Run

# Runs a side from which a drift is fitted: with two a side there would be one degree of freedom left.
FEWEST = 3

Places = tuple[list[int], list[int]]


def places(base: Sequence[Run], new: Sequence[Run]) -> Places | None:
    """Return each side's runs by their place in the order of all starts; None if the sides did not take turns.

    They did if the order changes sides at least as often as the smaller side has runs, and the mean places differ by at most one.
    Runs that started at the same time are the same run, seen on both sides.
    """
    fewest = min(len(base), len(new))
    starts = [run.started_at for run in (*base, *new) if run.started_at is not None]
    if (
        fewest < FEWEST
        or len(starts) < len(base) + len(new)
        or not {*starts[: len(base)]}.isdisjoint(starts[len(base) :])
    ):
        return None
    order = sorted(range(len(starts)), key=starts.__getitem__)
    changes = sum((one < len(base)) != (following < len(base)) for one, following in pairwise(order))
    at = sorted(range(len(order)), key=order.__getitem__)
    found = at[: len(base)], at[len(base) :]
    return found if changes >= fewest and abs(fmean(found[0]) - fmean(found[1])) <= 1 else None
