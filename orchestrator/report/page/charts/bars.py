"""Charts that compare experiments by one number: throughput, energy per token. Pure: cells in, charts out.

Bars are horizontal, since a reader looks for rows by name: the name on the left, the bar from 0, the value in words behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import metric
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Figure, Trace, View, error_bars, in_stretches
from orchestrator.report.page.charts.chart_data import (
    ALL,
    ENERGY,
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

MOST_BARS_A_ROW = 6
_BAR, _GAP = 17, 12
# The end of the axis relative to the longest bar, with space for the words behind it.
_ROOM, _NARROW_ROOM = 1.3, 1.75


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Bars of one colour, one per row: values by the row's place, the words behind each bar, and its hover text."""

    name: str
    values: Mapping[int, float]
    words: Mapping[int, str]
    hover: Mapping[int, str]
    intervals: Mapping[int, Interval]

    def end(self, row: int) -> float:
        """Return the end of the bar and its whisker."""
        value = self.values.get(row, 0.0)
        return self.intervals[row].high if row in self.intervals else value


def throughput(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of each row's speed with its interval over runs. The bars of a row are its GPU counts."""
    name = first_measured(cells, SPEEDS)
    views = _compared(cells, name) if name else ()
    reading = f"Longer is faster. {_WHISKERS}{_beside(cells)}A cross marks a run that failed."
    title = "Throughput" if name is None else f"Throughput, {_axis(name)}"
    return Chart(id="throughput", title=title, reading=reading, facets=_facets(cells, facet), views=tuple(views))


def energy(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of energy per token, from the GPUs' counters."""
    views = _compared(cells, ENERGY, highest_first=False) if first_measured(cells, [ENERGY]) else ()
    what = "Only the GPUs, in the steady state, per token that is not padding. "
    reading = f"Shorter is better. {what}{_WHISKERS}{_beside(cells)}".rstrip()
    return Chart(
        id="energy", title="Energy per token", reading=reading, facets=_facets(cells, facet), views=tuple(views)
    )


_WHISKERS = "Whiskers are 95 % intervals over runs; a single run has none. "


def _beside(cells: Sequence[Cell]) -> str:
    """Return a sentence that names the baseline of the ratios."""
    bases = {cell.base for cell in cells if cell.base}
    frameworks = sorted({cell.framework for cell in cells if cell.key in bases})
    return f"× is the ratio to {' or '.join(frameworks[:3])} with all else equal. " if frameworks else ""


def _facets(cells: Sequence[Cell], facet: str) -> tuple[str, ...]:
    return facet, noun(cells), "Rows"


def _axis(name: str) -> str:
    known = metric(name)
    unit = known.unit or known.label
    return f"{unit}, without padding" if name == "real_tokens_per_s" else unit


def _compared(cells: Sequence[Cell], name: str, *, highest_first: bool = True) -> list[View]:
    """Return the views of a metric: all GPU counts together if there is room, else one by one."""
    known = {cell.key: cell for cell in cells}
    views = []
    for panel, found in by_panel(cells).items():
        measured = [cell for cell in found if name in cell.numbers or cell.ended_badly or cell.doubts]
        if not any(name in cell.numbers for cell in measured):
            continue
        counts = gpu_counts(measured)
        together = len(counts) <= MOST_BARS_A_ROW and len(measured) <= ROWS * 1.5
        choices = [(ALL, measured)] if together else [(str(n), of_gpus(measured, n)) for n in counts]
        for choice, part in choices:
            rows = _ordered(part, name, highest_first=highest_first)
            for stretch, names in in_stretches(rows, ROWS):
                drawn = [cell for cell in part if cell.name in set(names)]
                if any(name in cell.numbers for cell in drawn) or len(rows) > ROWS:
                    views.append(_comparison((panel, choice, stretch), name, names, drawn, known))
    return views


def _ordered(cells: Sequence[Cell], name: str, *, highest_first: bool = True) -> list[str]:
    """Return the names of rows, the best first, those without a number last."""
    sign = -1 if highest_first else 1
    best: dict[str, float] = {}
    for cell in cells:
        value = cell.numbers.get(name)
        mine = sign * value if value is not None else float("inf")
        best[cell.name] = min(best.get(cell.name, float("inf")), mine)
    return sorted(best, key=lambda row: (best[row], row))


def _comparison(
    at: tuple[str, str, str], name: str, names: Sequence[str], cells: Sequence[Cell], known: Mapping[Key, Cell]
) -> View:
    place = {row: number for number, row in enumerate(names)}
    counts = gpu_counts(cells)
    groups, table = [], []
    for count in counts:
        part = {place[cell.name]: cell for cell in of_gpus(cells, count)}
        said = {row: _Said.of(cell, name, _ratio(cell, name, known)) for row, cell in part.items()}
        groups.append(_of_gpus(part, said, name))
        table += [(row, count, one.cells) for row, one in said.items()]
    table.sort(key=lambda entry: entry[:2])
    figure = _figure(names, groups, title=_axis(name), ticks="~s" if name in SPEEDS else "~g")
    columns = ("row", "GPUs", metric(name).label, "95 % interval", "to the baseline", "remarks")
    rows = tuple((one_line(names[row]), str(count), *cells) for row, count, cells in table)
    return View(at=at, figure=figure, summary=_summary(len(names), cells, name), columns=columns, rows=rows)


def _summary(rows: int, cells: Sequence[Cell], name: str) -> str:
    measured = sorted((cell for cell in cells if name in cell.numbers), key=lambda cell: cell.numbers[name])
    failed = sum(cell.ended_badly for cell in cells)
    said = [counted(rows, "row")]
    if measured:
        ends = [f"{one_line(cell.name)} on {cell.where} with {shown(name, cell.numbers[name])}" for cell in measured]
        said.append(f"highest {ends[-1]}, lowest {ends[0]}" if len(ends) > 1 else ends[0])
    if failed:
        said.append(f"{failed} failed")
    return f"{'; '.join(said)} ({_axis(name)})."


def _ratio(cell: Cell, name: str, known: Mapping[Key, Cell]) -> float | None:
    """Return the ratio to the baseline: for a speed over runs, as everywhere in a report; for other metrics of means."""
    if name in SPEEDS and cell.speedup is not None:
        return cell.speedup
    partner = known.get(cell.base) if cell.base else None
    base = partner.numbers.get(name) if partner else None
    return cell.numbers[name] / base if base and name in cell.numbers else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Said:
    """The words of one bar: `short` behind the bar, `cells` in the table."""

    short: str
    cells: tuple[str, str, str, str]

    @staticmethod
    def of(cell: Cell, name: str, ratio: float | None) -> _Said:
        value, interval = cell.numbers.get(name), cell.intervals.get(name)
        doubted = [f"⚠ {doubt}" for doubt in cell.doubts]
        failed = f"✕ {cell.kind or cell.status}" if cell.ended_badly else ""
        remarks = [*cell.doubts, *([f"{cell.status}: {cell.kind}" if cell.kind else cell.status] if failed else [])]
        if value is None:
            return _Said(short=" · ".join(filter(None, (failed, *doubted))), cells=("-", "-", "-", ", ".join(remarks)))
        times = "" if ratio is None else f"{ratio:.2f}×"
        words = [
            shown(name, value),
            times,
            *(f"⚠ {doubt}" for doubt in cell.doubts),
            failed and f"{failed} in some runs",
        ]
        between = f"{shown(name, interval.low)} – {shown(name, interval.high)}" if interval else "-"
        said = " · ".join(filter(None, words))
        return _Said(short=said, cells=(shown(name, value), between, times or "-", ", ".join(remarks)))


def _of_gpus(part: Mapping[int, Cell], said: Mapping[int, _Said], name: str) -> Group:
    def hover(row: int, cell: Cell) -> str:
        value, interval, ratio, remarks = said[row].cells
        lines = [cell.name, cell.where, f"{value} {_axis(name)}"]
        lines += [f"95 % interval {interval}"] if interval != "-" else []
        lines += [f"{ratio} the baseline"] if ratio != "-" else []
        return lines_for_plotly([*lines, *([remarks] if remarks else []), cell.id])

    return Group(
        name=next(iter(part.values())).where,
        values={row: cell.numbers[name] for row, cell in part.items() if name in cell.numbers},
        words={row: one.short for row, one in said.items()},
        hover={row: hover(row, cell) for row, cell in part.items()},
        intervals={row: cell.intervals[name] for row, cell in part.items() if name in cell.intervals},
    )


def _figure(names: Sequence[str], groups: Sequence[Group], *, title: str, ticks: str) -> Figure:
    """Return bars of several groups next to each other, with their words behind them."""
    longest = max((group.end(row) for group in groups for row in group.values), default=0.0) or 1
    row_px = len(groups) * _BAR + _GAP
    return row_figure(
        names,
        [*(_bars(place, group) for place, group in enumerate(groups)), _words_behind(groups)],
        x_title=for_plotly(title),
        x_range=(0, longest * _ROOM),
        narrow_range=(0, longest * _NARROW_ROOM),
        row_px=row_px,
        legend=len(groups) > 1,
        barmode="group",
        bargap=_GAP / row_px,
        xaxis={"tickformat": ticks},
    )


def _bars(place: int, group: Group) -> Trace:
    values = dict(sorted(group.values.items()))
    more: Trace = {"offsetgroup": str(place), "marker": colours.bar(place)}
    if group.intervals:
        intervals = map(group.intervals.get, values)
        more["error_x"] = error_bars(values.values(), intervals, thickness=1.25, width=3)
    return row_bars(group.name, values, [group.hover[row] for row in values], **more)


def _words_behind(groups: Sequence[Group]) -> Trace:
    """Return the words behind all bars: a trace that contains only texts."""
    width = 1 - _GAP / (len(groups) * _BAR + _GAP)
    words, ends = [], []
    for place, group in enumerate(groups):
        offset = (place - (len(groups) - 1) / 2) * width / len(groups)
        for row, text in group.words.items():
            words.append(for_plotly(text))
            ends.append((group.end(row), row + offset))
    return texts(words, ends)
