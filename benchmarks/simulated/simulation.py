"""Judge simulated campaigns with `compare`, and count the verdicts and the exit codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import shapes
from figures import Share
from shapes import Shape

from orchestrator.compare import gate
from orchestrator.compare.comparison import Comparison, Pair, Side, Verdict
from orchestrator.compare.rules import Rules
from orchestrator.compare.verdicts import compare

# An experiment that is slower is slower by this share, unless a figure says otherwise.
SLOWER = 0.05
MOVED = (Verdict.IMPROVED, Verdict.REGRESSED)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The verdicts on campaigns of one shape: on the slower rows, on the unchanged rows, and on all rows together."""

    slower: Counter[Verdict]
    unchanged: Counter[Verdict]
    together: Counter[Verdict]
    codes: Counter[int]

    @property
    def found(self) -> Share:
        return _share(self.slower, Verdict.REGRESSED)

    def rows(self, *verdicts: Verdict) -> Share:
        """Return the share of the unchanged rows that have one of these verdicts."""
        return _share(self.unchanged, *verdicts)

    def fleet(self, *verdicts: Verdict) -> Share:
        return _share(self.together, *verdicts)

    def exits(self, code: int) -> Share:
        return _share(self.codes, code)


def _share(counts: Counter[Any], *kinds: object) -> Share:
    return Share(hits=sum(counts[kind] for kind in kinds), of=counts.total())


class Simulation:
    """The campaigns of every figure. If enough campaigns of a shape are judged already, they are used again."""

    def __init__(self, campaigns: int, seed: int) -> None:
        self.campaigns, self.seed = campaigns, seed
        self._known: dict[tuple[Shape, int, float], Outcomes] = {}

    def of(self, shape: Shape, *, slow: int = 0, by: float = SLOWER, fewer: int = 1) -> Outcomes:
        """Judge campaigns of this shape, in which the first `slow` rows are slower. `fewer` divides their number."""
        kind, count = (shape, slow, by), max(self.campaigns // fewer, 1)
        if kind not in self._known or self._known[kind].codes.total() < count:
            self._known[kind] = self._judged(shape, slow, by, count)
        return self._known[kind]

    def _judged(self, shape: Shape, slow: int, by: float, count: int) -> Outcomes:
        rng = shapes.generator(self.seed, f"{shape} {slow} {by}")
        found = Outcomes(slower=Counter(), unchanged=Counter(), together=Counter(), codes=Counter())
        for _ in range(count):
            comparison = judged(shapes.campaign(rng, shape, [by] * slow))
            found.slower.update(row.verdict for row in comparison.rows[:slow])
            found.unchanged.update(row.verdict for row in comparison.rows[slow:])
            found.together.update(line.verdict for line in comparison.fleet)
            found.codes[gate.exit_code(comparison)] += 1
        return found


def judged(pairs: Sequence[Pair]) -> Comparison:
    base, new = (Side(name=name, entries=()) for name in ("base", "new"))
    return compare(base, new, pairs=pairs, rules=Rules())
