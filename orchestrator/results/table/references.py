"""The references that experiments are compared with: values of axes that `--baseline` or a scenario's `baseline:` names.

An axis is a column: the framework configuration, an argument, or a fact such as the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.records import Text
from orchestrator.results.table.rows import NO_FRAMEWORK, PREFIX, Value, argument_cell, argument_column

FRAMEWORK, GLOBAL_BATCH = "framework_config", "global_batch"
# If two experiments are compared along another axis, they agree in these facts.
# The global batch follows from the arguments and the processes, so it is not one of these facts.
FACTS = (
    *("results", "scenario", "model_name_or_path", "num_gpus", "num_nodes", "device", "trainer", "python", "data"),
    *("environment", "monitors", "sources"),
)
COLUMN_OF = {"effective_batch_size": GLOBAL_BATCH}
_UNSET = ("null", "none", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A reference value of an axis. Experiments with different values are compared with this value.

    The value is text, or None for an argument that is not set.
    """

    axis: str
    value: str | None

    @property
    def shown(self) -> str:
        return "null" if self.value is None else self.value

    def __str__(self) -> str:
        """Return the reference as a value for `--baseline`."""
        return self.shown if self.axis == FRAMEWORK else f"{self.axis.removeprefix(PREFIX)}={self.shown}"

    def among(self, cells: Iterable[Value]) -> frozenset[Value]:
        """Return the one cell that this reference names, or no cell. A cell with exactly this text comes first.

        Without such a cell, an equal cell counts: `true` equals `True`, and `2e-5` equals `2.0e-05`. But if two different cells
        are equal to the value, such as the versions `2.1` and `2.10`, the reference names neither.
        """
        equal = frozenset(cell for cell in cells if self._equals(cell))
        exact = frozenset(cell for cell in equal if cell is None or str(cell) == self.value)
        return exact or (equal if len(equal) == 1 else frozenset())

    def _equals(self, cell: Value) -> bool:
        if cell is None or self.value is None:
            return cell is None and (self.value is None or self.value.lower() in _UNSET)
        mine, other = self.value.lower(), str(cell).lower()
        return mine == other or (is_number(mine) and is_number(other) and float(mine) == float(other))


def reference_to(axis: str, cell: Value) -> Reference:
    """Return a reference to the value of a table's cell."""
    return Reference(axis=axis, value=None if cell is None else str(cell))


def of_scenario(baseline: Mapping[str, Text | None], arguments: Collection[str]) -> tuple[Reference, ...]:
    """Return the references of a scenario's `baseline:`. `arguments` are the columns of the table that are arguments."""
    without = {FRAMEWORK: NO_FRAMEWORK}
    return tuple(
        Reference(axis=_column_of(axis, arguments), value=without.get(axis) if value is None else argument_cell(value))
        for axis, value in baseline.items()
    )


def _column_of(axis: str, arguments: Collection[str]) -> str:
    """Return the column of a scenario's axis: that of the argument of this name, else that of the fact of this name."""
    if axis in COLUMN_OF:
        return COLUMN_OF[axis]
    is_fact = axis in (*FACTS, GLOBAL_BATCH, FRAMEWORK) and argument_column(axis) not in arguments
    return axis if is_fact else argument_column(axis)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
