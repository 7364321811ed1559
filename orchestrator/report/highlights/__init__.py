"""The findings of a campaign, in sentences made from its numbers: the best of a model, gains, warnings, failures.

Speeds are compared between experiments that differ only in one axis (`table.axes`). The interval of a ratio is Welch's, over the
logarithms of the runs' speeds. If the interval contains 1, the sentence does not claim a difference. If a speed is in doubt, a
warning replaces the claim. Each interval has a level of 95 %. So one interval in twenty excludes 1, even if there is no difference.
The number of sentences is bounded, and the last sentence of a kind says how many more there are. Names are printable, but not
escaped for a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.report.highlights.best import best
from orchestrator.report.highlights.failures import failures
from orchestrator.report.highlights.gains import chosen_references, gains
from orchestrator.report.highlights.gpu_time import gpu_time
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, known_of
from orchestrator.report.highlights.host_bound import host_bound
from orchestrator.report.highlights.scaling import dips, scaling
from orchestrator.report.highlights.step_time import step_time
from orchestrator.report.highlights.warnings import warnings
from orchestrator.results.table.baseline import pairs_of

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

__all__ = ["Highlight", "HighlightKind", "highlights"]


def highlights(table: ResultsTable) -> tuple[Highlight, ...]:
    """Return the findings of a table: the best of each model; gains, the largest first; notes, warnings, and failures."""
    against, known = pairs_of(table), known_of(table)
    return (
        *best(known),
        *gains(known, against),
        *scaling(known),
        *dips(known),
        *step_time(known),
        *gpu_time(known),
        *host_bound(known),
        *chosen_references(known, against),
        *warnings(known, against),
        *failures(known),
    )
