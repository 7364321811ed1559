"""The one experiment that a bisection runs, and how it is planned for each candidate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.compare.bisect.checkout import NotBuilt
from orchestrator.errors import BuildError, ConfigError, SelectionError
from orchestrator.machine import environments
from orchestrator.machine.provenance import Machine, this_machine
from orchestrator.monitors import perturbing
from orchestrator.plan.config import Suite
from orchestrator.plan.data import find_local
from orchestrator.plan.expand import expand, has_id
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.plan.placement import interpreter
from orchestrator.plan.selection import Selection
from orchestrator.records import EnvironmentRequest, Experiment
from orchestrator.records.labels import labels, listed


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The experiment in the user's working tree, and its place (`index`) in the plan. `say` gets a sentence for each build."""

    suite: Suite
    selection: Selection
    machine: Machine
    index: int
    experiment: Experiment
    say: Callable[[str], None]

    @property
    def request(self) -> EnvironmentRequest | None:
        """The request for the experiment's software environment, or None if it has none."""
        environment = self.experiment.environment
        return self.suite.environments.requests[environment.name] if environment else None

    @property
    def identity(self) -> str:
        """A name for all that a bisection keeps the same. Files of a commit and installed packages are not a part of it."""
        python = None if self.experiment.environment else self.experiment.python
        same = replace(self.experiment, sources={}, environment=None, python=python)
        request = self.request and replace(self.request, folders=dict.fromkeys(self.request.folders, ""))
        asked = f"-{environments.digest(request)}" if request else ""
        return f"{same.id.rpartition('-')[0]}-{Digester(perturbing(same.monitors)).digest(same)}{asked}"

    def at(self, suite: Suite) -> Experiment:
        """Return the experiment of a changed suite, with its software environment built. Raise NotBuilt if it cannot run."""
        try:
            experiment = self._planned(suite)
            if experiment.environment is not None and not has_id(experiment):
                environments.build(suite.environments.requests[experiment.environment.name], self.say)
                experiment = self._planned(suite)
        except (BuildError, ConfigError, SelectionError) as error:
            raise NotBuilt(str(error).splitlines()[0]) from error
        if reason := experiment.skip or experiment.cannot_run_here:
            raise NotBuilt(reason.text)
        return experiment

    def _planned(self, suite: Suite) -> Experiment:
        experiments = expand(suite, self.selection, self.machine).experiments
        if len(experiments) <= self.index:
            raise NotBuilt(f"the scenario file has only {len(experiments)} experiments here")
        return experiments[self.index]


def chosen(suite: Suite, selection: Selection, *, say: Callable[[str], None], folder: Path | None = None) -> Chosen:
    """Return the only experiment that a selection chooses. Raise SelectionError if it chooses none or several.

    `folder` is the folder in which the paths of the scenario file are searched, instead of its own.
    """
    suite, machine = _with_own_files(suite), this_machine()
    if folder is not None:
        suite = replace(suite, document=replace(suite.document, file=folder / suite.document.file.name))
    experiments = expand(suite, selection, machine).experiments
    if len(experiments) != 1:
        shown = listed([one.id for one in experiments], labels(experiments))
        raise SelectionError(
            f"{suite.document.file}: a bisection runs one experiment, and {len(experiments)} are chosen; choose one with "
            f"--scenario or --cell: {shown}"
        )
    (experiment,) = experiments
    if reason := experiment.skip or experiment.cannot_run_here:
        raise SelectionError(f"{experiment.id} cannot run here: {reason.text}; choose another experiment with --cell")
    # Ids depend on the content of scripts, so a part of an id that chooses an experiment here may choose none in a commit.
    every = replace(selection, cells=())
    ids = [one.id for one in expand(suite, every, machine).experiments]
    return Chosen(
        suite=suite, selection=every, machine=machine, index=ids.index(experiment.id), experiment=experiment, say=say
    )


def _with_own_files(suite: Suite) -> Suite:
    """Return the suite with absolute paths of the scenario file, the data and the interpreters."""
    file = Path.cwd() / suite.document.file
    data = find_local(suite.data_processing.dataset_name, file.parent)
    named = suite.data_processing.model_copy(update={"dataset_name": str(data)}) if data else suite.data_processing
    scenarios = (one.model_copy(update={"python": interpreter(one.python, file.parent)}) for one in suite.scenarios)
    return replace(suite, data_processing=named, scenarios=tuple(scenarios))
