"""The cells of one scenario (its axes crossed, `exclude:` taken away, `include:` added), and the layers of their arguments.

Order of the product, slowest first: model, framework configuration, effective batch size, GPU count, packing, max_seq_len,
then every other axis as it is listed. Knows the meaning of one argument: samples per optimizer step = per-device batch ×
accumulation × processes; an `effective_batch_size` settles the one that is left open. `matrix` makes experiments of cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, NamedTuple

from orchestrator.plan.config import Scenario, Suite, argument_text, argument_texts
from orchestrator.records import Experiment, Reason, Text
from orchestrator.trainers import Trainer

MODEL, FRAMEWORK, GPUS = "model_name_or_path", "framework_config", "num_gpus"
BATCH, ACCUMULATION, EFFECTIVE = "per_device_train_batch_size", "gradient_accumulation_steps", "effective_batch_size"
TRAINER_BATCH_DEFAULT = 8
FIRST = (MODEL, FRAMEWORK, EFFECTIVE, GPUS, "packing", "max_seq_len")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One point of the matrix: the arguments of its axes, then those that `include:` adds.

    `included` maps an argument to the index of the `include:` entry that gives its value.
    """

    model: str
    framework: str | None
    num_gpus: int
    arguments: Mapping[str, Text | None]
    included: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Duplicate:
    """A cell that came to the same experiment as an earlier one of its scenario."""

    id: str
    scenario: str
    model: str
    framework: str | None
    num_gpus: int

    @classmethod
    def of(cls, experiment: Experiment) -> Duplicate:
        return cls(
            id=experiment.id,
            scenario=experiment.scenario,
            model=experiment.model,
            framework=experiment.framework.name if experiment.framework else None,
            num_gpus=experiment.num_gpus,
        )


MAX_CELLS = 1_000_000


class TooManyCells(Exception):
    """A product that nobody means, and no memory holds."""


class AmbiguousInclude(Exception):
    """An `include:` entry that starts a new cell without saying which value of an axis it means."""

    def __init__(self, index: int, axis: str) -> None:
        self.index, self.axis = index, axis
        super().__init__(axis)


def cells(
    axes: Mapping[str, Sequence[Any]],
    *,
    include: Sequence[Mapping[str, Any]] = (),
    exclude: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Cell]:
    """The cells of `axes`, which must hold the model, framework configuration and GPU count. Raises AmbiguousInclude or
    TooManyCells."""
    ordered = {name: axes[name] for name in (*FIRST, *axes) if name in axes}
    names = tuple(ordered)
    if prod(len(values) for values in ordered.values()) > MAX_CELLS:
        raise TooManyCells(" × ".join(f"{name} {len(values)}" for name, values in ordered.items() if len(values) > 1))
    left_out = [_texts(entry) for entry in exclude]
    added = [_texts(entry) for entry in include]
    matched = [False] * len(added)
    for values in product(*ordered.values()):
        point = dict(zip(names, values, strict=True))
        if left_out and any(_covers(entry, point) for entry in left_out):
            continue
        included: dict[str, int] = {}
        for index, entry in enumerate(added):
            on_axes = {name: value for name, value in entry.items() if name in ordered}
            if _covers(on_axes, point):
                matched[index] = True
                included |= dict.fromkeys((name for name in entry if name not in ordered), index)
        yield _cell({**point, **{name: added[index][name] for name, index in included.items()}}, included)
    for index, entry in enumerate(added):
        if not matched[index]:
            yield _new_cell(index, entry, ordered)


def _new_cell(index: int, entry: Mapping[str, Text | None], axes: Mapping[str, Sequence[Any]]) -> Cell:
    """A cell of its own: what the entry leaves open must have one value only, or be no argument at all."""
    point: dict[str, Any] = dict(entry)
    for name, values in axes.items():
        if name in point:
            continue
        if len(values) == 1:
            point[name] = values[0]
        elif name in (MODEL, FRAMEWORK, GPUS):
            raise AmbiguousInclude(index, name)
    return _cell(point, dict.fromkeys(entry, index))


def _cell(point: dict[str, Any], included: Mapping[str, int]) -> Cell:
    model, framework, num_gpus = point.pop(MODEL), point.pop(FRAMEWORK), int(point.pop(GPUS))
    return Cell(model=model, framework=framework, num_gpus=num_gpus, arguments=point, included=included)


def _texts(entry: Mapping[str, Any]) -> dict[str, Text | None]:
    return {name: argument_text(value) for name, value in entry.items()}


def _covers(entry: Mapping[str, Text | None], point: Mapping[str, Any]) -> bool:
    """Whether every key of `entry` stands in `point` with the same text."""
    return all(name in point and argument_text(point[name]) == value for name, value in entry.items())


class BatchMistake(Exception):
    """A mistake of the user: the arguments that it concerns, and a sentence. The caller knows their places."""

    def __init__(self, names: tuple[str, ...], message: str) -> None:
        self.names = names
        super().__init__(message)


def settle_batch(arguments: dict[str, Text | None], num_gpus: int) -> Reason | None:
    """Derive batch or accumulation from an effective batch size, in place. Return a reason where it does not divide."""
    wanted = arguments.pop(EFFECTIVE, None)
    if wanted is None:
        return None
    given = tuple(name for name in (BATCH, ACCUMULATION) if arguments.get(name) is not None)
    if len(given) != 1:
        have = "both are given; set one of them to null" if given else "neither is; give one of them"
        raise BatchMistake(
            given, f"with {EFFECTIVE} exactly one of {BATCH} and {ACCUMULATION} is to be given, and {have}"
        )
    known, follows = given[0], BATCH if given[0] == ACCUMULATION else ACCUMULATION
    total, part = _whole(EFFECTIVE, wanted), _whole(known, arguments[known])
    if total % (part * num_gpus):
        arguments[EFFECTIVE] = wanted  # never run, but still a cell of its own
        text = f"{EFFECTIVE} {total} does not divide by {num_gpus} GPUs × {known} {part}"
        return Reason(kind="batch_does_not_divide", text=text)
    arguments[follows] = str(total // (part * num_gpus))
    return None


def _whole(name: str, value: Text | None) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10 and int(value) >= 1:
        return int(value)
    raise BatchMistake((name,), f"{name}: {value!r} is not right; a whole number from 1 is expected")


def global_batch(arguments: Mapping[str, Text], num_gpus: int) -> int | None:
    """Return the samples per optimizer step over all processes; without a value the Trainer's default counts."""
    batch, accumulation = arguments.get(BATCH, str(TRAINER_BATCH_DEFAULT)), arguments.get(ACCUMULATION, "1")
    try:
        return _whole(BATCH, batch) * _whole(ACCUMULATION, accumulation) * num_gpus
    except BatchMistake:  # the trainer's to refuse
        return None


class Layer(NamedTuple):
    """Arguments from one origin, in the trainer's names. `path` is their place in the scenario, () for another origin."""

    origin: str
    path: tuple[str | int, ...]
    arguments: Mapping[str, Text | None]


class Layers:
    """The layers of one scenario's arguments, the lowest first: `below` those of a cell, the cell's own, and `above` them.

    `axes` and `overrides` are the command line's. `notes` are sentences on names that the trainer has changed.
    """

    def __init__(
        self, suite: Suite, scenario: Scenario, trainer: Trainer, *, axes: Collection[str], overrides: Mapping[str, Any]
    ) -> None:
        self.trainer, self.axes = trainer, axes
        self.notes: list[str] = []
        defaults = str(suite.files.get("defaults", "defaults.yaml"))
        self.below = [
            Layer("the trainer's own defaults", (), trainer.base_arguments),
            self._layer(defaults, (), suite.defaults),
        ]
        own = {name: value for name, value in scenario.arguments.items() if name != MODEL}
        above = [self._layer("arguments:", ("arguments", name), {name: value}) for name, value in own.items()]
        given = {name: value for name, value in overrides.items() if name != MODEL}
        self.above = [*above, self._layer("--set", (), given)]
        self.lower, self.upper = _merged(self.below), _merged(self.above)
        self._frameworks: dict[str | None, Layer] = {None: Layer("", (), {})}
        self._single: dict[tuple[str, Text | None, int | None], Layer] = {}

    def _layer(self, origin: str, path: tuple[str | int, ...], arguments: Mapping[str, Any]) -> Layer:
        translated, said = self.trainer.translate(argument_texts(arguments))
        self.notes.extend(said)
        return Layer(origin, path, translated)

    def of_framework(self, name: str, arguments: Mapping[str, Text | None]) -> Mapping[str, Text | None]:
        """Add the layer of a framework configuration, and return its arguments in the trainer's names."""
        self._frameworks[name] = self._layer(f"framework configuration {name!r}", (), arguments)
        return self._frameworks[name].arguments

    def merged(self, cell: Cell) -> dict[str, Text | None]:
        """Return a cell's arguments, where the highest layer wins. The model comes first, and no layer may change it."""
        merged = {MODEL: cell.model, **self.lower, **self._frameworks[cell.framework].arguments}
        for layer in self._of_cell(cell):
            merged.update(layer.arguments)
        return {**merged, **self.upper, MODEL: cell.model}

    def origin(self, name: str, cell: Cell) -> Layer:
        """Return the layer that an argument of a cell comes from."""
        layers = (*self.below, self._frameworks[cell.framework], *self._of_cell(cell), *self.above)
        return next((layer for layer in reversed(layers) if name in layer.arguments), self.below[-1])

    def _of_cell(self, cell: Cell) -> Iterator[Layer]:
        """Yield a layer for each argument of a cell: a value of an axis, or what `include:` adds. Each is made once."""
        for name, value in cell.arguments.items():
            index = cell.included.get(name)
            layer = self._single.get((name, value, index))
            if layer is None:
                origin, path = self._place(name, index)
                layer = self._single[name, value, index] = self._layer(origin, path, {name: value})
            yield layer

    def _place(self, name: str, index: int | None) -> tuple[str, tuple[str | int, ...]]:
        if index is not None:
            return "include:", ("include", index, name)
        return ("--axis", ()) if name in self.axes else ("matrix:", ("matrix", name))


def _merged(layers: Iterable[Layer]) -> dict[str, Text | None]:
    return {name: value for layer in layers for name, value in layer.arguments.items()}
