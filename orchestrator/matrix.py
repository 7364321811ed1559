"""`expand`: a suite and a selection → the experiments, each with its identity. Pure: the machine is an argument.

Precedence, lowest first: what the trainer starts from < defaults.yaml < framework configuration < axis < scenario argument <
`--set`. Every layer is put into the trainer's names before the layers meet, so that an old name in one and a new name in
another are the same argument. Two cells of a scenario that come to the same experiment are run once. What is wrong anywhere
is `skip`; what merely cannot run on this machine is `cannot_run_here`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator import batch, checks, local
from orchestrator.cells import FRAMEWORK, GPUS, MAX_CELLS, MODEL, AmbiguousInclude, Cell, Duplicate, TooManyCells, cells
from orchestrator.config import Scenario, Suite, argument_text, argument_texts
from orchestrator.data import OWN_DATA, prepared_data
from orchestrator.errors import ConfigError, Problem, SelectionError, suggestion
from orchestrator.identity import Tagger, accelerate_settings, experiment_digest
from orchestrator.launcher import plan_problems
from orchestrator.monitors import perturbing
from orchestrator.placement import cannot_run_here, placed_on, undone, wrong_anywhere
from orchestrator.provenance import Machine
from orchestrator.records import CustomCommand, Experiment, Framework, Reason, Text
from orchestrator.selection import Selection, chosen_scenarios
from orchestrator.trainers import Trainer
from orchestrator.trainers import get as get_trainer
from orchestrator.trainers import known as known_trainers
from orchestrator.trainers import load_problems as trainer_problems

_AS_WRITTEN = ("python", "monitors", "busy_gpus", "timeout_s", "startup_timeout_s", "stall_timeout_s", "keep", "tags")
"""Keys of a scenario that are fields of each of its experiments."""


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
            notes.update(dict.fromkeys(expansion.notes))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return Plan(experiments=tuple(experiments.values()), collapsed=tuple(collapsed), notes=tuple(notes))


class _Expansion:
    """One scenario on its way to experiments: what all of its cells share is worked out once."""

    def __init__(self, suite: Suite, scenario: Scenario, selection: Selection, machine: Machine) -> None:
        self.suite, self.scenario, self.selection, self.machine = suite, scenario, selection, machine
        self.notes = [*checks.axes_without_effect(scenario, selection.axes), *checks.secrets(scenario)]
        self.trainer = self._trainer()
        self._refuse(checks.watching(scenario, self.trainer))
        self.perturbing = perturbing(scenario.monitors)
        overrides = dict(selection.overrides)
        self.models = self._models(overrides.pop(MODEL, None))
        self.lower = {**self.trainer.base_arguments, **self._translate(suite.defaults)}
        arguments = {name: value for name, value in scenario.arguments.items() if name != MODEL}
        self.upper = {**self._translate(argument_texts(arguments)), **self._translate(argument_texts(overrides))}
        self.axes = self._axes(overrides)
        self.frameworks = {name: self._framework(name) for name in self.axes[FRAMEWORK]}
        self.tagger = Tagger(scenario.name, suite.experiment_tag)
        self.shared = self._shared()
        self.seen: set[tuple[str, Text]] = set()
        self.prepared = prepared_data(suite, self.trainer)

    def experiments(self) -> Iterator[Experiment]:
        written = next(one for one in self.suite.scenarios if one.name == self.scenario.name)
        self._refuse(checks.entries(written, self.axes, self.suite.frameworks))
        for entry in self.scenario.include:
            if entry.get(FRAMEWORK) not in self.frameworks and FRAMEWORK in entry:
                self.frameworks[entry[FRAMEWORK]] = self._framework(entry[FRAMEWORK])
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

    def _problem(self, path: tuple[str | int, ...], message: str) -> Problem:
        return self.suite.problem(self.scenario, path, message)

    def _trainer(self) -> Trainer:
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

    def _custom(self) -> CustomCommand | None:
        """The scenario's own command, which may name files beside the scenario file."""
        if self.scenario.custom is None or self.trainer.name != "custom":
            return None
        added = (name for entry in self.scenario.include for name in entry)
        brought = (name for one in self.frameworks.values() if one for name in one.arguments)
        batches = (batch.BATCH, batch.ACCUMULATION) if batch.EFFECTIVE in {*self.axes, *self.upper, *self.lower} else ()
        given = {*self.lower, *self.upper, *self.axes, *added, *brought, *batches} - {FRAMEWORK, batch.EFFECTIVE}
        self._refuse(checks.custom(self.scenario, given))
        return replace(self.scenario.custom.record(), folder=str(self.suite.document.file.parent.resolve()))

    def _shared(self) -> dict[str, Any]:
        """The fields that all experiments of the scenario have alike."""
        measure = self.scenario.measure
        return {
            "scenario": self.scenario.name,
            "trainer": self.trainer.name,
            "custom": self._custom(),
            "measure": measure.record() if measure else None,
            **self.scenario.how_often(),
            **{name: getattr(self.scenario, name) for name in _AS_WRITTEN},
        }

    def _translate(self, arguments: Mapping[str, Text | None]) -> dict[str, Text | None]:
        translated, said = self.trainer.translate(arguments)
        self.notes.extend(said)
        return translated

    def _models(self, override: Any) -> tuple[str, ...]:
        """The models, from the strongest place that names any."""
        places = (
            override,
            self.scenario.arguments.get(MODEL),
            self.selection.axes.get(MODEL),
            self.scenario.matrix.get(MODEL),
            self.suite.defaults.get(MODEL),
        )
        named = next((place for place in places if place is not None), None)
        listed = named if isinstance(named, (list, tuple)) else (named,)
        models = tuple(str(item) for item in listed if item is not None)
        if self.trainer.name == "custom":
            return models or ("none",)
        if not models:
            message = f"no {MODEL}; name at least one model under arguments:, for example config:tiny-llama"
            raise ConfigError([self._problem((), message)])
        self._refuse(checks.models(models, self.trainer))
        return tuple(local.model(name, self.suite.document.file.parent) for name in models)

    def _axes(self, overrides: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
        """Axis → values: the command line's replace the scenario's; an overridden argument is no axis any more."""
        listed: dict[str, tuple[Any, ...]] = {**self.scenario.matrix, **self.selection.axes}
        axes: dict[str, tuple[Any, ...]] = {
            MODEL: self.models,
            FRAMEWORK: self.scenario.framework_config,
            GPUS: self.scenario.num_gpus or (1,),
        }
        for name, values in listed.items():
            if name not in (MODEL, *overrides):
                axes[name] = tuple(argument_text(value) for value in values)
        return axes

    def _framework(self, name: str | None) -> Framework | None:
        if name is None:
            return None
        if name not in self.suite.frameworks:
            # load_suite has checked the file's own: this one was asked for on the command line
            message = f"unknown framework configuration {name!r}{suggestion(name, self.suite.frameworks)}"
            raise SelectionError(f"--set framework_config: {message}")
        framework = self.suite.frameworks[name]
        return replace(framework, arguments=self._translate(framework.arguments))

    def _experiment(self, cell: Cell) -> Experiment:
        framework = self.frameworks[cell.framework]
        own = framework.arguments if framework else {}
        merged = {MODEL: cell.model, **self.lower, **own, **self._point(cell), **self.upper}
        merged[MODEL] = cell.model  # the first argument to be read, and no layer's to change
        skip = undone(framework, merged) if framework else None
        skip = skip or self._settle_batch(merged, cell)
        arguments = {name: value for name, value in merged.items() if value is not None}
        unseen = arguments.items() - self.seen
        if unseen:
            self.seen |= unseen
            self._look_at({name: value for name, value in arguments.items() if (name, value) in unseen}, cell)
        if self.trainer.name == "custom" and cell.model == "none":
            del arguments[MODEL]
        return self._finish(cell, framework, arguments, skip)

    def _look_at(self, arguments: Mapping[str, Text], cell: Cell) -> None:
        """What no cell before it had: values that cannot be are mistakes, names that nearly are one's are pointed out."""
        self.notes.extend(checks.near_names(arguments, self.trainer))
        self.notes.extend(checks.too_few_steps(self.scenario, arguments, self.trainer))
        wrong = [(said, *self._place(name, cell)) for name, said in checks.values(arguments, self.trainer)]
        if wrong:
            raise ConfigError(
                [self._problem(path, said if path else f"{said} ({where})") for said, where, path in wrong]
            )

    def _point(self, cell: Cell) -> dict[str, Text | None]:
        """The axes' values under the trainer's names. Notes on old names are kept once."""
        if not cell.point and not cell.extra:
            return {}
        translated, said = self.trainer.translate({**cell.point, **cell.extra})
        if said and said[0] not in self.notes:
            self.notes.extend(said)
        return translated

    def _settle_batch(self, arguments: dict[str, Text | None], cell: Cell) -> Reason | None:
        try:
            return batch.settle(arguments, cell.num_gpus)
        except batch.BatchMistake as error:
            places = [(name, *self._place(name, cell)) for name in error.names]
            said = ", ".join(f"{name} in {where}" for name, where, _ in places)
            path = next((path for _, _, path in places if path), ())
            raise ConfigError([self._problem(path, f"{error}{f' ({said})' if said else ''}")]) from None

    def _place(self, name: str, cell: Cell) -> tuple[str, tuple[str | int, ...]]:
        """Which layer an argument comes from, in words, and its place in the scenario if it stands there, also by an older name."""
        framework = self.frameworks[cell.framework]
        given = {**cell.point, **cell.extra}
        added = {
            one: ("include", index, one)
            for index, entry in enumerate(self.scenario.include)
            for one, value in entry.items()
            if one in given and argument_text(value) == given[one] and given[one] not in self.axes.get(one, ())
        }
        layers: tuple[tuple[str, Mapping[str, tuple[str | int, ...]]], ...] = (
            ("--set", dict.fromkeys(self.selection.overrides, ())),
            ("arguments:", {one: ("arguments", one) for one in self.scenario.arguments}),
            ("include:", added),
            ("matrix:", {one: ("matrix", one) for one in self.scenario.matrix if one not in self.selection.axes}),
            ("--axis", dict.fromkeys(cell.point, ())),
            (
                f"framework configuration {cell.framework!r}",
                dict.fromkeys(framework.arguments if framework else (), ()),
            ),
        )
        for where, places in layers:
            for written, path in places.items():
                if written == name or name in self.trainer.translate({written: "x"})[0]:
                    return where, path
        return str(self.suite.files.get("defaults", "the trainer's own defaults")), ()

    def _finish(
        self, cell: Cell, framework: Framework | None, arguments: dict[str, Text], skip: Reason | None
    ) -> Experiment:
        scenario, trainer = self.scenario, self.trainer
        if trainer.instrumented:
            arguments.setdefault("skip_memory_metrics", str(not checks.TRACKERS.intersection(scenario.monitors)))
        data, path = self.prepared(arguments)
        if data is not None:  # what names the source is no argument of the trainer, which gets the prepared copy
            arguments = {name: value for name, value in arguments.items() if name not in OWN_DATA}
        experiment = Experiment(
            id="",
            model=cell.model,
            num_gpus=cell.num_gpus,
            device=placed_on(scenario.device, cell.num_gpus, self.machine),
            arguments=arguments,
            framework=framework,
            accelerate=accelerate_settings(self.suite.accelerate, framework),
            env={**(framework.env if framework else {}), **scenario.env},
            data=data,
            data_path=path,
            global_batch=batch.global_batch(arguments, cell.num_gpus) if trainer.instrumented and not skip else None,
            **self.shared,
        )
        digest = experiment_digest(experiment, self.perturbing)
        return replace(
            experiment,
            id=self.tagger.id(experiment, digest),
            skip=skip or wrong_anywhere(experiment, trainer, scenario.device) or plan_problems(experiment),
            cannot_run_here=cannot_run_here(experiment, trainer, self.machine),
        )
