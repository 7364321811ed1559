"""Find the pairs of a comparison that have an inconclusive row, and the number of runs that would settle them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.compare.comparison import Comparison, Entry, Row, Verdict

# More runs per side than anyone waits for. A comparison that asks for more is wrong or hostile.
MOST_RUNS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    """An open pair. `runs` is the number of further runs per side; None if it is unknown."""

    label: str
    base: Entry
    new: Entry
    metrics: tuple[str, ...]
    runs: int | None

    @property
    def is_same_experiment(self) -> bool:
        """Return whether both sides are the same experiment of the same folder, as after `compare --aa`."""
        return self.new.folder is not None and (self.new.folder, self.new.id) == (self.base.folder, self.base.id)


def undecided(comparison: Comparison, *, runs: int | None = None) -> tuple[Undecided, ...]:
    """Return the open pairs in the comparison's order. `runs` replaces the number of runs that the rows need."""
    open_rows: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if row.verdict is Verdict.INCONCLUSIVE:
            open_rows.setdefault(row.label, []).append(row)
    open_pairs = []
    for pair in comparison.pairs:
        rows = open_rows.get(pair.label, [])
        if not rows or pair.base is None or pair.new is None:
            continue
        needs = [row.needs for row in rows if row.needs is not None]
        open_pairs.append(
            Undecided(
                label=pair.label,
                base=pair.base,
                new=pair.new,
                metrics=tuple(row.metric for row in rows),
                runs=runs or (min(max(needs), MOST_RUNS) if needs else None),
            )
        )
    return tuple(open_pairs)
