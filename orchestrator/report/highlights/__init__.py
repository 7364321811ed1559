"""The findings of a campaign, in sentences made from its numbers: gains, warnings, failures.

A speed is compared between experiments that differ only by the framework configuration, over their runs, with Welch's interval over
the logarithms. If the interval contains 1, the sentence claims no difference. If a speed is in doubt, a warning replaces the claim.
Each interval has a level of 95 %: of many comparisons without a difference, one in twenty excludes 1.
The number of sentences is bounded, and the last sentence of a kind says how many more there are. Names are printable, but not
escaped for a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.report.highlights.failures import failures
from orchestrator.report.highlights.gains import gains
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, known_of
from orchestrator.report.highlights.scaling import scaling
from orchestrator.report.highlights.warnings import warnings
from orchestrator.results.table.baseline import pairs_of

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

__all__ = ["Highlight", "HighlightKind", "highlights"]


def highlights(table: ResultsTable, *, baseline: str | None = None) -> tuple[Highlight, ...]:
    """Return the findings of a table: gains, the best first; then warnings; then failures, the most frequent first.

    `baseline` is the framework configuration that the others are compared with; without it, `table.baseline` chooses one.
    Raise SelectionError for a name that no experiment has.
    """
    against, known = pairs_of(table, baseline=baseline), known_of(table)
    return (*gains(known, against), *scaling(known), *warnings(known), *failures(known))
