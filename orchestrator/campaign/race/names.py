"""The names of races and of their experiments: only the values that distinguish them, as the report names them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.campaign.race.places import Place
from orchestrator.files.printable_text import counted, one_line
from orchestrator.files.redaction import MASK, is_secret_name
from orchestrator.measure.metrics import metric, show
from orchestrator.records import Device, Experiment
from orchestrator.results.table.column_choice import distinguishing, for_people
from orchestrator.results.table.rows import PREFIX, Value, argument_cells, experiment_facts
from orchestrator.trainers.external.operators import NAME as OPERATORS
from orchestrator.trainers.external.operators import WORK

_ENVIRONMENT = "environment"
_ALIKE = (
    *("framework_config", "model_name_or_path", "num_gpus", "num_nodes", "device"),
    *("scenario", "trainer", "python", "data"),
)


class Names:
    """The names of races and of their experiments. `report/highlights/labels.py` makes such names from a table."""

    def __init__(self, races: Sequence[Place]) -> None:
        every = [one for place in races for one in place.experiments]
        self._experiments = {one.id: one for one in every}
        self._settings = _settings(every)
        self._common = {place.first.id: self._same_in(place) for place in races}
        self._mixed = {place.first.id for place in races if len({_size(one) for one in place.experiments}) > 1}
        self._of_place = {one.id: place.first.id for place in races for one in place.experiments}

    def place(self, place: Place) -> str:
        """Return the name of a race: the scenario, and what all its experiments have and those of another race do not."""
        first = place.first
        model = [first.model] if first.model != "none" else []
        operator = [str(first.arguments["operator"])] if first.trainer == OPERATORS else []
        own = self._settings[first.id]
        apart = [name for name, value in own.items() if value is not None and name.removeprefix(PREFIX) in place.apart]
        common = [self._words(name, own[name], first) for name in self._common[first.id] or apart]
        common = [words for words in common if words not in operator]
        sizes = [] if first.id in self._mixed else [_size(first)]
        return ": ".join(filter(None, [first.scenario, ", ".join(filter(None, [*model, *operator, *common, *sizes]))]))

    def of(self, name: str) -> str:
        """Return the name of an experiment in its race: `liger, batch/device 4`."""
        one, place = self._experiments[name], self._of_place[name]
        known = {axis: value for axis, value in self._settings[name].items() if axis not in self._common[place]}
        rest = [self._words(axis, value, one) for axis, value in known.items() if value is not None]
        framework = [one.framework.name] if one.framework else [] if rest else ["no framework"]
        size = f" on {_size(one, cpu='CPU process')}" if place in self._mixed else ""
        return one_line(f"{', '.join([*framework, *rest])}{size}")

    def _words(self, name: str, value: Value, one: Experiment) -> str:
        shown = MASK if is_secret_name(name.removeprefix(PREFIX)) else one_line(show(name, value))
        is_work = one.trainer == OPERATORS and name in WORK
        return shown if is_work else f"{metric(name).label} {shown}"

    def _same_in(self, place: Place) -> list[str]:
        """Return the settings that all experiments of a race have."""
        if len(place.experiments) == 1:
            return []
        known = [self._settings[one.id] for one in place.experiments]
        return [name for name, value in known[0].items() if value is not None and {of[name] for of in known} == {value}]


def _settings(experiments: Sequence[Experiment]) -> dict[str, dict[str, Value]]:
    """Return id → column → value: the environment and the arguments that distinguish the experiments."""
    rows = [experiment_facts(one) | argument_cells(one.arguments) for one in experiments]
    arguments = for_people({name for one in experiments for name in argument_cells(one.arguments)})
    keys = [tuple(row.get(name) for name in _ALIKE) for row in rows]
    chosen = distinguishing(keys, ((name, [row.get(name) for row in rows]) for name in (_ENVIRONMENT, *arguments)))
    return {one.id: {name: values[at] for name, values in chosen.items()} for at, one in enumerate(experiments)}


def _size(one: Experiment, *, cpu: str = "process") -> str:
    words = (cpu, f"{cpu}es") if one.device is Device.CPU else ("GPU", "GPUs")
    return counted(one.num_gpus, *words) + (f" on {one.num_nodes} nodes" if one.num_nodes > 1 else "")
