"""The interface that every monitor implements, whether Tunebench or another package provides it.

Tunebench's monitors are modules of this package, and its `__init__` is their registry. Another package subclasses `Monitor`,
overrides the methods that it needs, and names an instance under the entry-point group `tunebench.monitors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from orchestrator.records import Caveat, Command, Gpu, Measurement


class Monitor:
    """An observer of one run. Every method does nothing until it is overridden.

    The report shows a dash for a measurement whose value is None. The measurement's `missing` gives the reason, or its `source`
    if `missing` is None. The reason becomes a warning.
    """

    # True: the run's speed is not comparable with the speed of a run without this monitor.
    perturbs = False

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """Return the command, with additions that the monitor needs: a flag, a variable, a wrapper."""
        return command

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        """Return a context manager. It is entered before the run starts, and exited after the run ends, for whatever reason."""
        return nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        """Return the numbers, read from the run folder after the run."""
        return []

    def devices(self, run_dir: Path) -> list[Mapping[str, Any]]:
        """Return a row for each watched GPU after the run. Its cells are named after metrics; the cell `gpu` is the UUID."""
        return []

    def warnings(self, run_dir: Path) -> Sequence[Caveat | str]:
        """Return what a reader of the run's numbers must know, as caveats or sentences."""
        return []
