"""The cells of one scenario, and the layers of their arguments.

The axes are crossed. The axes of a `zip:` group change together. `exclude:` removes cells. `include:` adds arguments or cells. The
order of the axes, from the axis that changes most rarely: model, environment, framework configuration, effective batch size, number
of nodes, number of GPUs, packing, max_seq_len, then the others in the scenario's order. Samples per optimizer step = per-device
batch × accumulation × data-parallel ranks. If `effective_batch_size` is given, it determines the missing factor. `expand` makes
experiments from the cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain, product
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from orchestrator.plan.command.parallelism import context_size, data_parallel_ranks
from orchestrator.plan.config import Scenario, Suite, argument_text, argument_texts
from orchestrator.plan.config.check import COUNTS
from orchestrator.plan.config.keys.value_types import Comparison, comparison, number
from orchestrator.plan.config.yaml_file import YamlPath
from orchestrator.plan.data import local_model
from orchestrator.records import Framework, Reason, Text, whole_number
from orchestrator.trainers import Trainer

MODEL, FRAMEWORK, ENVIRONMENT = "model_name_or_path", "framework_config", "environment"
NODES, GPUS, PER_NODE = COUNTS
BATCH, ACCUMULATION, EFFECTIVE = "per_device_train_batch_size", "gradient_accumulation_steps", "effective_batch_size"
TRAINER_BATCH_DEFAULT = 8
FIRST = (MODEL, ENVIRONMENT, FRAMEWORK, EFFECTIVE, NODES, GPUS, PER_NODE, "packing", "max_seq_len")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One point of the matrix. Its arguments are the values of the axes, then the arguments that `include:` adds.

    `included` maps an argument to the index of the `include:` entry that gives its value.
    """

    model: str
    framework: str | None
    num_gpus: int
    num_nodes: int = 1
    environment: str | None = None
    arguments: Mapping[str, Text | None]
    included: Mapping[str, int] = field(default_factory=dict)


class MatrixMistake(Exception):
    """A mistake in the axes or in `include:`. `path` is the position of the mistake inside the scenario."""

    def __init__(self, path: YamlPath, message: str) -> None:
        self.path = path
        super().__init__(message)


def number_of_cells(axes: Mapping[str, Sequence[Any]], zipped: Sequence[Collection[str]]) -> int:
    """Return how many cells the axes give without `include:` and `exclude:`. The axes of a `zipped` group count as one axis."""
    others = {name for group in zipped for name in [name for name in axes if name in group][1:]}
    return prod(len(values) for name, values in axes.items() if name not in others)


def cells(
    axes: Mapping[str, Sequence[Any]],
    zipped: Sequence[Collection[str]] = (),
    *,
    include: Sequence[Mapping[str, Any]] = (),
    exclude: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Cell]:
    """Yield the cells of `axes`, which must contain model, framework configuration and GPU count. May raise MatrixMistake.

    `zipped` has groups of axes. The axes of a group have the same number of values and change together.
    """
    axes = {name: axes[name] for name in (*FIRST, *axes) if name in axes}
    names, rows = _crossed(axes, zipped)
    excluded = [_conditions(entry) for entry in exclude]
    added = [argument_texts(entry) for entry in include]
    matched: set[int] = set()
    for values in rows:
        point = dict(zip(names, values, strict=True))
        if excluded and any(_covers(entry, point) and _holds(compared, point) for entry, compared in excluded):
            continue
        included: dict[str, int] = {}
        for index, entry in enumerate(added):
            if _covers({name: value for name, value in entry.items() if name in axes}, point):
                matched.add(index)
                given = {name: value for name, value in entry.items() if name not in axes}
                point |= given
                included |= dict.fromkeys(given, index)
        yield _cell(point, included)
    for index, entry in enumerate(added):
        if index not in matched:
            yield _new_cell(index, entry, axes)


def _crossed(
    axes: Mapping[str, Sequence[Any]], zipped: Sequence[Collection[str]]
) -> tuple[Sequence[str], Iterator[tuple[Any, ...]]]:
    """Return two values: the names of the axes, and an iterator over the values of each cell.

    All axes of a group in `zipped` come at the position of the group's first axis.
    """
    groups = {name: [other for other in axes if other in group] for group in zipped for name in group}
    members = [groups.get(name, [name]) for name in axes]
    members = [group for name, group in zip(axes, members, strict=True) if group[0] == name]
    names = [name for group in members for name in group]
    if len(members) == len(axes):
        return names, product(*(axes[name] for name in names))
    columns = [list(zip(*(axes[name] for name in group), strict=True)) for group in members]
    return names, (tuple(chain.from_iterable(parts)) for parts in product(*columns))


Compared = Mapping[str, Comparison]


def _conditions(entry: Mapping[str, Any]) -> tuple[Mapping[str, Text | None], Compared]:
    """Return two parts of an `exclude:` entry: its plain values as texts, and its comparisons (such as `>= 8192`)."""
    compared = {name: found for name, value in entry.items() if (found := comparison(value))}
    plain = argument_texts({name: value for name, value in entry.items() if name not in compared})
    return plain, compared


def _holds(compared: Compared, point: Mapping[str, Any]) -> bool:
    """Return whether all comparisons are true for a cell. A comparison is false if the cell's value is not a number."""
    for name, (compare, limit) in compared.items():
        value = number(point.get(name))
        if value is None or not compare(value, limit):
            return False
    return True


def _new_cell(index: int, entry: Mapping[str, Text | None], axes: Mapping[str, Sequence[Any]]) -> Cell:
    """Return the new cell that an `include:` entry adds.

    If an axis is not in the entry, but has a single value, the cell gets this value. Raises MatrixMistake if the model, the
    framework configuration or one of the counts is missing.
    """
    point: dict[str, Any] = dict(entry)
    for name, values in axes.items():
        if name in point:
            continue
        if len(values) == 1:
            point[name] = values[0]
        elif name in (MODEL, FRAMEWORK, ENVIRONMENT, *COUNTS):
            message = f"include: this entry starts a new cell but does not say which {name!r}; add the key {name!r}"
            raise MatrixMistake(("include", index), message)
    return _cell(point, dict.fromkeys(entry, index))


def _cell(point: dict[str, Any], included: Mapping[str, int]) -> Cell:
    model, framework, nodes = point.pop(MODEL), point.pop(FRAMEWORK), int(point.pop(NODES, 1))
    num_gpus = nodes * int(point.pop(PER_NODE)) if PER_NODE in point else int(point.pop(GPUS))
    return Cell(
        model=model,
        framework=framework,
        num_gpus=num_gpus,
        num_nodes=nodes,
        environment=point.pop(ENVIRONMENT, None),
        arguments=point,
        included=included,
    )


def _covers(entry: Mapping[str, Text | None], point: Mapping[str, Any]) -> bool:
    """Return whether `point` has every key of `entry`, with the same value as text."""
    return all(name in point and argument_text(point[name]) == value for name, value in entry.items())


class BatchMistake(Exception):
    """A mistake in the batch arguments `names`. The caller knows where each argument was written."""

    def __init__(self, names: tuple[str, ...], message: str) -> None:
        self.names = names
        super().__init__(message)


def settle_batch(
    arguments: dict[str, Text | None], num_gpus: int, accelerate: Mapping[str, Any] = MappingProxyType({})
) -> Reason | None:
    """Replace an effective batch size in `arguments` by the missing batch argument, or return why it is not divisible."""
    wanted = arguments.pop(EFFECTIVE, None)
    if wanted is None:
        return None
    given = tuple(name for name in (BATCH, ACCUMULATION) if arguments.get(name) is not None)
    if len(given) != 1:
        state = "both are given; set one of them to null" if given else "neither is given; give one of them"
        raise BatchMistake(given, f"{EFFECTIVE} needs exactly one of {BATCH} and {ACCUMULATION}, and {state}")
    known, derived = given[0], BATCH if given[0] == ACCUMULATION else ACCUMULATION
    total, part = _whole(EFFECTIVE, wanted), _whole(known, arguments[known])
    ranks, context = data_parallel_ranks(num_gpus, accelerate), context_size(accelerate)
    if total % (part * ranks):
        arguments[EFFECTIVE] = wanted  # the cell never runs, but it needs an id of its own
        who = "GPUs" if context == 1 else f"groups of {context} GPUs"
        text = f"{EFFECTIVE} {total} is not divisible by {ranks} {who} × {known} {part}"
        return Reason(kind="batch_does_not_divide", text=text)
    arguments[derived] = str(total // (part * ranks))
    return None


def _whole(name: str, value: Text | None) -> int:
    if number := whole_number(value):
        return number
    raise BatchMistake((name,), f"{name}: {value!r} is invalid; write a whole number from 1")


def global_batch(arguments: Mapping[str, Text], ranks: int, trainer: Trainer) -> int | None:
    """Return the number of samples per optimizer step over all data-parallel ranks, or None if it is unknown.

    The Trainer's default replaces a missing argument, except for a user's own program. The defaults of such a program are unknown.
    """
    if not trainer.instrumented or not (trainer.takes_defaults or {BATCH, ACCUMULATION} <= arguments.keys()):
        return None
    batch, accumulation = arguments.get(BATCH, str(TRAINER_BATCH_DEFAULT)), arguments.get(ACCUMULATION, "1")
    return _samples(batch, accumulation, ranks)


@lru_cache(maxsize=4096)
def _samples(batch: Text, accumulation: Text, ranks: int) -> int | None:
    try:
        return _whole(BATCH, batch) * _whole(ACCUMULATION, accumulation) * ranks
    except BatchMistake:  # the trainer refuses the value
        return None


class Layer(NamedTuple):
    """Arguments from one origin, in the trainer's names.

    `path` is the position of these arguments in the scenario, or () if they are not from the scenario.
    """

    origin: str
    path: YamlPath
    arguments: Mapping[str, Text | None]


class Layers:
    """The layers of one scenario's arguments. The layers of a single cell are between `below` and `above`.

    `axes` and `overrides` come from the command line. `notes` are sentences about arguments that the trainer has renamed.
    """

    def __init__(
        self, suite: Suite, scenario: Scenario, trainer: Trainer, *, axes: Collection[str], overrides: Mapping[str, Any]
    ) -> None:
        self.trainer, self.axes, self.folder = trainer, axes, suite.document.file.parent
        self.matrix = scenario.matrix
        self.notes: list[str] = []
        defaults = suite.defaults_for(trainer)
        self.below = [
            Layer("the trainer's own defaults", (), trainer.base_arguments),
            self._layer(str(suite.files.get("defaults", "defaults.yaml")), (), defaults),
        ]
        own = {name: value for name, value in scenario.arguments.items() if name != MODEL}
        above = [self._layer("arguments:", ("arguments", name), {name: value}) for name, value in own.items()]
        given = {name: value for name, value in overrides.items() if name != MODEL}
        self.above = [*above, self._layer("--set", (), given)]
        self.lower, self.upper = _merged(self.below), _merged(self.above)
        self._frameworks: dict[str | None, Layer] = {None: Layer("", (), {})}
        self._lowest: dict[str | None, dict[str, Text | None]] = {None: {MODEL: None, **self.lower}}
        self._single = cache(self._single_layer)

    def _layer(self, origin: str, path: YamlPath, arguments: Mapping[str, Any]) -> Layer:
        return Layer(origin, path, self.translated(argument_texts(arguments)))

    def translated(self, arguments: Mapping[str, Text | None]) -> Mapping[str, Text | None]:
        """Return arguments under the trainer's current names. Add the notes about old names to `notes`."""
        translated, notes = self.trainer.translate(arguments)
        self.notes.extend(notes)
        return translated

    def references(self, baseline: Mapping[str, Any]) -> Mapping[str, Text | None]:
        """Return the names and values of `baseline:` in the form that they have in the experiments."""
        named = argument_texts(baseline)
        axes = {name: named.pop(name) for name in (FRAMEWORK, MODEL, ENVIRONMENT, GPUS, NODES) if name in named}
        if MODEL in axes:
            axes[MODEL] = local_model(str(axes[MODEL]), self.folder)
        return {**axes, **self.translated(named)}

    def add(self, framework: Framework) -> None:
        """Add the layer of a framework configuration. Its arguments already have the trainer's names."""
        name, arguments = framework.name, framework.arguments
        self._frameworks[name] = Layer(f"framework configuration {name!r}", (), arguments)
        self._lowest[name] = {**self._lowest[None], **arguments}

    def merged(self, cell: Cell) -> dict[str, Text | None]:
        """Return a cell's arguments; the highest layer wins. The model comes first; no layer is allowed to change the model."""
        merged = self._lowest[cell.framework].copy()
        for layer in self._of_cell(cell):
            merged.update(layer.arguments)
        merged.update(self.upper)
        merged[MODEL] = cell.model
        return merged

    def origin(self, name: str, cell: Cell) -> Layer:
        """Return the layer that an argument of a cell comes from."""
        layers = (*self.below, self._frameworks[cell.framework], *self._of_cell(cell), *self.above)
        return next((layer for layer in reversed(layers) if name in layer.arguments), self.below[-1])

    def _of_cell(self, cell: Cell) -> list[Layer]:
        """Return a layer for each argument of a cell. The argument is from an axis or from `include:`."""
        return [self._single(name, value, cell.included.get(name)) for name, value in cell.arguments.items()]

    def _single_layer(self, name: str, value: Text | None, index: int | None) -> Layer:
        origin, path = self._place(name, index)
        return self._layer(origin, path, {name: value})

    def _place(self, name: str, index: int | None) -> tuple[str, YamlPath]:
        if index is not None:
            return "include:", ("include", index, name)
        if name in self.axes:
            return "--axis", ()
        return ("matrix:", ("matrix", name)) if name in self.matrix else ("zip:", ("zip", name))


def _merged(layers: Iterable[Layer]) -> dict[str, Text | None]:
    return {name: value for layer in layers for name, value in layer.arguments.items()}
