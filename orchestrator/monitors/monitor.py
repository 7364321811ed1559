"""The interface of a monitor, for the shipped monitors and for third parties.

The monitors are modules next to this one, and the package is their registry. A third party subclasses `Monitor`, overrides what it
needs, and names its instance under the entry-point group `tunebench.monitors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from orchestrator.records import Caveat, Command, Gpu, Measurement


class Monitor:
    """An observer of one run. Every method does nothing until it is overridden.

    A measurement whose value is None is a dash in the report. Its `missing`, or else its `source`, says why, and becomes a
    warning.
    """

    # True: the run's speed is not comparable with the speed of a run without this monitor.
    perturbs = False

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """Return the command with what the monitor needs: a flag, a variable, a wrapper."""
        return command

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        """Return a context manager that is entered before the run starts, and left after its end, however it ended."""
        return nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        """Return the numbers, read from the run folder after the run."""
        return []

    def devices(self, run_dir: Path) -> list[Mapping[str, Any]]:
        """Return a row for each watched GPU, read after the run: cells by metric name, and `gpu`, its UUID."""
        return []

    def warnings(self, run_dir: Path) -> Sequence[Caveat | str]:
        """Return what to know next to the run's numbers, as caveats or sentences."""
        return []
