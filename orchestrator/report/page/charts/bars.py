"""Charts that compare experiments by one number: throughput, energy per token. Pure: cells in, charts out.

Bars are horizontal, because readers look for a row by its name. The name is to the left of the bar, and the words are to its
right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import metric
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Figure, Trace, View, error_bars, in_stretches
from orchestrator.report.page.charts.chart_data import (
    ALL,
    SPEEDS,
    Cell,
    Key,
    by_panel,
    first_measured,
    gpu_counts,
    noun,
    of_gpus,
)
from orchestrator.report.page.charts.row_axis import ROWS, row_bars, row_figure, texts
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, shown
from orchestrator.results.table.baseline import ENERGY, TIMES

MOST_BARS_PER_ROW = 6
_BAR, _GAP = 17, 12
# The length of the axis, relative to the longest bar. The difference is space for the words to the right of the bar.
_ROOM, _NARROW_ROOM = 1.3, 1.75


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bar:
    """The bar of one cell: its row, its metric, and the ratio to the baseline."""

    row: int
    cell: Cell
    metric: str
    ratio: float | None

    @property
    def value(self) -> float | None:
        return self.cell.numbers.get(self.metric)

    @property
    def interval(self) -> Interval | None:
        return self.cell.intervals.get(self.metric)

    @property
    def end(self) -> float:
        """Return the end of the bar, or of its whisker if it has one."""
        return self.interval.high if self.interval else self.value or 0.0

    @property
    def numbers(self) -> tuple[str, str, str]:
        """Return the value, the interval and the ratio in words."""
        if self.value is None:
            return "-", "-", "-"
        ends = self.interval and f"{shown(self.metric, self.interval.low)} – {shown(self.metric, self.interval.high)}"
        return shown(self.metric, self.value), ends or "-", "-" if self.ratio is None else f"{self.ratio:.2f}×"

    @property
    def remarks(self) -> str:
        failure = f"{self.cell.status}: {self.cell.kind}" if self.cell.kind else self.cell.status
        return ", ".join([*self.cell.doubts, *([failure] if self.cell.ended_badly else [])])

    @property
    def words(self) -> str:
        """Return the words to the right of the bar."""
        doubts = [f"⚠ {doubt}" for doubt in self.cell.doubts]
        failure = f"✕ {self.cell.kind or self.cell.status}" if self.cell.ended_badly else ""
        if self.value is None:
            return " · ".join(filter(None, (failure, *doubts)))
        value, _, ratio = self.numbers
        return " · ".join(filter(None, (value, ratio.strip("-"), *doubts, failure and f"{failure} in some runs")))

    @property
    def hover(self) -> str:
        value, interval, ratio = self.numbers
        lines = [self.cell.name, self.cell.where, f"{value} {_axis(self.metric)}"]
        lines += [f"95 % interval {interval}"] if interval != "-" else []
        lines += [f"{ratio} the baseline"] if ratio != "-" else []
        return lines_for_plotly([*lines, *filter(None, [self.remarks]), self.cell.id])


def throughput(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of each row's speed with its interval over runs. A row has a bar for each GPU count."""
    name = first_measured(cells, SPEEDS)
    drawn = [cell for cell in cells if name in cell.numbers]
    reading = f"Longer is faster. {_WHISKERS}{_baseline(drawn)}A cross marks a run that failed."
    title = "Throughput" if name is None else f"Throughput, {_axis(name)}"
    views = _compared(cells, name) if name else ()
    return Chart(id="throughput", title=title, reading=reading, facets=_facets(cells, facet), views=tuple(views))


def times(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of step times for experiments without a speed. If there are no step times, show the times of whole runs."""
    others = [cell for cell in cells if not any(name in cell.numbers for name in SPEEDS)]
    name = first_measured(others, TIMES)
    reading = f"Shorter is faster. {_WHISKERS}{_baseline(others).replace('ratio', 'speed relative', 1)}".rstrip()
    title = "Time" if name is None else f"{metric(name).label.capitalize()}, {_axis(name)}"
    views = _compared(others, name, highest_first=False) if name else ()
    return Chart(id="times", title=title, reading=reading, facets=_facets(others, facet), views=tuple(views))


def energy(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of energy per token, from the GPUs' counters."""
    scope = "Energy of the GPUs in the steady state, per token that is not padding. "
    reading = f"Shorter is better. {scope}{_WHISKERS}{_baseline(cells)}".rstrip()
    views = tuple(_compared(cells, ENERGY, highest_first=False))
    return Chart(id="energy", title="Energy per token", reading=reading, facets=_facets(cells, facet), views=views)


_WHISKERS = "Whiskers are 95 % intervals over runs; a single run has none. "


def _baseline(cells: Sequence[Cell]) -> str:
    """Return a sentence that names the baseline of the ratios."""
    bases = {cell.base for cell in cells if cell.base}
    choices = sorted({cell.choice for cell in cells if cell.key in bases})
    return f"× is the ratio to {' or '.join(choices[:3])} with otherwise equal settings. " if choices else ""


def _facets(cells: Sequence[Cell], facet: str) -> tuple[str, ...]:
    return facet, noun(cells), "Rows"


def _axis(name: str) -> str:
    known = metric(name)
    unit = known.unit or known.label
    return f"{unit}, without padding" if name == "real_tokens_per_s" else unit


def _compared(cells: Sequence[Cell], name: str, *, highest_first: bool = True) -> list[View]:
    """Return the views of a metric. If there is room, a view shows all GPU counts together; else each count has its own view."""
    known = {cell.key: cell for cell in cells}
    views = []
    for panel, members in by_panel(cells).items():
        measured = [cell for cell in members if name in cell.numbers or cell.ended_badly or cell.doubts]
        if not any(name in cell.numbers for cell in measured):
            continue
        counts = gpu_counts(measured)
        together = len(counts) <= MOST_BARS_PER_ROW and len(measured) <= ROWS * 1.5
        choices = [(ALL, measured)] if together else [(str(n), of_gpus(measured, n)) for n in counts]
        for choice, part in choices:
            rows = _ordered(part, name, highest_first=highest_first)
            for stretch, names in in_stretches(rows, ROWS):
                drawn = [cell for cell in part if cell.name in set(names)]
                if any(name in cell.numbers for cell in drawn) or len(rows) > ROWS:
                    views.append(_comparison((panel, choice, stretch), name, names, drawn, known))
    return views


def _ordered(cells: Sequence[Cell], name: str, *, highest_first: bool = True) -> list[str]:
    """Return the names of rows, the best first, and rows without a number last."""
    sign = -1 if highest_first else 1
    best: dict[str, float] = {}
    for cell in cells:
        value = sign * cell.numbers.get(name, sign * inf)
        best[cell.name] = min(best.get(cell.name, inf), value)
    return sorted(best, key=lambda row: (best[row], row))


def _comparison(
    at: tuple[str, str, str], name: str, names: Sequence[str], cells: Sequence[Cell], known: Mapping[Key, Cell]
) -> View:
    rows = {row: place for place, row in enumerate(names)}
    bars = [_Bar(row=rows[cell.name], cell=cell, metric=name, ratio=_ratio(cell, name, known)) for cell in cells]
    table = [
        (one_line(bar.cell.name), str(bar.cell.gpus), *bar.numbers, bar.remarks)
        for bar in sorted(bars, key=lambda bar: (bar.row, bar.cell.gpus))
    ]
    return View(
        at=at,
        figure=_figure(names, [[bar for bar in bars if bar.cell.gpus == count] for count in gpu_counts(cells)], name),
        summary=_summary(len(names), cells, name),
        columns=("row", "GPUs", metric(name).label, "95 % interval", "to the baseline", "remarks"),
        rows=tuple(table),
    )


def _summary(rows: int, cells: Sequence[Cell], name: str) -> str:
    measured = sorted((cell for cell in cells if name in cell.numbers), key=lambda cell: cell.numbers[name])
    failed = sum(cell.ended_badly for cell in cells)
    parts = [counted(rows, "row")]
    if measured:
        ends = [f"{one_line(cell.name)} on {cell.where} with {shown(name, cell.numbers[name])}" for cell in measured]
        parts.append(f"highest {ends[-1]}, lowest {ends[0]}" if len(ends) > 1 else ends[0])
    if failed:
        parts.append(f"{failed} failed")
    return f"{'; '.join(parts)} ({_axis(name)})."


def _ratio(cell: Cell, name: str, known: Mapping[Key, Cell]) -> float | None:
    """Return the ratio to the baseline.

    For a speed or a time, the ratio is computed from all runs, as in the findings. For any other metric, it is a ratio of
    means.
    """
    if name in (*SPEEDS, *TIMES) and cell.speedup is not None:
        return cell.speedup
    partner = known.get(cell.base) if cell.base else None
    base = partner.numbers.get(name) if partner else None
    return cell.numbers[name] / base if base and name in cell.numbers else None


def _figure(names: Sequence[str], groups: Sequence[Sequence[_Bar]], name: str) -> Figure:
    """Return the figure. The bars of several GPU counts are next to each other, and words are to their right."""
    longest = max((bar.end for bars in groups for bar in bars), default=0.0) or 1
    row_px = len(groups) * _BAR + _GAP
    return row_figure(
        names,
        [*(_bars(place, bars) for place, bars in enumerate(groups)), _words_behind(groups)],
        x_title=for_plotly(_axis(name)),
        x_range=(0, longest * _ROOM),
        narrow_range=(0, longest * _NARROW_ROOM),
        row_px=row_px,
        legend=len(groups) > 1,
        barmode="group",
        bargap=_GAP / row_px,
        xaxis={"tickformat": "~s" if name in SPEEDS else "~g"},
    )


def _bars(place: int, bars: Sequence[_Bar]) -> Trace:
    drawn = sorted((bar for bar in bars if bar.value is not None), key=lambda bar: bar.row)
    values, intervals = {bar.row: bar.value or 0.0 for bar in drawn}, [bar.interval for bar in drawn]
    more: Trace = {"offsetgroup": str(place), "marker": colours.bar(place)}
    if any(intervals):
        more["error_x"] = error_bars(values.values(), intervals, thickness=1.25, width=3)
    return row_bars(bars[0].cell.where, values, [bar.hover for bar in drawn], **more)


def _words_behind(groups: Sequence[Sequence[_Bar]]) -> Trace:
    """Return a trace that contains only texts: the words to the right of all bars."""
    width = 1 - _GAP / (len(groups) * _BAR + _GAP)
    words, ends = [], []
    for place, bars in enumerate(groups):
        offset = (place - (len(groups) - 1) / 2) * width / len(groups)
        words += [for_plotly(bar.words) for bar in bars]
        ends += [(bar.end, bar.row + offset) for bar in bars]
    return texts(words, ends)
