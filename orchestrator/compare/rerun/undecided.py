"""Find the pairs of a comparison that run again: those with an inconclusive row, or those with a changed row. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.compare.comparison import Comparison, Entry, Row, Verdict
from orchestrator.compare.sides.profiles import CHANGED

# The limit of further runs per side: few people want to wait for more. `--max-runs` replaces it.
MOST_RUNS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    """An open pair. `runs` is the number of further runs per side. It is None if unknown, or if every row is hopeless.

    `hopeless` maps a metric to the number of runs that its row would need. It has only metrics that would need more runs than the
    limit.
    """

    label: str
    base: Entry
    new: Entry
    runs: int | None
    hopeless: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_same_experiment(self) -> bool:
        """Return whether both sides are the same experiment of the same folder. This is the case after `compare --aa`."""
        return self.new.folder is not None and (self.new.folder, self.new.id) == (self.base.folder, self.base.id)


def undecided(comparison: Comparison, *, runs: int | None = None, max_runs: int = MOST_RUNS) -> tuple[Undecided, ...]:
    """Return the open pairs in the comparison's order.

    Rows that may be much worse make exit code 3. If the comparison has such rows, the other inconclusive rows do not count.

    If `runs` is given, it replaces the number of runs that the rows need. Otherwise, rows that need more than `max_runs` runs are
    hopeless.
    """
    inconclusive = [row for row in comparison.rows if row.verdict is Verdict.INCONCLUSIVE]
    perhaps_worse = [row for row in inconclusive if row.may_be_worse_by is not None]
    open_rows: dict[str, list[Row]] = {}
    for row in perhaps_worse or inconclusive:
        open_rows.setdefault(row.label, []).append(row)
    open_pairs = []
    for pair in comparison.pairs:
        rows = open_rows.get(pair.label, [])
        if not rows or pair.base is None or pair.new is None:
            continue
        needs = {row.metric: row.needs for row in rows if row.needs is not None}
        hopeless = {} if runs else {name: count for name, count in needs.items() if count > max_runs}
        within = [count for name, count in needs.items() if name not in hopeless]
        open_pairs.append(
            Undecided(
                label=pair.label,
                base=pair.base,
                new=pair.new,
                runs=runs or max(within, default=None),
                hopeless=hopeless,
            )
        )
    return tuple(open_pairs)


def changed(comparison: Comparison) -> tuple[Undecided, ...]:
    """Return the pairs with a row that is improved or regressed, in the comparison's order. Each side gets one run."""
    labels = {row.label for row in comparison.rows if row.verdict in CHANGED}
    pairs = [(pair.label, pair.base, pair.new) for pair in comparison.pairs if pair.label in labels]
    return tuple(Undecided(label=label, base=base, new=new, runs=1) for label, base, new in pairs if base and new)
