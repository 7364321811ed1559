"""The arguments that distinguish the experiments of a scenario, as text, and readable names with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import MASK, is_secret_name, redactor
from orchestrator.records.experiment import Experiment, as_items

_MOST_LISTED = 10


class Cell(NamedTuple):
    """The arguments of an experiment, with its scenario, its framework configuration, and the arguments that the latter sets."""

    scenario: Hashable
    framework: Hashable
    of_framework: Collection[str]
    arguments: Mapping[str, Any]


def differing(cells: Iterable[Cell]) -> dict[Any, set[str]]:
    """Return, for each scenario, the arguments that differ between its experiments. A missing argument counts as a value.

    Values that framework configurations set are left out, because the names of the configurations tell them.
    """
    scenarios: dict[Hashable, dict[Hashable, list[Cell]]] = {}
    for cell in cells:
        scenarios.setdefault(cell.scenario, {}).setdefault(cell.framework, []).append(cell)
    return {
        scenario: {
            name
            for name in {name for some in frameworks.values() for cell in some for name in cell.arguments}
            if len({value for some in frameworks.values() for value in _given(name, some)}) > 1
        }
        for scenario, frameworks in scenarios.items()
    }


def _given(name: str, cells: Sequence[Cell]) -> set[Any]:
    """Return an argument's values in cells of one framework configuration, or none if only the configuration gives it."""
    values = {cell.arguments.get(name) for cell in cells}
    return set() if name in cells[0].of_framework and len(values) == 1 else values


def distinguishing(experiments: Iterable[Experiment]) -> dict[str, set[str]]:
    """Return, for each scenario, the arguments that differ between experiments with equal model, software, framework and counts."""
    firsts: dict[tuple[Any, ...], Experiment] = {}
    axes: dict[str, set[str]] = {}
    for experiment in experiments:
        framework = experiment.framework and experiment.framework.name
        environment = experiment.environment and experiment.environment.name
        others = environment, experiment.num_gpus, experiment.num_nodes
        first = firsts.setdefault((experiment.scenario, experiment.model, framework, *others), experiment)
        names = {name for name, _ in experiment.arguments.items() ^ first.arguments.items()}
        axes.setdefault(experiment.scenario, set()).update(names)
    return axes


def assignments(experiment: Experiment, names: Collection[str]) -> str:
    """Return the experiment's values of these arguments as text such as `optim=sgd seed=1`. The values of secrets are masked."""
    return " ".join(
        f"{name}={MASK if is_secret_name(name) else ','.join(as_items(value))}"
        for name, value in experiment.arguments.items()
        if name in names
    )


def labels(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Return id → text: the arguments that distinguish an experiment from those with the same readable part of the id."""
    names, redact = distinguishing(experiments), redactor()
    return {one.id: one_line(redact(assignments(one, names[one.scenario]))) for one in experiments}


def listed(ids: Sequence[str], values: Mapping[str, str]) -> str:
    """Return the first ids, each with the values that distinguish its experiment."""
    shown = [f"{name} ({values[name]})" if values.get(name) else name for name in ids[:_MOST_LISTED]]
    return ", ".join([*shown, *(["…"] if len(ids) > _MOST_LISTED else [])])


def names(experiments: Sequence[Experiment]) -> dict[str, str]:
    """Return id → the readable part of the id, and the arguments that distinguish it; the whole id if this is not unique."""
    label = labels(experiments)
    readable = {name: f"{name.rpartition('-')[0]} {words}".strip() for name, words in label.items()}
    counts = Counter(readable.values())
    return {name: text if counts[text] == 1 else name for name, text in readable.items()}
