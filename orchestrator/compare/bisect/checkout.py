"""The interface between a bisection and the things that it searches: commits, or versions of a package."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.errors import OrchestratorError
from orchestrator.records import Experiment


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One place of a bisection. `key` is the name of its results folder, and `title` is what people know it by."""

    key: str
    name: str
    title: str
    date: str


class NotBuilt(OrchestratorError):
    """A candidate cannot be made ready to run. The text is the reason."""


class Checkout(Protocol):
    """Makes candidates ready to run. The first candidate is the good end, and the last is the bad end.

    `noun` is the word for a candidate.
    """

    noun: str

    @property
    def candidates(self) -> Sequence[Candidate]: ...

    def experiment(self, place: int) -> Experiment:
        """Make a candidate ready, and return its experiment. Raise NotBuilt if this is impossible."""
        ...

    def release(self, place: int) -> None:
        """Remove what `experiment` made. Results stay."""
        ...

    def close(self, *, keep: Collection[int] = ()) -> None:
        """Remove what `experiment` made, also in an earlier call that was interrupted. `keep` has places whose runs go on."""
        ...

    def searched(self) -> dict[str, str]:
        """Return what is searched, as name → text. Two calls with the same texts are the same bisection."""
        ...
