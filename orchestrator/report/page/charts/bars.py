"""Charts that compare experiments by one number: throughput, energy per token. Pure: cells in, charts out.

Bars are horizontal, because readers look for a row by its name. The name is to the left of the bar, and the words are to its
right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import Show, metric
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    Chart,
    Figure,
    Trace,
    View,
    error_bars,
    in_stretches,
    scale_of,
    scatter,
)
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
_BAR, _GAP = 19, 12
# The length of the axis, relative to the longest bar. The difference is space for the words to the right of the bar.
_ROOM, _NARROW_ROOM = 1.75, 2.1
# The opacity of the bars of the smallest GPU count; those of the largest are opaque.
_LIGHTEST = 0.6


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
    def runs(self) -> Sequence[float]:
        return self.cell.of_runs.get(self.metric, ())

    @property
    def cold(self) -> Sequence[float]:
        return self.cell.of_cold_run.get(self.metric, ())

    @property
    def end(self) -> float:
        """Return the end of the bar, its whisker or its dots."""
        return max(self.interval.high if self.interval else self.value or 0.0, *self.runs, *self.cold, 0.0)

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

    def words(self, *, with_gpus: bool, narrow: bool = False) -> str:
        """Return the words to the right of the bar. `with_gpus` puts the number of GPUs first. `narrow` is for a phone."""
        doubts = [f"⚠ {doubt}" for doubt in self.cell.doubts]
        failure = f"✕ {self.cell.kind or self.cell.status}" if self.cell.ended_badly else ""
        where = self.cell.where if with_gpus else ""
        if self.value is None:
            return " · ".join(filter(None, (where, failure, *doubts)))
        value, _, ratio = self.numbers
        count = f"n={len(self.runs)}" if self.runs and not narrow else ""
        cold = "slow first run" if self.cold else ""
        failed = failure and f"{failure} in some runs"
        return " · ".join(filter(None, (where, value, count, ratio.strip("-"), cold, *doubts, failed)))

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
    reading = (
        f"Longer is faster. {_WHISKERS}{_baseline(drawn)}A hatched bar is in doubt. A cross marks a run that failed."
    )
    title = "Throughput" if name is None else f"Throughput, {_axis(name)}"
    views = _compared(cells, name) if name else ()
    return Chart(
        id="throughput", title=title, reading=reading, facets=_facets(cells, facet), views=tuple(views), together=True
    )


def times(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of step times for experiments without a speed. If there are no step times, show the times of whole runs."""
    others = [cell for cell in cells if not any(name in cell.numbers for name in SPEEDS)]
    name = first_measured(others, TIMES)
    reading = f"Shorter is faster. {_WHISKERS}{_baseline(others).replace('ratio', 'speed relative', 1)}".rstrip()
    title = "Time" if name is None else f"{metric(name).label.capitalize()}, {_axis(name)}"
    views = _compared(others, name, highest_first=False) if name else ()
    return Chart(
        id="times", title=title, reading=reading, facets=_facets(others, facet), views=tuple(views), together=True
    )


def energy(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of energy per token, from the GPUs' counters."""
    scope = "Energy of the GPUs in the steady state, per token that is not padding. "
    reading = f"Shorter is better. {scope}{_WHISKERS}{_baseline(cells)}".rstrip()
    views = tuple(_compared(cells, ENERGY, highest_first=False))
    return Chart(
        id="energy", title="Energy per token", reading=reading, facets=_facets(cells, facet), views=views, together=True
    )


_WHISKERS = (
    "Each dot is a run (a hollow one is a slow first run and does not count); whiskers are 95 % intervals over runs. "
)


def _baseline(cells: Sequence[Cell]) -> str:
    """Return a sentence that names the baseline of the ratios."""
    bases = {cell.base for cell in cells if cell.base}
    choices = sorted({cell.choice for cell in cells if cell.key in bases})
    return f"× is the ratio to {' or '.join(choices[:3])} with otherwise equal settings. " if choices else ""


def _facets(cells: Sequence[Cell], facet: str) -> tuple[str, ...]:
    return facet, noun(cells), "Rows"


def _axis(name: str, unit: str | None = None) -> str:
    unit = unit or metric(name).unit or metric(name).label
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
        (one_line(bar.cell.name), str(bar.cell.gpus), *bar.numbers, str(len(bar.runs)), bar.remarks)
        for bar in sorted(bars, key=lambda bar: (bar.row, bar.cell.gpus))
    ]
    return View(
        at=at,
        figure=_figure(names, [[bar for bar in bars if bar.cell.gpus == count] for count in gpu_counts(cells)], name),
        summary=_summary(len(names), cells, name),
        columns=("row", "GPUs", metric(name).label, "95 % interval", "to the baseline", "runs", "remarks"),
        rows=tuple(table),
    )


def _summary(rows: int, cells: Sequence[Cell], name: str) -> str:
    measured = sorted((cell for cell in cells if name in cell.numbers), key=lambda cell: cell.numbers[name])
    failed = sum(cell.ended_badly for cell in cells)
    bars = f" with {counted(len(measured), 'bar')}" if len(measured) > rows else ""
    parts = [counted(rows, "row") + bars]
    if measured:
        values = [f"{shown(name, cell.numbers[name])}{' (in doubt)' if cell.in_doubt else ''}" for cell in measured]
        ends = [
            f"{one_line(cell.name)} on {cell.where} with {value}" for cell, value in zip(measured, values, strict=True)
        ]
        parts.append(f"highest {ends[-1]}, lowest {ends[0]}" if len(ends) > 1 else ends[0])
    if failed:
        parts.append(f"{failed} did not end ok")
    unit = "" if metric(name).show in (Show.SECONDS, Show.JOULES) else f" ({_axis(name)})"
    return f"{'; '.join(parts)}{unit}."


def _ratio(cell: Cell, name: str, known: Mapping[Key, Cell]) -> float | None:
    """Return the ratio to the baseline.

    For a speed or a time, the ratio is computed from all runs, as in the findings. For any other metric, it is a ratio of
    means. Return None if a speed of the two experiments is in doubt.
    """
    if not cell.claimed or name in (*SPEEDS, *TIMES):
        return cell.speedup
    partner = known.get(cell.base) if cell.base else None
    base = partner.numbers.get(name) if partner else None
    return cell.numbers[name] / base if base and name in cell.numbers else None


def _figure(names: Sequence[str], groups: Sequence[Sequence[_Bar]], name: str) -> Figure:
    """Return the figure. The bars of several GPU counts are next to each other, and words are to their right."""
    longest = max((bar.end for bars in groups for bar in bars), default=0.0) or 1
    factor, unit = scale_of(name, longest)
    row_px = len(groups) * _BAR + _GAP
    width = 1 - _GAP / row_px
    offsets = [(place - (len(groups) - 1) / 2) * width / len(groups) for place in range(len(groups))]
    placed = [(bar, bar.row + offset) for offset, bars in zip(offsets, groups, strict=True) for bar in bars]
    opacities = [1 - (1 - _LIGHTEST) * place / max(1, len(groups) - 1) for place in reversed(range(len(groups)))]
    words, narrow_words = (
        [for_plotly(bar.words(with_gpus=len(groups) > 1, narrow=narrow)) for bar, _ in placed]
        for narrow in (False, True)
    )
    return row_figure(
        names,
        [
            *chain.from_iterable(_bars(at, bars, factor, opacities[at]) for at, bars in enumerate(groups)),
            *_dots(placed, name, factor),
            texts(words, [(bar.end * factor, at) for bar, at in placed]),
        ],
        x_title=for_plotly(_axis(name, unit)),
        x_range=(0, longest * factor * _ROOM),
        narrow_range=(0, longest * factor * _NARROW_ROOM),
        narrow_words=narrow_words,
        row_px=row_px,
        barmode="group",
        bargap=_GAP / row_px,
        xaxis={"tickformat": "~s" if name in SPEEDS else "~g"},
    )


def _bars(group: int, bars: Sequence[_Bar], factor: float, opacity: float) -> Iterator[Trace]:
    """Yield the bars of one GPU count, in a trace for each choice. A bar in doubt is hatched."""
    measured = sorted((bar for bar in bars if bar.value is not None), key=lambda bar: bar.row)
    if not measured:  # the group keeps its place next to the others
        yield row_bars(bars[0].cell.where, {}, [], offsetgroup=str(group))
    for place in dict.fromkeys(bar.cell.place for bar in measured):
        drawn = [bar for bar in measured if bar.cell.place == place]
        values, intervals = {bar.row: (bar.value or 0.0) * factor for bar in drawn}, [bar.interval for bar in drawn]
        marker = {
            "color": colours.colour(place),
            "opacity": round(opacity, 2),
            "pattern": colours.in_doubt([bar.cell.in_doubt for bar in drawn]),
            "line": {"width": 0},
        }
        more: Trace = {"offsetgroup": str(group), "marker": marker}
        if any(intervals):
            whisker = {"thickness": 1.25, "width": 3}
            more["error_x"] = error_bars([bar.value or 0.0 for bar in drawn], intervals, factor=factor, **whisker)
        yield row_bars(drawn[0].cell.where, values, [bar.hover for bar in drawn], **more)


def _dots(placed: Sequence[tuple[_Bar, float]], name: str, factor: float) -> Iterator[Trace]:
    """Yield the dots of the runs: full if the run counts, hollow if it was cold."""
    counted_runs = [(value, at) for bar, at in placed for value in bar.runs]
    cold_runs = [(value, at) for bar, at in placed for value in bar.cold]
    for label, symbol, points in (("run", "circle", counted_runs), ("slow first run", "circle-open", cold_runs)):
        if points:
            yield scatter(
                "markers",
                label,
                [(value * factor, at) for value, at in points],
                marker={"color": colours.INK, "symbol": symbol, "size": 5, "opacity": 0.8},
                hovertext=[for_plotly(f"one {label}: {shown(name, value)}") for value, _ in points],
                hoverinfo="text",
                showlegend=False,
            )
