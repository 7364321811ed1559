"""`expand`: a suite and a selection → the experiments, each with its identity. Pure: the machine is an argument.

Precedence, lowest first: what the trainer starts from < defaults.yaml < framework configuration < axis < scenario argument <
`--set`. Every layer is put into the trainer's names before the layers meet, so that an old name in one and a new name in
another are the same argument. A layer knows its origin, so that a mistake is told with its place in the file. Two cells of a
scenario that come to the same experiment are run once. What is wrong anywhere is `skip`; what merely cannot run on this machine is
`cannot_run_here`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from orchestrator.errors import ConfigError, Problem, SelectionError, suggestion
from orchestrator.machine.provenance import Machine
from orchestrator.monitors import perturbing
from orchestrator.plan import checks
from orchestrator.plan.cells import (
    ACCUMULATION,
    BATCH,
    EFFECTIVE,
    FRAMEWORK,
    MAX_CELLS,
    MODEL,
    AmbiguousInclude,
    BatchMistake,
    Cell,
    Duplicate,
    Layers,
    TooManyCells,
    cells,
    global_batch,
    settle_batch,
)
from orchestrator.plan.command import plan_problems
from orchestrator.plan.config import Scenario, Suite
from orchestrator.plan.data import OWN_DATA, Prepared, local_model, prepared_data
from orchestrator.plan.experiment_id import Digester, Tagger, accelerate_settings
from orchestrator.plan.placement import cannot_run_here, placed_on, undone, wrong_anywhere
from orchestrator.plan.selection import Selection, axes_of, chosen_scenarios, models_named
from orchestrator.records import CustomCommand, Experiment, Framework, Reason, Text
from orchestrator.trainers import Trainer
from orchestrator.trainers import get as get_trainer
from orchestrator.trainers import known as known_trainers
from orchestrator.trainers import load_problems as trainer_problems

# Keys of a scenario that are fields of each of its experiments.
_AS_WRITTEN = ("python", "monitors", "busy_gpus", "timeout_s", "startup_timeout_s", "stall_timeout_s", "keep", "tags")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `expand` found: experiments in order, duplicates that it collapsed, sentences that are worth saying once."""

    experiments: tuple[Experiment, ...]
    collapsed: tuple[Duplicate, ...]
    notes: tuple[str, ...]


def expand(suite: Suite, selection: Selection, machine: Machine) -> Plan:
    """The experiments of the chosen scenarios. Raises ConfigError or SelectionError for what is the user's mistake."""
    experiments: dict[str, Experiment] = {}
    collapsed: list[Duplicate] = []
    problems: list[Problem] = []
    notes: dict[str, None] = dict.fromkeys(suite.notes)
    for scenario in chosen_scenarios(suite, selection):
        try:
            expansion = _Expansion(suite, scenario, selection, machine)
            for experiment in expansion.experiments():
                known = experiments.setdefault(experiment.id, experiment)
                if known.scenario != experiment.scenario:
                    message = (
                        f"its experiment {experiment.id} has the id of one of scenario {known.scenario!r}; rename one"
                    )
                    raise ConfigError([suite.problem(scenario, ("name",), message)])
                if known is not experiment:
                    collapsed.append(Duplicate.of(experiment))
            notes.update(dict.fromkeys((*expansion.notes, *expansion.layers.notes)))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return Plan(experiments=tuple(experiments.values()), collapsed=tuple(collapsed), notes=tuple(notes))


class _Expansion:
    """One scenario on its way to experiments. Its cached properties are what all of its cells share, each worked out once."""

    def __init__(self, suite: Suite, scenario: Scenario, selection: Selection, machine: Machine) -> None:
        self.suite, self.scenario, self.selection, self.machine = suite, scenario, selection, machine
        self.notes = [*checks.axes_without_effect(scenario, selection.axes), *checks.secrets(scenario)]
        self._checked: set[tuple[str, Text]] = set()
        self._tagger = Tagger(scenario.name, suite.experiment_tag)

    def experiments(self) -> Iterator[Experiment]:
        """Yield an experiment for each cell. Raises ConfigError for the first kind of mistake that is found."""
        self._refuse(checks.watching(self.scenario, self.trainer))
        written = next(one for one in self.suite.scenarios if one.name == self.scenario.name)
        self._refuse(checks.entries(written, self.axes, self.suite.frameworks))
        try:
            for cell in cells(self.axes, include=self.scenario.include, exclude=self.scenario.exclude):
                yield self._experiment(cell)
        except AmbiguousInclude as error:
            message = f"include: this entry starts a new cell, so it must say which {error.axis!r} is meant"
            raise ConfigError([self._problem(("include", error.index), message)]) from None
        except TooManyCells as error:
            message = f"the axes come to more than {MAX_CELLS:,} experiments ({error}); take values away"
            raise ConfigError([self._problem(("matrix",), message)]) from None

    def _refuse(self, found: checks.Found) -> None:
        problems = [self._problem(path, message) for path, message in found]
        if problems:
            raise ConfigError(problems)

    @cached_property
    def _prepared(self) -> Callable[[Mapping[str, Text]], Prepared]:
        return prepared_data(self.suite, self.trainer)

    @cached_property
    def _digester(self) -> Digester:
        return Digester(perturbing(self.scenario.monitors))

    def _problem(self, path: tuple[str | int, ...], message: str) -> Problem:
        return self.suite.problem(self.scenario, path, message)

    @cached_property
    def trainer(self) -> Trainer:
        name = self.scenario.trainer or "huggingface"
        try:
            trainer = get_trainer(name)
        except SelectionError:
            unknown = f"unknown trainer {name!r}{suggestion(name, known_trainers())}"
            message = " ".join([unknown, *trainer_problems()])
            if "trainer" in self.selection.settings:
                raise SelectionError(f"--trainer: {message}") from None
            raise ConfigError([self._problem(("trainer",), message)]) from None
        if name == "custom" and self.scenario.custom is None:
            raise ConfigError([self._problem((), "'trainer: custom' needs a 'custom:' section with the command")])
        return trainer

    @cached_property
    def models(self) -> tuple[str, ...]:
        models = models_named(self.suite, self.scenario, self.selection)
        if self.trainer.name == "custom":
            return models or ("none",)
        if not models:
            message = f"no {MODEL}; name at least one model under arguments:, for example config:tiny-llama"
            raise ConfigError([self._problem((), message)])
        self._refuse(checks.models(models, self.trainer))
        return tuple(local_model(name, self.suite.document.file.parent) for name in models)

    @cached_property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        return axes_of(self.scenario, self.selection, self.models)

    @cached_property
    def layers(self) -> Layers:
        axes, overrides = self.selection.axes, self.selection.overrides
        return Layers(self.suite, self.scenario, self.trainer, axes=axes, overrides=overrides)

    @cached_property
    def frameworks(self) -> dict[str | None, Framework | None]:
        """The framework configurations of the axis and of `include:`, their arguments in the trainer's names."""
        added = (entry[FRAMEWORK] for entry in self.scenario.include if FRAMEWORK in entry)
        return {name: self._framework(name) for name in dict.fromkeys((*self.axes[FRAMEWORK], *added))}

    def _framework(self, name: str | None) -> Framework | None:
        if name is None:
            return None
        if name not in self.suite.frameworks:
            # load_suite has checked the names in the file: this name was given on the command line
            message = f"unknown framework configuration {name!r}{suggestion(name, self.suite.frameworks)}"
            raise SelectionError(f"--set framework_config: {message}")
        framework = self.suite.frameworks[name]
        return replace(framework, arguments=self.layers.of_framework(name, framework.arguments))

    @cached_property
    def custom(self) -> CustomCommand | None:
        """The scenario's own command, which may name files next to the scenario file."""
        if self.scenario.custom is None or self.trainer.name != "custom":
            return None
        added = (name for entry in self.scenario.include for name in entry)
        brought = (name for one in self.frameworks.values() if one for name in one.arguments)
        batches = (BATCH, ACCUMULATION) if EFFECTIVE in {*self.axes, *self.layers.upper, *self.layers.lower} else ()
        given = {*self.layers.lower, *self.layers.upper, *self.axes, *added, *brought, *batches} - {
            FRAMEWORK,
            EFFECTIVE,
        }
        self._refuse(checks.custom(self.scenario, given))
        return replace(self.scenario.custom.record(), folder=str(self.suite.document.file.parent.resolve()))

    @cached_property
    def shared(self) -> dict[str, Any]:
        """The fields that all experiments of the scenario have alike."""
        measure = self.scenario.measure
        return {
            "scenario": self.scenario.name,
            "trainer": self.trainer.name,
            "custom": self.custom,
            "measure": measure.record() if measure else None,
            **self.scenario.how_often(),
            **{name: getattr(self.scenario, name) for name in _AS_WRITTEN},
        }

    @cached_property
    def launches(self) -> dict[str | None, dict[str, Any]]:
        """The fields that all experiments with the same framework configuration have alike."""
        return {
            name: {
                "framework": framework,
                "accelerate": accelerate_settings(self.suite.accelerate, framework),
                "env": {**(framework.env if framework else {}), **self.scenario.env},
                **self.shared,
            }
            for name, framework in self.frameworks.items()
        }

    def _experiment(self, cell: Cell) -> Experiment:
        framework = self.frameworks[cell.framework]
        merged = self.layers.merged(cell)
        skip = undone(framework, merged) if framework else None
        skip = skip or self._settle_batch(merged, cell)
        arguments = {name: value for name, value in merged.items() if value is not None}
        unchecked = arguments.items() - self._checked
        if unchecked:
            self._checked |= unchecked
            self._check({name: value for name, value in arguments.items() if (name, value) in unchecked}, cell)
        if self.trainer.name == "custom" and cell.model == "none":
            del arguments[MODEL]
        return self._finish(cell, arguments, skip)

    def _check(self, arguments: Mapping[str, Text], cell: Cell) -> None:
        """Check arguments that no cell before this one had. Raises ConfigError for values that the trainer cannot take."""
        self.notes.extend(checks.near_names(arguments, self.trainer))
        self.notes.extend(checks.too_few_steps(self.scenario, arguments, self.trainer))
        wrong = [(said, self.layers.origin(name, cell)) for name, said in checks.values(arguments, self.trainer)]
        if wrong:
            raise ConfigError(
                [self._problem(at.path, said if at.path else f"{said} ({at.origin})") for said, at in wrong]
            )

    def _settle_batch(self, arguments: dict[str, Text | None], cell: Cell) -> Reason | None:
        try:
            return settle_batch(arguments, cell.num_gpus)
        except BatchMistake as error:
            layers = [(name, self.layers.origin(name, cell)) for name in error.names]
            said = ", ".join(f"{name} in {layer.origin}" for name, layer in layers)
            path = next((layer.path for _, layer in layers if layer.path), ())
            raise ConfigError([self._problem(path, f"{error}{f' ({said})' if said else ''}")]) from None

    def _finish(self, cell: Cell, arguments: dict[str, Text], skip: Reason | None) -> Experiment:
        scenario, trainer = self.scenario, self.trainer
        if trainer.instrumented:
            arguments.setdefault("skip_memory_metrics", str(not checks.TRACKERS.intersection(scenario.monitors)))
        data, path = self._prepared(arguments)
        if data is not None:  # the trainer gets the prepared copy, not the name of its source
            for name in OWN_DATA:
                arguments.pop(name, None)
        fields = {
            **self.launches[cell.framework],
            "model": cell.model,
            "num_gpus": cell.num_gpus,
            "device": placed_on(scenario.device, cell.num_gpus, self.machine),
            "arguments": arguments,
            "data": data,
            "data_path": path,
            "global_batch": global_batch(arguments, cell.num_gpus) if trainer.instrumented and not skip else None,
        }
        draft = Experiment(id="", **fields)
        return Experiment(
            id=self._tagger.id(draft, self._digester.digest(draft)),
            skip=skip or wrong_anywhere(draft, trainer, scenario.device) or plan_problems(draft),
            cannot_run_here=cannot_run_here(draft, trainer, self.machine),
            **fields,
        )
