"""The code of Tunebench. For notebooks: `import tunebench; tunebench.load("results")` returns a results folder as a DataFrame.

The command is `tunebench` (`orchestrator.cli`). Importing this package is fast, because pandas is imported only when `load` is
called. docs/notebook.md has examples. docs/metrics.md explains every column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["__version__", "dtypes", "load"]

__version__ = "0.1.0"

Folder = str | PathLike[str]
Rows = Literal["experiments", "runs", "ranks", "devices"]
Units = Literal["base", "readable"]


def load(
    folders: Folder | Iterable[Folder],
    *,
    rows: Rows = "experiments",
    baseline: str | Sequence[str] | None = None,
    all: bool = False,
    units: Units = "base",
) -> pd.DataFrame:
    """Return one or more results folders as a DataFrame. Each row is an experiment, a run, a training process or a watched GPU.

    `rows` chooses the kind of row. Experiments and runs have the columns of the report's table, in this order: the facts that
    distinguish the rows, the key metrics, the outcome, the id. With `all`, they have every column. The column types are those of
    docs/metrics.md: counts are whole numbers, and missing values are NA.

    Numbers are in base units (seconds, bytes, joules) at full precision. `units="readable"` converts memory to GiB, and short
    times and small energies to ms and mJ; the name of a converted column ends with its unit.

    A metric of an experiment is the mean over its repeats that ended ok. For speeds of the steady state and for step times, it is
    the geometric mean: `frame.attrs["geometric_mean"]` names these columns. With several folders, the column `results` names the
    folder of a row.

    `baseline` names a framework configuration, or one or more values such as "optim=sgd". Experiments then have the columns
    `speedup` and `memory_ratio`, relative to this baseline. Without `baseline`, they have these columns if the scenario names a
    baseline, or if the experiments differ in an argument. `frame.attrs["warnings"]` has a sentence for everything that could not
    be read. `tunebench.plot` draws the speed-ups of a frame, and returns its findings.

    Raise `orchestrator.errors.OrchestratorError` if a folder has no results, or if no experiment matches `baseline`.
    """
    from pathlib import Path

    from orchestrator.report.notebook import frames

    paths = [folders] if isinstance(folders, (str, PathLike)) else folders
    named = [baseline] if isinstance(baseline, str) else list(baseline or ())
    return frames.frame([Path(path) for path in paths], rows=rows, baseline=named, all_columns=all, unit_system=units)


def dtypes() -> dict[str, str]:
    """Return the pandas type of each known column, for `pandas.read_csv("results/benchmarks.csv", dtype=tunebench.dtypes())`."""
    from orchestrator.results.table.column_types import known

    return known()
