"""Pictures and sentences for notebooks: `tunebench.plot.speedup(frame)` and `tunebench.plot.findings(frame)`.

A frame is one of `tunebench.load`, or a selection of its rows. Both functions read its results folders again. Importing this
module is fast, because plotly and pandas are imported at the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

__all__ = ["findings", "speedup"]


def speedup(frame: pd.DataFrame) -> Figure:
    """Return a Plotly figure with the speed-up of each row against its baseline, and its 95 % interval over runs.

    The numbers and colours are those of the report. A row whose speed is in doubt has its doubt in words instead of a point. Rows
    without a speed-up are left out. Raise `orchestrator.errors.OrchestratorError` if no row has a speed-up, or if the frame does
    not come from `tunebench.load`.
    """
    from orchestrator.report.notebook import plot

    return plot.speedup(frame)


def findings(frame: pd.DataFrame) -> list[str]:
    """Return the findings of the report as sentences: gains, then notes, warnings and failures, which are marked as such.

    If the frame has a selection of the experiments, return only the sentences about at least one of them. Raise
    `orchestrator.errors.OrchestratorError` if the frame does not come from `tunebench.load`.
    """
    from orchestrator.report.notebook import plot

    return plot.findings(frame)
