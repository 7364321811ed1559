"""The interface that every trainer implements, whether Tunebench or another package provides it.

Tunebench's trainers are modules of this package, and its `__init__` is their registry. Another package subclasses `Trainer`, sets
`name`, writes `command` and `metrics`, and names an instance under the entry-point group `tunebench.trainers`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from orchestrator.records import Device, Experiment, Measurement, Reason, StepSource, Text

NOTHING: Mapping[str, Text] = MappingProxyType({})
# Turns a line of stdout into a line of `steps: stdout`. Of a line without a step, it may return anything that is not a step.
StepReader = Callable[[bytes], bytes]


def as_printed(line: bytes) -> bytes:
    """Return the line: the program prints its steps as `steps: stdout` requires."""
    return line


@runtime_checkable
class Trainer(Protocol):
    """A trainer. It turns an experiment into a command, and it turns the files of this command into numbers.

    `requires` has the packages that the training interpreter must have. An `instrumented` trainer runs under `workers/instrument/`,
    which writes the worker files. `data_form` is the form of prepared data that the trainer reads: `tokens`, `text`, or None if it
    has its own data. `base_arguments` are the trainer's defaults; `defaults.yaml` overrides them. A trainer with the built-in
    trainer's arguments sets `takes_defaults` and gets `defaults.yaml`. Any other trainer gets defaults only if `--defaults` names a
    file. A trainer that sets `builds_models` can build the models named `config:NAME`, which are in no folder and on no hub. A
    trainer that works only on one `device` names it. `steps` says how a program without the instrument reports its steps.
    `variables` are environment variables of every run; those of the experiment override them. A
    trainer without a model clears `needs_model`. `result` is the metric without which a run has no result. A trainer that clears
    `launched` starts as `PYTHON COMMAND…` in one process, without accelerate. A trainer that `starts_warm` may be forked by
    a process that has imported torch and transformers.
    """

    name: str
    requires: tuple[str, ...] = ()
    instrumented: bool = False
    data_form: str | None = None
    builds_models: bool = True
    takes_defaults: bool = True
    base_arguments: Mapping[str, Text] = NOTHING
    device: Device | None = None
    steps: StepSource | None = None
    needs_model: bool = True
    result: str = "train_runtime"
    launched: bool = True
    starts_warm: bool = False
    variables: Mapping[str, str] = MappingProxyType({})

    def arguments(self, experiment: Experiment, run_dir: Path) -> dict[str, Text]:
        """Return the experiment's arguments, with two arguments of the run: the data and the output folder."""
        return dict(experiment.arguments)

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        """Return the words after the launcher: a script or `-m module`, and its arguments."""
        ...

    def files(self, experiment: Experiment, run_dir: Path) -> Mapping[str, str]:
        """Return the files that the command reads from the run's folder, as name → text. The instrument need not be among them."""
        return {}

    def metrics(self, run_dir: Path) -> list[Measurement]:
        """Return the numbers of an ended run from the run's folder. A number that cannot be read is left out or None."""
        ...

    def benchmarks(self, run_dir: Path) -> Sequence[Mapping[str, Any]]:
        """Return a row for each benchmark of an ended run: its `fullname`, `params` and metrics. Most trainers have none."""
        return ()

    def failure(self, run_dir: Path, exit_code: int) -> str | None:
        """Return why a run without a result failed, if the program's own files say it better than its log."""
        return None

    def mistakes(self, arguments: Mapping[str, Text], written: Collection[str]) -> Iterable[tuple[str, str]]:
        """Return the names of arguments that are wrong in each experiment, with a sentence that says why. The plan is refused.

        `written` are the names that the scenario itself has. Defaults and the command line may have names for other trainers.
        """
        return ()

    def problem(self, experiment: Experiment) -> Reason | None:
        """Return the reason why the trainer would refuse this experiment on any machine, or None. The plan skips such a cell."""
        return None

    def step_reader(self, experiment: Experiment) -> StepReader:
        """Return the function that reads a line of stdout, for a program that prints its steps in a form of its own."""
        return as_printed

    def steps_at_end(self, experiment: Experiment, run_dir: Path) -> Sequence[Mapping[str, Any]]:
        """Return the lines of the step file, if a program writes better steps into a file at its end than it prints before."""
        return ()

    def requires_for(self, arguments: Mapping[str, Text]) -> tuple[str, ...]:
        """Return the packages that a run with these arguments needs: `requires`, and more packages for some arguments."""
        return self.requires

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        """Return two values: a layer of arguments with this trainer's names, and a sentence for each changed name.

        A layer is one source: the defaults, a framework configuration, a scenario. Each layer is translated separately, so that
        precedence holds between an old name in one file and its new name in another file.
        """
        return dict(arguments), ()
