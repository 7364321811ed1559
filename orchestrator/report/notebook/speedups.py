"""The drawing of speed-ups against the baseline: a point with its 95 % interval for each experiment. Pure.

It uses the parts, colours and symbols of the report's charts. The axis is logarithmic, so that 2 times faster and 2 times slower
have the same distance from 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.measure.intervals import Interval
from orchestrator.report.highlights.labels import listed
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Figure, Trace, error_bars, marker, scatter, upright
from orchestrator.report.page.charts.chart_data import Cell
from orchestrator.report.page.charts.row_axis import row_figure, row_names, texts
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line
from orchestrator.report.tables.as_markdown import with_interval

# The share of the width for the plot; the words have the rest.
_FIELD = 0.68
# The shortest axis on each side of the points, and how far beyond the points an interval may go, both as logarithms.
_LEAST, _BEYOND = math.log(1.03), 2.5
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0)
_MOST_TICKS = 7


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """An experiment and its baseline. The speed-up is missing if a doubt forbids to claim it."""

    cell: Cell
    base: Cell

    @property
    def value(self) -> float | None:
        return self.cell.speedup

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the ends of the interval, or nothing."""
        interval = self.cell.speedup_interval
        return (interval.low, interval.high) if interval else ()

    @property
    def words(self) -> str:
        """Return the speed-up with its interval, or the doubts."""
        if self.value is not None:
            return with_interval(self.value, *(self.ends or (None, None)))
        doubts = self.cell.doubts or tuple(f"{self.base.choice}: {doubt}" for doubt in self.base.doubts)
        return f"⚠ {', '.join(doubts) or 'in doubt'}"


def drawing(compared: Sequence[Comparison]) -> Figure:
    """Return the figure. The rows of a panel are together, the fastest first."""
    panels = list(dict.fromkeys(comparison.cell.panel for comparison in compared))
    rows = sorted(compared, key=lambda row: (panels.index(row.cell.panel), -(row.value or 0.0)))
    low, high = _span(rows)
    ticks = _ticks(low, high)
    span = math.log10(high / low)
    across = (math.log10(low), math.log10(low) + span / _FIELD)
    words = [for_plotly(row.words) for row in rows]
    cells = [row.cell for row in rows]
    return row_figure(
        [cell.full_name for cell in cells] if len(panels) > 1 else row_names(cells),
        [*_points(rows, low, high), texts(words, [(high, place) for place in range(len(rows))])],
        x_title=for_plotly(_title(rows)),
        x_range=across,
        narrow_range=across,
        xaxis={"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}×" for tick in ticks], "zeroline": False},
        shapes=[upright(1, {"color": colours.MUTED, "width": 1.2}) | {"layer": "below"}],
    )


def _title(rows: Iterable[Comparison]) -> str:
    bases = list(dict.fromkeys(one_line(row.base.choice) for row in rows))
    return f"speed relative to {listed(bases)}"


def _span(rows: Sequence[Comparison]) -> tuple[float, float]:
    """Return the ends of the plot. A very long interval is cut there; its words have both ends."""
    values = [row.value for row in rows if row.value is not None]
    reach = _BEYOND * max(_LEAST, *(abs(math.log(value)) for value in (1.0, *values)))
    ends = [min(max(math.log(end), -reach), reach) for row in rows for end in row.ends]
    shifts = [*map(math.log, values), *ends, -_LEAST, _LEAST]
    room = 0.06 * (max(shifts) - min(shifts))
    return math.exp(min(shifts) - room), math.exp(max(shifts) + room)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between the ends, with equal steps."""
    step = next((step for step in _STEPS if (high - low) / step <= _MOST_TICKS), high - low)
    first, last = math.ceil(low / step), math.floor(high / step)
    ticks = {1.0, *(round(place * step, 6) for place in range(first, last + 1))}
    return sorted(tick for tick in ticks if tick > 0)


def _points(rows: Sequence[Comparison], low: float, high: float) -> Iterator[Trace]:
    """Yield a trace for each choice, with the choice's colour and symbol."""
    placed = [(place, row, row.value) for place, row in enumerate(rows)]
    drawn = [(place, row, value) for place, row, value in placed if value is not None]
    for choice in dict.fromkeys(row.cell.place for _, row, _ in drawn):
        alike = [(place, row, value) for place, row, value in drawn if row.cell.place == choice]
        yield scatter(
            "markers",
            alike[0][1].cell.choice,
            [(value, place) for place, _, value in alike],
            marker=marker(choice, size=10),
            error_x=error_bars(
                [value for _, _, value in alike],
                [_cut(row.ends, low, high) for _, row, _ in alike],
                thickness=1.5,
                width=3,
            )
            | {"color": colours.colour(choice)},
            hovertext=[_hover(row) for _, row, _ in alike],
            hoverinfo="text",
        )


def _cut(ends: Sequence[float], low: float, high: float) -> Interval | None:
    return Interval(low=max(ends[0], low), high=min(ends[1], high)) if ends else None


def _hover(row: Comparison) -> str:
    interval = "95 % interval over runs" if row.ends else "no interval: one side has only one run"
    return lines_for_plotly([row.cell.full_name, f"{row.words} the speed of {row.base.choice}", interval, row.cell.id])
