"""The runs of a table in the form that the page needs, and the order in which their series are drawn. Reads only frames."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.report.page.charts.chart_data import SPEEDS, Key
from orchestrator.report.page.folders import Folders
from orchestrator.results.table.baseline import MEMORIES, is_on_cold_run
from orchestrator.results.table.column_choice import Numbers, column

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run that ended: its experiment's key, its name (`r1-t1`), its outcome, and the values that the page needs.

    `numbers` maps a column of NUMBERS to the run's value. `remarks` are the sentences about the run. `cold`: it was a cold first
    run, and no number of the experiment includes it.
    """

    key: Key
    name: str
    status: str
    numbers: Mapping[str, float]
    remarks: tuple[str, ...]
    discarded_steps: int | None
    gpu_words: str | None
    cold: bool

    def folder(self, folders: Folders) -> Path | None:
        return folders.run_dir(self.key[0], self.key[1], self.name)


# The numbers of a run that the page shows. Of the speeds and of the memories, it shows the first that any run has.
NUMBERS = (*SPEEDS, "step_time_s", "first_step_s", *MEMORIES, "wall_s")
_COLUMNS = (
    *("results", "id", "repeat", "attempt", "status", "failure_kind", "failure_cause", "warnings", "discarded_steps"),
    "provenance_gpus",
)


def read(frame: pd.DataFrame) -> dict[Key, list[Run]]:
    """Return the runs of each experiment in the frame's order.

    Rows of the reference are left out, because they have no run folder.
    """
    runs: dict[Key, list[Run]] = defaultdict(list)
    rows = zip(*(column(frame, name) for name in _COLUMNS), strict=True)
    numbers = Numbers(frame)
    known = [name for name in NUMBERS if name in frame]
    for row, (results, experiment, repeat, attempt, status, kind, cause, warnings, discarded, gpus) in enumerate(rows):
        if isinstance(repeat, int) and isinstance(attempt, int):
            failure = " · ".join(str(part) for part in (kind, cause) if part)
            run = Run(
                key=(None if results is None else str(results), str(experiment)),
                name=f"r{repeat}-t{attempt}",
                status=str(status),
                numbers={name: value for name in known if (value := numbers(name, row)) is not None},
                remarks=tuple(filter(None, (failure, *str(warnings or "").splitlines()))),
                discarded_steps=discarded if isinstance(discarded, int) and not isinstance(discarded, bool) else None,
                gpu_words=str(gpus) if gpus else None,
                cold=any(map(is_on_cold_run, str(warnings or "").splitlines())),
            )
            runs[run.key].append(run)
    return dict(runs)


def in_turn(runs: Mapping[Key, Sequence[Run]], keys: Sequence[Key]) -> Iterator[Run]:
    """Yield the first run of each experiment, then the second, and so on. In each experiment, runs that ended ok come first."""
    queues = [sorted(runs.get(key, ()), key=lambda run: run.status != "ok") for key in dict.fromkeys(keys)]
    for layer in zip_longest(*queues):
        yield from (run for run in layer if run is not None)
