"""The trainer plug: what a trainer is, for ours and for third parties.

Only the seam: the trainers are beside it, the registry is the package itself. A third party subclasses `Trainer`, sets
`name`, writes `command` and `metrics`, and names its instance under the entry-point group `tunebench.trainers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from orchestrator.records import Experiment, Measurement, Text

NOTHING: Mapping[str, Text] = MappingProxyType({})


@runtime_checkable
class Trainer(Protocol):
    """Turns an experiment into a command, and what that command left behind into numbers.

    `requires` are the distributions that the training interpreter must have. `instrumented`: it runs under
    `workers/instrument/` (`instrumented.command`), which leaves the worker files. `data_form` is the form of prepared
    data that it reads (`tokens`, `text`, or None: it brings its own). `base_arguments` stand below `defaults.yaml`.
    `builds_models`: it makes models named `config:NAME`, which lie in no folder and no hub.
    """

    name: str
    requires: tuple[str, ...] = ()
    instrumented: bool = False
    data_form: str | None = None
    builds_models: bool = True
    base_arguments: Mapping[str, Text] = NOTHING

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        """What the trainer receives: the experiment's arguments, and those that are the run's own (data, output folder)."""
        return dict(experiment.arguments)

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        """The words that follow the launcher: a script or `-m module`, and its arguments."""
        ...

    def metrics(self, run_dir: Path) -> list[Measurement]:
        """The numbers of a run that ended, read from its folder; what can't be read is left out or None."""
        ...

    def requires_for(self, arguments: Mapping[str, Text]) -> tuple[str, ...]:
        """The distributions that these arguments need; more than `requires` where a choice asks for more."""
        return self.requires

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        """One layer of arguments in this trainer's names, with a sentence for each name that changed.

        A layer is one source (the defaults, a framework configuration, a scenario): translated apart, so that
        precedence holds between an old name in one file and its new name in another.
        """
        return dict(arguments), ()
