"""The experiments of the trainer `operators` in the form that their charts need: what is called, and the size of its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from orchestrator.measure.metrics import metric
from orchestrator.report.page.charts.chart_data import Cell
from orchestrator.report.page.texts import for_plotly, one_line
from orchestrator.results.table.column_choice import column
from orchestrator.trainers.external.operators import COLLECTIVES, NAME

if TYPE_CHECKING:
    from orchestrator.results.table.load import ResultsTable

# The arguments that make a call another call, besides its shape. All but the first are named only if they differ.
_WHAT = ("operator", "equation", "dtype", "direction", "cache", "rank", "seed")
# The figures of a screen that are the roof.
MATMUL, HBM = "matmul_flops_per_s", "hbm_bytes_per_s"
_HALF = ("bfloat16", "float16")
_TERA = 1e12


@dataclass(frozen=True, kw_only=True, slots=True)
class Roof:
    """The rates of an idle card by its screens: operations per second of a bfloat16 product, bytes per second of a copy.

    One of them may be missing.
    """

    card: str
    flops_per_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One experiment. `what` names the call without its shape and its implementation. `size` grows with the shape.

    `way` is the value in which compared calls differ; without a comparison, it is the implementation.

    `is_half` means that its numbers have 16 bits, so that the product of the screen is its roof.
    """

    cell: Cell
    what: str
    way: str
    shape: str
    size: int
    is_half: bool
    roof: Roof | None = None

    @property
    def flops_per_s(self) -> float | None:
        return rate * _TERA if (rate := self.cell.numbers.get("operator_tflops_per_s")) else None

    @property
    def bytes_per_s(self) -> float | None:
        return self.cell.numbers.get("operator_bytes_per_s")

    @property
    def intensity(self) -> float | None:
        """Return the operations for each byte."""
        return self.flops_per_s / self.bytes_per_s if self.flops_per_s and self.bytes_per_s else None

    def limit(self) -> tuple[float, str] | None:
        """Return the call's rate as a share of its roof, and which part of the roof is the nearer one. None without a roof.

        The screen multiplies bfloat16 only, so for other types the memory is the only known roof.
        """
        roof, shares = self.roof, []
        if roof and roof.bytes_per_s and self.bytes_per_s:
            shares.append((self.bytes_per_s / roof.bytes_per_s, "memory"))
        if roof and roof.flops_per_s and self.flops_per_s and self.is_half:
            shares.append((self.flops_per_s / roof.flops_per_s, "compute"))
        return max(shares) if shares else None


def read(table: ResultsTable, cells: Sequence[Cell], roofs: Mapping[tuple[str | None, str], Roof]) -> list[Call]:
    """Return the calls among the cells of a table, the smallest first. Collective operations are no work of one card."""
    frame = table.experiments.iloc[: len(cells)]
    columns = {
        name: [_word(value) for value in column(frame, name)] for name in (*_WHAT, "implementation", "shape", "trainer")
    }
    rows = [
        row
        for row in range(len(cells))
        if columns["trainer"][row] == NAME and columns["operator"][row] not in COLLECTIVES and columns["shape"][row]
    ]
    differing = [name for name in _WHAT[1:] if len({columns[name][row] for row in rows}) > 1]
    found = [
        Call(
            cell=cells[row],
            what=one_line(" · ".join([columns["operator"][row], *_named(columns, row, differing)])),
            way=cells[row].setting or columns["implementation"][row] or cells[row].choice,
            shape=columns["shape"][row],
            size=_size(columns["shape"][row]),
            is_half=columns["dtype"][row] in _HALF,
            roof=roofs.get(cells[row].key),
        )
        for row in rows
    ]
    return sorted(found, key=lambda call: (call.size, call.shape))


def by_what(calls: Iterable[Call]) -> dict[tuple[str, str], list[Call]]:
    """Return the calls of each panel and each `what`, in their order."""
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in sorted(calls, key=lambda call: (call.cell.panel, call.what)):
        groups.setdefault((call.cell.panel, call.what), []).append(call)
    return groups


def shape_axis(shapes: Sequence[str]) -> dict[str, Any]:
    """Return the x axis of shapes, evenly spaced."""
    return {
        **{"tickvals": [*range(len(shapes))], "ticktext": [for_plotly(shape, width=30) for shape in shapes]},
        **{"range": [-0.4, len(shapes) - 0.6], "showgrid": False, "zeroline": False},
    }


def _named(columns: Mapping[str, Sequence[str]], row: int, names: Iterable[str]) -> list[str]:
    """Return the values that a reader knows by themselves, and the others with their names."""
    plain = ("equation", "dtype", "direction")
    words = [(name, columns[name][row]) for name in names]
    return [value if name in plain else f"{metric(name).label} {value}" for name, value in words if value]


def _size(shape: str) -> int:
    """Return the sum of the products of a shape's sizes; 0 if it is not a shape."""
    try:
        return sum(prod(map(int, one.split("x"))) for one in shape.split(","))
    except ValueError:
        return 0


def _word(value: object) -> str:
    return "" if value is None else one_line(value)
