"""The expansion of one scenario: from its layers of arguments to its experiments.

Precedence of arguments, lowest first: the trainer's defaults < defaults.yaml < framework configuration < axis < scenario argument <
`--set`. A trainer gets defaults.yaml and a framework configuration only if they are written for this trainer. Every layer is
translated to the trainer's names before the layers are merged. So the old and the new name of one argument count as the same
argument. A layer has an origin, so that an error can name the place in the file. `skip` is the reason why no machine can run an
experiment. `cannot_run_here` is the reason why this machine cannot run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, cached_property, partial
from types import SimpleNamespace
from typing import Any

from orchestrator.errors import ConfigError, Problem, SelectionError
from orchestrator.files.reading import resolved
from orchestrator.machine.provenance import Machine
from orchestrator.monitors import perturbing
from orchestrator.plan import checks
from orchestrator.plan.cells import (
    ENVIRONMENT,
    FRAMEWORK,
    MODEL,
    BatchMistake,
    Cell,
    Layers,
    MatrixMistake,
    cells,
    global_batch,
    settle_batch,
)
from orchestrator.plan.command import plan_problems
from orchestrator.plan.command.parallelism import data_parallel_ranks
from orchestrator.plan.config import Scenario, Suite, argument_texts, own_script
from orchestrator.plan.config.frameworks import combined, contradictions, for_trainer
from orchestrator.plan.config.keys.value_types import tag_arguments
from orchestrator.plan.config.scenario_checks import NEEDS_CUSTOM
from orchestrator.plan.data import OWN_DATA, Prepared, local_model, prepared_data, with_local_data
from orchestrator.plan.expand import custom_command
from orchestrator.plan.expand.software import environment_of, other_environment, software
from orchestrator.plan.identity.experiment_id import Digester, accelerate_settings, readable_part
from orchestrator.plan.identity.sources import Sources
from orchestrator.plan.placement import (
    cannot_run_here,
    interpreter,
    lora_arguments,
    lora_method,
    placed_on,
    undone,
    uses_lora,
    without_lora,
    written_for_others,
    wrong_anywhere,
)
from orchestrator.plan.selection import (
    Selection,
    axes_of,
    models_named,
    zipped_axes,
)
from orchestrator.records import CustomCommand, Environment, Experiment, Framework, Reason, Script, Text
from orchestrator.trainers import Trainer
from orchestrator.trainers import get as get_trainer
from orchestrator.trainers.external.operators import module_in

# Keys of a scenario that are fields of each of its experiments.
_AS_WRITTEN = (*("monitors", "busy_gpus", "timeout_s", "startup_timeout_s", "stall_timeout_s", "keep", "tags"),)


class Expansion:
    """The expansion of one scenario. Its cached properties are the values that all cells share."""

    def __init__(
        self, suite: Suite, scenario: Scenario, selection: Selection, machine: Machine, files: Sources
    ) -> None:
        self.suite, self.scenario, self.selection = suite, scenario, selection
        self.machine, self.files = machine, files
        self.notes = [*checks.axes_without_effect(scenario, selection.axes), *checks.secrets(scenario)]
        self.notes += [*own_script.note_on_folder(scenario), *custom_command.notes_on_metrics(scenario)]
        self._checked: set[tuple[str, Text]] = set()
        self._launch = cache(self._launch_of)
        self._of_operator = cache(own_script.of_operator)

    def experiments(self) -> Iterator[Experiment]:
        """Yield an experiment for each cell. If a check finds mistakes, raises ConfigError with all mistakes of this check."""
        self._refuse(checks.watching(self.scenario, self.trainer))
        written = self.suite.written[self.scenario.name]
        self._refuse(checks.zipped_counts(written))
        together = zipped_axes(self.scenario, self.selection)
        self._refuse(checks.size(written, self.axes, together))
        self._refuse(checks.entries(written, self.axes, self.suite.frameworks))
        self._refuse(checks.baseline(self.scenario, written, self.axes))
        try:
            for cell in cells(self.axes, together, include=self.scenario.include, exclude=self.scenario.exclude):
                yield self._experiment(cell)
        except MatrixMistake as error:
            raise ConfigError([self._problem(error.path, str(error))]) from None

    def _refuse(self, mistakes: checks.Found) -> None:
        problems = [self._problem(path, message) for path, message in mistakes]
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
        name = self.scenario.trainer_name()
        if message := checks.unknown_trainer(name):
            if "trainer" in self.selection.settings:
                raise SelectionError(f"--trainer: {message}")
            raise ConfigError([self._problem(("trainer",), message)])
        if name == "custom" and self.scenario.custom is None:
            raise ConfigError([self._problem((), NEEDS_CUSTOM)])
        self._refuse(own_script.contradictions(self.scenario))  # checked again, since --set may cause a contradiction
        return get_trainer(name)

    @cached_property
    def defaults(self) -> Mapping[str, Text | None]:
        return self.suite.defaults_for(self.trainer)

    @cached_property
    def models(self) -> tuple[str, ...]:
        models = models_named(self.defaults, self.scenario, self.selection)
        if self.stand_in is not None:
            return models or (self.stand_in,)
        if not models:
            message = f"{MODEL} is missing; name at least one model under 'arguments:', for example config:tiny-llama"
            raise ConfigError([self._problem((), message)])
        self._refuse(checks.models(models, self.trainer))
        return tuple(local_model(name, self.suite.document.file.parent) for name in models)

    @cached_property
    def stand_in(self) -> str | None:
        """The word that replaces the model's name if the user's own program runs without a model."""
        if not self.trainer.needs_model:
            return "none"
        return self.script.name if self.script is not None else None

    @cached_property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        return axes_of(self.scenario, self.selection, self.models)

    @cached_property
    def layers(self) -> Layers:
        axes, overrides = self.selection.axes, self.selection.overrides
        return Layers(self.suite, self.scenario, self.trainer, axes=axes, overrides=overrides)

    @cached_property
    def frameworks(self) -> dict[str | None, Framework | None]:
        """The framework configurations of the axis and of `include:`, with their arguments under the trainer's names."""
        added = {
            entry[FRAMEWORK]: ("include", at) for at, entry in enumerate(self.scenario.include) if FRAMEWORK in entry
        }
        places = {name: (FRAMEWORK, at) for at, name in enumerate(self.axes[FRAMEWORK])}
        every = {**added, **places}
        return {name: None if name is None else self._framework(name, place) for name, place in every.items()}

    def _framework(self, name: str, place: tuple[str, int]) -> Framework:
        sources = for_trainer(self.suite.sources(name), self.trainer, self.layers.translated)
        mistakes = [*contradictions(sources)]
        if mistakes and place[0] in self.selection.settings:
            raise SelectionError(f"--set framework_config: {mistakes[0]}")
        self._refuse((place, message) for message in mistakes)
        framework = combined([source.framework for source in sources])
        self.layers.add(framework)
        return framework

    @cached_property
    def strange(self) -> dict[str | None, Reason | None]:
        """Name → the reason why the framework configuration is stale or for other trainers, or None if there is no such reason."""
        sources = {name: self.suite.sources(name) if name else [] for name in self.frameworks}
        return {name: written_for_others(joined, self.trainer) for name, joined in sources.items()}

    @cached_property
    def custom(self) -> CustomCommand | None:
        """The scenario's own command, which may name files next to the scenario file."""
        if self.scenario.custom is None or self.trainer.name != "custom":
            return None
        of_frameworks = (name for framework in self.frameworks.values() if framework for name in framework.arguments)
        given = {*self.layers.lower, *self.layers.upper, *self.axes, *of_frameworks}
        folder = resolved(self.suite.document.file.parent)
        self._refuse(custom_command.mistakes(self.scenario, given, withheld=self.suite.defaults, folder=folder))
        return replace(self.scenario.custom.record(), folder=str(folder))

    @cached_property
    def _needed(self) -> frozenset[str]:
        """The arguments that every cell needs for the scenario's own command."""
        return custom_command.needed_arguments(self.custom.command) if self.custom else frozenset()

    @cached_property
    def script(self) -> Script | None:
        """The scenario's own script or module, which must exist; or its suite of benchmarks, whose file is in the cells."""
        folder = resolved(self.suite.document.file.parent)
        if self.trainer.name == own_script.SUITE:
            return own_script.of_suite(folder)
        if self.trainer.name != own_script.TRAINER:
            return None
        script = own_script.record(self.scenario, folder)
        self._refuse(own_script.missing(script))
        return script

    def _script_of(self, arguments: Mapping[str, Text]) -> Script | None:
        if self.trainer.name == own_script.OPERATORS:
            return self._of_operator(module_in(arguments), resolved(self.suite.document.file.parent))
        return own_script.in_cell(self.script, arguments) if self.script else None

    @cached_property
    def shared(self) -> dict[str, Any]:
        """The fields that have the same value in all experiments of the scenario."""
        measure = self.scenario.measure
        return {
            "scenario": self.scenario.name,
            "trainer": self.trainer.name,
            "custom": self.custom,
            "measure": measure.record() if measure else None,
            "target": self.scenario.target.record() if self.scenario.target else None,
            "baseline": self.layers.references(self.scenario.baseline),
            "steps": self.scenario.steps or self.trainer.steps,
            **self.scenario.how_often(),
            **{name: getattr(self.scenario, name) for name in _AS_WRITTEN},
        }

    def _shared_with(self, cell: Cell) -> tuple[str, dict[str, Any]]:
        """Return what the cell shares with other cells (`_launch_of`)."""
        environment = environment_of(cell, self.frameworks[cell.framework])
        return self._launch(cell.framework, cell.model, cell.num_gpus, cell.num_nodes, environment)

    def _launch_of(
        self, name: str | None, model: str, num_gpus: int, num_nodes: int, environment: str | None
    ) -> tuple[str, dict[str, Any]]:
        """Return the readable part of ids, and fields, that cells of one framework, model, environment and counts share.

        If the tag names arguments, the readable part differs between these cells, and "" is returned for it.
        """
        framework = self.frameworks[name]
        python, software = self._software(environment)
        variables = self.suite.environments.variables.get(environment or "", {})
        fields = {
            "framework": framework,
            "model": model,
            "num_gpus": num_gpus,
            "num_nodes": num_nodes,
            "device": placed_on(self.scenario.device, num_gpus // num_nodes, self.machine),
            "accelerate": accelerate_settings(self.suite.accelerate, framework),
            "env": {**(framework.env if framework else {}), **variables, **self.scenario.env},
            "python": python,
            "environment": software,
            **self.shared,
        }
        draft: Any = SimpleNamespace(**fields)
        return "" if self._in_tag else readable_part(draft, self.suite.experiment_tag, {}), fields

    @cached_property
    def _in_tag(self) -> Mapping[str, str]:
        """Name of an argument in the tag → the trainer's name of this argument."""
        names = tag_arguments(self.suite.experiment_tag)
        return {name: next(iter(self.layers.translated({name: ""})), name) for name in names}

    @cached_property
    def _software(self) -> Callable[[str | None], tuple[str | None, Environment | None]]:
        """The function that returns the interpreter and the software environment for the name of an environment."""
        needed = {framework.environment for framework in self.frameworks.values() if framework}
        named = {*self.axes[ENVIRONMENT], *(entry.get(ENVIRONMENT) for entry in self.scenario.include), *needed}
        mistakes = [*checks.environments(named - {None}, self.scenario, self.suite.environments.requests)]
        if mistakes and ENVIRONMENT in self.selection.settings:
            raise SelectionError(f"--set environment: {mistakes[0][1]}")
        self._refuse(iter(mistakes))
        own = interpreter(self.scenario.python, self.suite.document.file.parent)
        return cache(partial(software, self.suite.environments.requests, own))

    def _experiment(self, cell: Cell) -> Experiment:
        framework = self.frameworks[cell.framework]
        merged = self.layers.merged(cell)
        in_tag = {name: merged.get(own) for name, own in self._in_tag.items()}
        skip = (
            self.strange[cell.framework]
            or other_environment(cell, framework)
            or (undone(framework, merged) if framework else None)
        )
        skip = skip or self._without_lora(merged, cell) or self._settle_batch(merged, cell)
        arguments = {name: value for name, value in merged.items() if value is not None}
        if not arguments.items() <= self._checked:
            unchecked = arguments.items() - self._checked
            self._checked |= unchecked
            self._check({name: value for name, value in arguments.items() if (name, value) in unchecked}, cell)
        if self.custom and not (skip or self._needed <= arguments.keys()):
            self._refuse(custom_command.without_value(self.custom.command, arguments, cell, self.layers))
        if cell.model == self.stand_in:
            del arguments[MODEL]
        return self._finish(cell, arguments, skip, in_tag)

    def _without_lora(self, merged: Mapping[str, Text | None], cell: Cell) -> Reason | None:
        """Return a reason if the cell does not use LoRA, but an argument of LoRA was written for it.

        Arguments of defaults.yaml are not for this cell. Neither are arguments of a scenario with other cells that use LoRA, or
        with another method that was written.
        """
        names = [name for name in self._lora_arguments if merged.get(name) is not None]
        if not names or uses_lora(merged, self.trainer):
            return None
        methods = (name for name in lora_method(self.trainer) if merged.get(name) is not None)
        is_chosen = any(self.layers.origin(name, cell) not in self.layers.below for name in methods)
        others = (*self.layers.below, *(self.layers.above if self._some_lora or is_chosen else ()))
        written = (name for name in names if self.layers.origin(name, cell) not in others)
        return next((without_lora(name, merged[name] or "") for name in written), None)

    @cached_property
    def _lora_arguments(self) -> tuple[str, ...]:
        return lora_arguments(self.trainer)

    @cached_property
    def _some_lora(self) -> bool:
        """Return whether a cell of the scenario uses LoRA, as far as single layers show it."""
        values = ({name: value} for name, several in self.axes.items() for value in several)
        frameworks = (framework.arguments for framework in self.frameworks.values() if framework)
        lowest = [self.layers.lower, *frameworks]
        highest = [self.layers.translated(argument_texts(given)) for given in (*values, *self.scenario.include)]
        return any(uses_lora({**layer, **self.layers.upper}, self.trainer) for layer in (*lowest, *highest))

    def _check(self, arguments: Mapping[str, Text], cell: Cell) -> None:
        """Check the arguments that no earlier cell had. Raises ConfigError for arguments that the trainer does not accept."""
        folder = self.suite.document.file.parent
        self.notes.extend(checks.notes_on(arguments, self.scenario, self.trainer, self.script, folder))
        layers = {name: self.layers.origin(name, cell) for name in arguments}
        written = [name for name, layer in layers.items() if layer.path]
        mistakes = checks.mistakes(arguments, self.trainer, written)
        found = ((layers.get(name) or self.layers.origin(name, cell), text) for name, text in mistakes)
        self._refuse((layer.path, text if layer.path else f"{text} (from {layer.origin})") for layer, text in found)

    def _settle_batch(self, arguments: dict[str, Text | None], cell: Cell) -> Reason | None:
        try:
            return settle_batch(arguments, cell.num_gpus, self._shared_with(cell)[1]["accelerate"])
        except BatchMistake as error:
            layers = [(name, self.layers.origin(name, cell)) for name in error.names]
            origins = ", ".join(f"{name} in {layer.origin}" for name, layer in layers)
            path = next((layer.path for _, layer in layers if layer.path), ())
            raise ConfigError([self._problem(path, f"{error}{f' ({origins})' if origins else ''}")]) from None

    def _finish(
        self, cell: Cell, arguments: dict[str, Text], skip: Reason | None, in_tag: Mapping[str, Text | None]
    ) -> Experiment:
        scenario, trainer = self.scenario, self.trainer
        if trainer.instrumented and trainer.takes_defaults:
            arguments.setdefault("skip_memory_metrics", str(not checks.TRACKERS.intersection(scenario.monitors)))
        data, path = self._prepared(arguments)
        if data is None and trainer.instrumented and trainer.takes_defaults:
            with_local_data(arguments, self.suite.document.file.parent)
        if data is not None:  # the trainer gets the prepared copy, not the name of its source
            for name in OWN_DATA:
                arguments.pop(name, None)
        readable, common = self._shared_with(cell)
        ranks = data_parallel_ranks(cell.num_gpus, common["accelerate"])
        fields = {
            **common,
            "arguments": arguments,
            "data": data,
            "data_path": path,
            "script": self._script_of(arguments),
            "global_batch": None if skip else global_batch(arguments, ranks, trainer),
        }
        draft: Any = SimpleNamespace(**fields)  # for checks and id; making an Experiment takes ten times as long
        fields["sources"] = draft.sources = self.files.of(draft)
        readable = readable or readable_part(draft, self.suite.experiment_tag, in_tag)
        return Experiment(
            id=f"{readable}-{self._digester.digest(draft)}",
            skip=skip or wrong_anywhere(draft, trainer, scenario.device) or plan_problems(draft),
            cannot_run_here=cannot_run_here(draft, trainer, self.machine, executor=self.suite.executor),
            **fields,
        )
