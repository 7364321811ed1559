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

    The report shows a dash for a measurement whose value is None. The reason is the measurement's `missing`, or its `source` if
    `missing` is None. The reason also becomes a warning.
    """

    # True: the run's speed is not comparable with the speed of a run without this monitor.
    perturbs = False

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """Return the command, with additions that the monitor needs: a flag, a variable, a wrapper."""
        return command

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        """Return a context manager.

        The caller enters it before the run starts, and exits it after the run has ended, also after a failure.
        """
        return nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        """Return the numbers, read from the run folder after the run."""
        return []

    def devices(self, run_dir: Path) -> list[Mapping[str, Any]]:
        """Return a row for each GPU that was watched. The names of its cells are names of metrics. The cell `gpu` is the UUID."""
        return []

    def warnings(self, run_dir: Path) -> Sequence[Caveat | str]:
        """Return the caveats or sentences that a reader of the run's numbers must know."""
        return []
