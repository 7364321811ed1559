"""The name of an experiment in a sentence: framework, model, processes, and other values that distinguish it in its table.

Names come from files, which other people may have written. Each returned name is one line of printable text with a limited
length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.files.printable_text import counted, one_line
from orchestrator.measure.metrics import metric, show
from orchestrator.records import Device
from orchestrator.results.table.column_choice import column, distinguishing, for_people, gpu_models, number
from orchestrator.results.table.references import FRAMEWORK
from orchestrator.results.table.rows import ARGUMENT_FACTS, NO_FRAMEWORK, PREFIX, Value

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

NO_MODEL = "none"
_MODEL, _GPUS = "model_name_or_path", "num_gpus"
_NAMED = (FRAMEWORK, _MODEL, _GPUS, "num_nodes", "device")
_OPERATOR, _IMPLEMENTATION = "operator", "implementation"
_ALSO = ("results", "scenario", "trainer", "python", "data")
# The characters of an id that tell experiments apart whose columns are equal.
_ID, _DIGEST = "id", 6
# A choice like a framework configuration, so it is part of the name of a configuration.
_SOFTWARE = "environment"


class Names:
    """The names of a table's experiments, by their rows."""

    def __init__(self, table: ResultsTable) -> None:
        frame = table.experiments
        self._framework, models, self._gpus, self._nodes, self._device = (column(frame, name) for name in _NAMED)
        self._model = _short_models(models)
        self._scenario = column(frame, "scenario")
        gpus = gpu_models(frame)
        self._gpu_models = gpus if len({*gpus} - {None}) > 1 else [None] * len(frame)
        self._columns: dict[str, list[Value]] = {}
        self._frame = frame
        self._arguments = _distinguishing(table)

    def framework(self, row: int) -> str:
        name = self._framework[row]
        return "no framework" if name in (None, NO_FRAMEWORK) else one_line(name)

    def model(self, row: int) -> str:
        return self._model[row]

    def where(self, row: int, *, work: Sequence[str] = (), told: Sequence[str] = ()) -> str:
        """Return the model and the number of processes: `llama-1b at 2 GPUs`, or the scenario if there is no model.

        The row's values of the columns in `work` are added, if they distinguish rows. Of several operators, each is named. The
        names and values of the columns in `told` are added in any case.
        """
        preposition = "with" if self.is_cpu(row) else "at"
        model = self._model[row] if self._model[row] != NO_MODEL else one_line(self._scenario[row])
        operators = column(self._frame, _OPERATOR)
        several = (
            {_OPERATOR: operators[row]} if _OPERATOR in work and len(set(operators)) > 1 and operators[row] else {}
        )
        own = several | {name: value for name, _, value in self._arguments[row]}
        named = [one_line(show(name, own[name])) for name in work if name in own]
        return ", ".join([f"{model} {preposition} {self.processes(row)}", *named, *self.values(row, told)])

    def configuration(self, row: int, *, work: Sequence[str] = ()) -> str:
        """Return the framework configuration and the arguments that distinguish the row: `liger, batch/device 4`.

        The columns in `work` are left out.
        """
        rest = self._rest(row, (*_ALSO, *work))
        is_none = rest and self._framework[row] in (None, NO_FRAMEWORK)
        return ", ".join([*([] if is_none else [self.framework(row)]), *rest])

    def place(self, row: int, *, axis: Sequence[str] = (FRAMEWORK,)) -> str:
        """Return the part of the name that both sides of a comparison share: `llama-1b at 2 GPUs, batch/device 4`.

        `axis` are the columns in which the two sides differ.
        """
        preposition = "with" if self.is_cpu(row) else "at"
        model = "" if _MODEL in axis or self._model[row] == NO_MODEL else self._model[row]
        processes = "" if _GPUS in axis else self.processes(row)
        where = f" {preposition} ".join(filter(None, (model, processes))) or str(self._scenario[row])
        is_told = FRAMEWORK not in axis and len(set(self._framework)) > 1
        return ", ".join([where, *([self.framework(row)] if is_told else []), *self._rest(row, (*axis, _ID))])

    def sides(self, new: int, base: int, axis: Sequence[str]) -> tuple[str, str]:
        """Return the names of the two sides, such as `optim adamw` and `sgd`.

        If the sides also differ in other columns, each name contains its values of these columns.
        """
        if axis[0] == FRAMEWORK:
            return self.framework(new), self.framework(base)
        with_it = [" with ".join(["", *(self._value(name, row) for name in axis[1:])]) for row in (new, base)]
        return self._value(axis[0], new) + with_it[0], self._value(axis[0], base, named=False) + with_it[1]

    def values(self, row: int, names: Sequence[str]) -> list[str]:
        """Return the row's values of these columns with the names of the columns: `max_seq_len 512`."""
        return [self._value(name, row) for name in names]

    def _value(self, name: str, row: int, *, named: bool = True) -> str:
        if name == _GPUS:
            return self.processes(row)
        if name not in self._columns:
            self._columns[name] = column(self._frame, name)
        value, label = self._columns[name][row], metric(name).label.removeprefix(PREFIX)
        if value is None:
            return f"no {label}"
        return f"{label} {one_line(show(name, value))}" if named else one_line(show(name, value))

    def cell(self, row: int) -> str:
        """Return the part of the name that does not depend on the number of processes: `liger on llama-1b, batch/device 4`."""
        return ", ".join([self._subject(row, self._model[row]), *self._rest(row, (_ID,))])

    def _subject(self, row: int, place: str) -> str:
        """Return `FRAMEWORK on PLACE`. If a row has neither framework nor model, the scenario's name replaces the framework."""
        if self._model[row] == NO_MODEL and self._framework[row] in (None, NO_FRAMEWORK):
            return one_line(self._scenario[row]) + (f" on {place}" if place != NO_MODEL else "")
        return f"{self.framework(row)} on {place}"

    def unlike(self, row: int, other: int) -> list[str]:
        """Return the arguments in a row's name that are not in the name of the other row."""
        others = self._rest(other, (_ID,))
        return [part for part in self._rest(row, (_ID,)) if part not in others]

    def whole(self, row: int) -> str:
        """Return the whole name: `liger on llama-1b at 2 GPUs`."""
        own = [f"{label} {value}" for name, label, value in self._arguments[row] if name == _ID]
        return ", ".join([self._subject(row, self.place(row)), *own])

    def is_cpu(self, row: int) -> bool:
        return self._device[row] == Device.CPU.value

    def processes(self, row: int) -> str:
        """Return the number of processes: `2 GPUs`, or `2 GPUs (H100 80GB HBM3)` if the table has several GPU models."""
        count = int(number(self._gpus[row]) or 1)
        nodes = int(number(self._nodes[row]) or 1)
        where = f" on {nodes} nodes" if nodes > 1 else ""
        if self.is_cpu(row):
            return counted(count, "CPU process", "CPU processes") + where
        gpus = self.gpus(row)
        return counted(count, "GPU") + where + (f" ({gpus})" if gpus else "")

    def gpus(self, row: int) -> str:
        """Return the GPU models of a row. The text is empty if the table has only one, or if they are unknown."""
        return short_gpus(self._gpu_models[row] or "")

    def _rest(self, row: int, without: Sequence[str] = ()) -> list[str]:
        arguments = self._arguments[row]
        return [f"{label} {one_line(show(name, value))}" for name, label, value in arguments if name not in without]


def _short_models(models: Sequence[Value]) -> list[str]:
    """Return the names of models without their folders and `config:`.

    If two short names are equal, both models keep their full name.
    """
    short = {model: _last_part(str(model)) for model in models if model is not None}
    alike = [name for name in short.values() if list(short.values()).count(name) > 1]
    return ["?" if model is None else one_line(model if short[model] in alike else short[model]) for model in models]


def _last_part(model: str) -> str:
    if model.startswith(("/", ".")):
        return model.rstrip("/").rpartition("/")[2] or model
    return model.removeprefix("config:")


def _distinguishing(table: ResultsTable) -> list[list[tuple[str, str, Value]]]:
    """Return the arguments that the name of each row contains. An argument is a column, a label and a value.

    Arguments are added until all names are unique, if that is possible; a call of an operator always has its implementation. A
    row's name leaves out the settings of the row's own framework configuration, because in a comparison only one side would have
    them.
    """
    frame = table.experiments
    keys: list[tuple[Value, ...]] = list(zip(*(column(frame, name) for name in _NAMED), strict=True))
    wanted = [name for name in for_people({*ARGUMENT_FACTS, *table.arguments}) if name in frame]
    chosen = distinguishing(keys, ((name, column(frame, name)) for name in (*_ALSO, _SOFTWARE, *wanted)))
    named = _IMPLEMENTATION if _IMPLEMENTATION in frame else _OPERATOR
    if _OPERATOR in frame and named not in chosen:
        chosen[named] = column(frame, named)
    own = [table.framework_arguments.get(str(key[0]), frozenset()) for key in keys]
    full = [(*key, *(values[row] for values in chosen.values())) for row, key in enumerate(keys)]
    if len(set(full)) < len(full):  # they differ in what has no column, such as `env:` or `measure:`
        counts = Counter(full)
        ids = [str(one)[-_DIGEST:] for one in column(frame, _ID)]
        chosen[_ID] = [one if counts[key] > 1 else None for one, key in zip(ids, full, strict=True)]
    return [
        [
            (name, metric(name).label, values[row])
            for name, values in chosen.items()
            if values[row] is not None and name not in own[row]
        ]
        for row in range(len(frame))
    ]


def short_gpus(models: str) -> str:
    """Return the names of GPU models without their maker."""
    return one_line(", ".join(name.removeprefix("NVIDIA ") for name in models.split(", ")))


def listed(names: Sequence[str], *, most: int = 3) -> str:
    """Return a text such as `a; b; c and 4 more`, with semicolons because names contain commas."""
    shown, more = names[:most], len(names) - most
    return "; ".join(shown) + (f" and {more} more" if more > 0 else "")
