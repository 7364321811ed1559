"""A finding, and the data for all findings: a table with the names and doubts of its experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.measure.metrics import show
from orchestrator.records.price import Price, parse_price
from orchestrator.report.highlights.labels import Names
from orchestrator.results.table.column_choice import Numbers, column
from orchestrator.results.table.doubts import Doubt, doubts, forbid_claim
from orchestrator.results.table.rows import Value
from orchestrator.results.table.sources.costs import OF_TOKENS as COST
from orchestrator.results.table.sources.costs import PRICE

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

# The largest number of sentences about one kind of warning, and of sentences about kinds of failure.
MOST_OTHERS = 8


class HighlightKind(StrEnum):
    """The subject of a sentence: the best of a model, the effect of a choice, how the table was made, a warning, or a failure."""

    BEST = "best"
    GAIN = "gain"
    NOTE = "note"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Highlight:
    """A sentence of plain text without its full stop, and the ids of its experiments."""

    kind: HighlightKind
    text: str
    experiments: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A table; and for each row of its `experiments`, the name, the numbers and the doubts."""

    table: ResultsTable
    ids: Sequence[str]
    names: Names
    numbers: Numbers
    doubts: Sequence[Sequence[Doubt]]
    prices: Sequence[Value]

    def currency(self, row: int) -> str | None:
        """Return the currency of the row's costs: "" if its price has none, None if no price is known."""
        price = _price(self.prices[row])
        return price.currency if price else None

    def money(self, row: int, cost: float) -> str:
        """Return a cost of the row as text, with the currency of its price."""
        price = _price(self.prices[row])
        return price.shown(cost) if price else show(COST, cost)

    def cost(self, row: int) -> str | None:
        """Return the row's cost of a billion tokens as text, or None."""
        cost = self.numbers(COST, row)
        return None if cost is None else self.money(row, cost)

    def repeats(self, row: int) -> int:
        """Return how many of the row's repeats ended, without a slow first run, which counts nowhere."""
        failed = self.table.failed[row] if self.table.failed else ()
        return int(self.numbers("runs_ok", row) or 0) + sum("repeat" in outcome for outcome in failed)

    def in_doubt(self, *rows: int) -> bool:
        """Return whether doubts forbid a claim about the speeds of these rows."""
        return forbid_claim(self.doubts, self.numbers, *rows)

    def sentence(self, kind: HighlightKind, text: str, rows: Sequence[int]) -> Highlight:
        return Highlight(kind=kind, text=text, experiments=tuple(dict.fromkeys(self.ids[row] for row in rows)))


def known_of(table: ResultsTable) -> Known:
    frame = table.experiments
    return Known(
        table=table,
        ids=[str(value) for value in column(frame, "id")],
        names=Names(table),
        numbers=Numbers(frame),
        doubts=doubts(table),
        prices=column(frame, PRICE),
    )


def _price(cell: Value) -> Price | None:
    """Return the price in a cell. A CSV file may come from someone else, so an invalid price is none."""
    try:
        return parse_price(cell)
    except ValueError:
        return None
