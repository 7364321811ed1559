"""The candidates of a bisection, in their order, and the choice of the next probe. Pure.

A candidate is named by its place. Place 0 is the good end, and the last place is the bad end.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """The state of a candidate. A candidate without a state is unknown."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


def step(states: Mapping[int, State]) -> tuple[int, int]:
    """Return the places of the last good and of the first bad candidate. The step is after the first of these two."""
    first_bad = min(place for place, state in states.items() if state is State.BAD)
    return max(place for place, state in states.items() if state is State.GOOD and place < first_bad), first_bad


def next_probe(states: Mapping[int, State]) -> int | None:
    """Return the unknown candidate that is nearest to the middle of the step. Return None if no candidate in it is unknown."""
    last_good, first_bad = step(states)
    unknown = [place for place in range(last_good + 1, first_bad) if place not in states]
    return min(unknown, key=lambda place: abs(2 * place - last_good - first_bad), default=None)


def most_probes(last: int) -> int:
    """Return how many probes find the step between place 0 and the last place if no candidate is skipped."""
    return max(last - 1, 0).bit_length()
