"""What a comparison left open: the pairs with an inconclusive row, and how many more runs a side would settle them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.compare.comparison import Comparison, Entry, Pair, Row, Verdict

MOST_RUNS = 1000
"""More a side nobody waits for; a comparison that asks for more is wrong, or hostile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    """An experiment on both sides of which too little is known. `runs`: more runs a side; None where nobody knows how many."""

    label: str
    base: Entry
    new: Entry
    metrics: tuple[str, ...]
    runs: int | None

    @property
    def is_one(self) -> bool:
        """Whether both sides are the same experiment of the same folder, as when a campaign was held against itself."""
        return self.new.folder is not None and (self.new.folder, self.new.id) == (self.base.folder, self.base.id)


def undecided(comparison: Comparison, *, runs: int | None = None) -> tuple[Undecided, ...]:
    """The open pairs in the comparison's order. `runs` stands above what the rows say they need."""
    return tuple(_found(comparison, runs))


def _found(comparison: Comparison, runs: int | None) -> Iterator[Undecided]:
    open_rows: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if row.verdict is Verdict.INCONCLUSIVE:
            open_rows.setdefault(row.label, []).append(row)
    for pair in comparison.pairs:
        rows = open_rows.get(pair.label, [])
        if rows and pair.base is not None and pair.new is not None:
            yield _one(pair, pair.base, pair.new, rows, runs)


def _one(pair: Pair, base: Entry, new: Entry, rows: list[Row], runs: int | None) -> Undecided:
    needs = [row.needs for row in rows if row.needs is not None]
    return Undecided(
        label=pair.label,
        base=base,
        new=new,
        metrics=tuple(row.metric for row in rows),
        runs=runs or (min(max(needs), MOST_RUNS) if needs else None),
    )
