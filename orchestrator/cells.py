"""The cells of one scenario: its axes crossed, `exclude:` taken away, `include:` added.

Order of the product, slowest first: model, framework configuration, effective batch size, GPU count, packing, max_seq_len,
then every other axis as it is listed. Does not know what an argument means; `matrix` makes experiments of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from orchestrator.config import argument_text
from orchestrator.records import Experiment, Text

MODEL, FRAMEWORK, GPUS = "model_name_or_path", "framework_config", "num_gpus"
FIRST = (MODEL, FRAMEWORK, "effective_batch_size", GPUS, "packing", "max_seq_len")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One point of the matrix: a value for each axis, and the arguments that `include:` adds to it."""

    model: str
    framework: str | None
    num_gpus: int
    point: Mapping[str, Text | None]
    extra: Mapping[str, Text | None] = field(default_factory=dict)


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
        extra: dict[str, Text | None] = {}
        for index, entry in enumerate(added):
            on_axes = {name: value for name, value in entry.items() if name in ordered}
            if _covers(on_axes, point):
                matched[index] = True
                extra.update((name, value) for name, value in entry.items() if name not in ordered)
        yield _cell(point, extra)
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
    return _cell(point, {})


def _cell(point: Mapping[str, Any], extra: Mapping[str, Text | None]) -> Cell:
    rest = {name: value for name, value in point.items() if name not in (MODEL, FRAMEWORK, GPUS)}
    return Cell(model=point[MODEL], framework=point[FRAMEWORK], num_gpus=int(point[GPUS]), point=rest, extra=extra)


def _texts(entry: Mapping[str, Any]) -> dict[str, Text | None]:
    return {name: argument_text(value) for name, value in entry.items()}


def _covers(entry: Mapping[str, Text | None], point: Mapping[str, Any]) -> bool:
    """Whether every key of `entry` stands in `point` with the same text."""
    return all(name in point and argument_text(point[name]) == value for name, value in entry.items())
