"""The experiments of all chosen scenarios.

If two cells of a scenario give the same experiment, this experiment runs once.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.errors import ConfigError, Problem, SelectionError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.checks import MAX_CELLS
from orchestrator.plan.config import Suite
from orchestrator.plan.expand import custom_command
from orchestrator.plan.expand.expansion import Expansion
from orchestrator.plan.identity.sources import Sources
from orchestrator.plan.selection import Selection, chosen_experiments, chosen_scenarios, slow_scenarios
from orchestrator.records import Experiment


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The result of `expand`. `collapsed` are the duplicates that were left out. `notes` are sentences for the user.

    `not_chosen` has ids of experiments in the chosen scenarios: those that `--framework`, `--model` or `--cell` left out.
    """

    experiments: tuple[Experiment, ...]
    collapsed: tuple[Experiment, ...]
    notes: tuple[str, ...]
    not_chosen: frozenset[str] = frozenset()


def has_id(experiment: Experiment) -> bool:
    """Return whether the experiment's id is known. The lock of a software environment is part of it, and is made by the build."""
    return experiment.environment is None or experiment.environment.lock is not None


def expand(suite: Suite, selection: Selection, machine: Machine) -> Plan:
    """Return the experiments of the chosen scenarios. Raises ConfigError or SelectionError for a mistake of the user."""
    experiments: dict[str, Experiment] = {}
    collapsed: list[Experiment] = []
    problems: list[Problem] = []
    notes: dict[str, None] = {}
    defaults_used = False
    files = Sources()
    for scenario in chosen_scenarios(suite, selection):
        try:
            expansion = Expansion(suite, scenario, selection, machine, files)
            for experiment in expansion.experiments():
                known = experiments.setdefault(experiment.id, experiment)
                if known.scenario != experiment.scenario:
                    text = f"scenario {known.scenario!r} has an experiment with the same id {experiment.id}; rename one"
                    raise ConfigError([suite.problem(scenario, ("name",), text)])
                if known is not experiment:
                    collapsed.append(experiment)
                if len(experiments) + len(collapsed) > MAX_CELLS:
                    text = f"with scenario {scenario.name!r} the plan has more than {MAX_CELLS:,} experiments"
                    raise SelectionError(f"{text}; choose fewer scenarios with --scenario, or remove some values")
            notes.update(dict.fromkeys((*expansion.notes, *expansion.layers.notes)))
            defaults_used |= expansion.trainer.takes_defaults
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    on_files = (*suite.file_notes(defaults_used=defaults_used), *slow_scenarios(suite, selection))
    chosen = chosen_experiments(experiments, suite, selection)
    return Plan(
        experiments=tuple(chosen.values()),
        collapsed=tuple(one for one in collapsed if one.id in chosen),
        notes=(*on_files, *notes, *custom_command.notes(chosen.values())),
        not_chosen=frozenset(id for id in experiments if id not in chosen),
    )
