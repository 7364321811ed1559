"""The difference of two profiles: which operations take more time per step, or less, and by how much.

Operations are compared by their names. The name of a kernel has parameters of its compilation, which change between versions. So
operations that only one side has are compared a second time by the name without what is in brackets. What is then still on one
side only is new or gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from orchestrator.report.profile.trace import Operation, Profile

NOTHING = Operation(0.0, 0.0)
_BRACKETS = re.compile(r"<[^<>]*>|\([^()]*\)|\[[^\[\]]*\]")
_ENGINE = "autograd::engine::evaluate_function: "
_NUMBERED = re.compile(r"(?<=[a-z])_?\d+(?=$|_)", re.IGNORECASE)


class Change(NamedTuple):
    """An operation on both sides. A side without the operation has NOTHING."""

    name: str
    base: Operation
    new: Operation

    @property
    def seconds(self) -> float:
        """The time per step that the new side needs in addition; negative if it needs less."""
        return self.new.seconds - self.base.seconds


def changes(base: Profile, new: Profile) -> list[Change]:
    """Return the operations of two profiles, those with the largest change of time first."""
    if bool(base.device) != bool(new.device):  # a kernel and an operator of the host are no pair
        return sorted(_paired(_joined(base.host), _joined(new.host)), key=_size, reverse=True)
    return sorted(_paired(_joined(base.operations), _joined(new.operations)), key=_size, reverse=True)


def _size(change: Change) -> tuple[float, str]:
    return abs(change.seconds), change.name


def _paired(base: Mapping[str, Operation], new: Mapping[str, Operation]) -> Iterator[Change]:
    for name in base.keys() & new.keys():
        yield Change(name, base[name], new[name])
    only_base, only_new = _short(base, base.keys() - new.keys()), _short(new, new.keys() - base.keys())
    for name in only_base.keys() | only_new.keys():
        yield Change(name, only_base.get(name, NOTHING), only_new.get(name, NOTHING))


def _joined(operations: Mapping[str, Operation]) -> dict[str, Operation]:
    """Return the operations, each operator of the backward pass together with the engine's part of it.

    The engine calls the operator, and a profiler may count a part of the work to either.
    """
    sums: dict[str, Operation] = {}
    for name, operation in operations.items():
        short = name.removeprefix(_ENGINE)
        before = sums.get(short, NOTHING)
        sums[short] = Operation(before.seconds + operation.seconds, max(before.calls, operation.calls))
    return sums


def _short(operations: Mapping[str, Operation], names: Iterable[str]) -> dict[str, Operation]:
    """Return the sums of the operations with equal short names."""
    sums: dict[str, Operation] = {}
    for name in names:
        short, operation = short_name(name), operations[name]
        before = sums.get(short, NOTHING)
        sums[short] = Operation(before.seconds + operation.seconds, before.calls + operation.calls)
    return sums


def short_name(name: str) -> str:
    """Return the name of a kernel without what is in brackets, without `void`, and without the numbers that compilers append.

    `void f<float, 4>(int)` becomes `f`, and inductor's `triton_poi_fused_add_12` becomes `triton_poi_fused_add`.
    """
    short, before = name, ""
    while short != before:
        before, short = short, _BRACKETS.sub("", short)
    short = " ".join(short.removeprefix("void ").split())
    return _NUMBERED.sub("", short) if short.startswith("triton_") else short or name
