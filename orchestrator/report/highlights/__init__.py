"""The findings of a campaign, in sentences made from its numbers: gains, warnings, failures.

A speed is compared between cells that differ by the framework configuration alone (`relative`), run by run, with Welch's interval
over the logarithms. Nothing is called faster whose interval holds 1, nor a cell that something speaks against (`doubts`): that is
a warning instead. Intervals are each for itself: of many comparisons without any difference one in twenty leaves 1 out.
The number of sentences is bounded, and the last of a kind says how many more there are. Names are made printable; whoever writes
the sentences into a page escapes them for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.report.highlights.failures import failures
from orchestrator.report.highlights.gains import gains
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, known_of
from orchestrator.report.highlights.scaling import scaling
from orchestrator.report.highlights.warnings import warnings
from orchestrator.results.table.baseline import beside

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

__all__ = ["Highlight", "HighlightKind", "highlights"]


def highlights(table: ResultsTable, *, baseline: str | None = None) -> tuple[Highlight, ...]:
    """Return the findings of a table: gains, the best first; then warnings; then failures, the most frequent first.

    `baseline` names the framework configuration that others are compared with; without it `relative.beside` chooses one.
    Raise SelectionError for a name that no experiment has.
    """
    against, known = beside(table, baseline=baseline), known_of(table)
    return (*gains(known, against), *scaling(known), *warnings(known), *failures(known))
