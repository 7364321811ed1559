"""Charts of runs over time: the steps of an experiment's runs, and the memory and power of a run's GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.report.series import RunSeries


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """One run to draw: the names of its experiment and of the run, its series, and the capacity of its GPUs if known.

    `place` is the experiment's place among the colours of the page. `not_counted` says why no number includes the run, such as
    "slow first run"; it is empty if the run counts.
    """

    experiment: str
    run: str
    series: RunSeries
    place: int = 0
    not_counted: str = ""
    gpu_bytes: float | None = None
