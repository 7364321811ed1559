"""The monitor plug: what a monitor is, for ours and for third parties. Only the seam: the monitors lie beside it.

A third party subclasses `Monitor`, overrides what it needs, and names its instance under the entry-point group
`tunebench.monitors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from orchestrator.records import Caveat, Command, Gpu, Measurement


class Monitor:
    """Observes one run. Every method does nothing until overridden.

    A measurement whose value is None is a dash in the report. Its `missing`, or else its `source`, says why, and becomes a
    warning.
    """

    perturbs = False
    """True: this run's speed is not comparable with that of a run without the monitor."""

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """The command with what the monitor needs in it: a flag, a variable, a wrapper."""
        return command

    def watch(self, run_dir: Path, gpus: Sequence[Gpu]) -> AbstractContextManager[object]:
        """What is entered before the run starts and left after it ended, however it ended."""
        return nullcontext()

    def measurements(self, run_dir: Path) -> list[Measurement]:
        """The numbers, read from the run folder after the run."""
        return []

    def devices(self, run_dir: Path) -> list[Mapping[str, Any]]:
        """A row for each GPU that was watched, cells by metric name, with `gpu` (its UUID); read after the run."""
        return []

    def warnings(self, run_dir: Path) -> Sequence[Caveat | str]:
        """Return what to know next to the run's numbers, as caveats or sentences."""
        return []
