"""The chart of scaling over GPU counts: as a share of ideal scaling, and in tokens per second. Pure: cells in, charts out.

The shares and their intervals are those of the findings (`highlights.scaling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log10
from typing import Any

from orchestrator.files.printable_text import counted
from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import metric
from orchestrator.report.highlights.wording import efficiency
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    Chart,
    Trace,
    View,
    error_bars,
    figure,
    in_stretches,
    level,
    marker,
    note,
    scatter,
)
from orchestrator.report.page.charts.chart_data import Cell, by_panel, gpu_counts, noun
from orchestrator.report.page.charts.curves import HEIGHT_PX, round_ticks, thin
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded, shown
from orchestrator.results.table import aggregate

# The largest number of lines in one drawing.
LINES = 8
EFFICIENCY, SPEED, REAL, PER_GPU = "scaling_efficiency", "tokens_per_s", "real_tokens_per_s", aggregate.PER_GPU
SHARE, ABSOLUTE = "share of ideal", "tokens/s"
# The distance between the points of two lines at one GPU count, as a share of the axis. It keeps whiskers apart.
_APART = 0.008

Line = Sequence[Cell]


def scaling(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of speed over GPU counts, relative to ideal scaling from the smallest count, and in tokens per second."""
    views = []
    for panel, part in by_panel([cell for cell in cells if EFFICIENCY in cell.numbers]).items():
        if len(gpu_counts(part)) == 1:  # only the number of nodes varies
            continue
        names = list(dict.fromkeys(cell.name for cell in part))
        for word, view in ((SHARE, _share_view), (ABSOLUTE, _absolute_view)):
            for stretch, drawn in in_stretches(names, LINES):
                lines = [[cell for cell in part if cell.name == name] for name in drawn]
                views.append(view((panel, word, stretch), [sorted(line, key=lambda cell: cell.gpus) for line in lines]))
    reading = (
        "Speed relative to the same row at its smallest GPU count, or in tokens per second. Thin dashed lines are ideal: n times "
        "the GPUs are n times as fast; communication and waiting take the rest. Whiskers are 95 % intervals over runs. A hollow "
        "point is in doubt."
    )
    return Chart(
        id="scaling",
        title="Scaling over GPUs",
        reading=reading,
        facets=(facet, "Shown as", "Rows"),
        views=tuple(views),
        together=True,
    )


def _share_view(at: tuple[str, ...], lines: Sequence[Line]) -> View:
    cells = [cell for line in lines for cell in line]
    counts = gpu_counts(cells)
    ends = [end for cell in cells for end in (cell.numbers[EFFICIENCY], *_ends(_share_interval(cell)))]
    offsets = _offsets(len(lines), counts)
    drawing = figure(
        [_share_line(place, line, offset) for place, (line, offset) in enumerate(zip(lines, offsets, strict=True))],
        height=HEIGHT_PX,
        x_title=noun(cells),
        y_title="share of ideal",
        legend=True,
        xaxis=_gpu_axis(counts),
        yaxis={
            "tickformat": ".0%",
            "range": [rounded(max(0.0, min(0.9, *ends) - 0.02)), rounded(max(1.02, *ends) + 0.02)],
        },
        shapes=[level(1, thin(colours.INK, "dash"))],
        annotations=[note(1, 1, "ideal", xref="paper", xanchor="right", yanchor="bottom")],
    )
    worst, line = min(((cell, line) for line in lines for cell in line), key=lambda pair: pair[0].numbers[EFFICIENCY])
    doubt = " (in doubt)" if _is_unclaimed(worst, line) else ""
    return View(
        at=at,
        figure=drawing,
        summary=f"{_over(lines, counts)}; the lowest is {one_line(worst.name)} on {worst.where} with {_share(worst)} of ideal"
        f"{doubt}.",
        columns=("row", *(f"on {count}" for count in counts)),
        rows=tuple(_row(line, counts, [_share(cell) for cell in line]) for line in lines),
    )


def _absolute_view(at: tuple[str, ...], lines: Sequence[Line]) -> View:
    lines = [_as_scaled(line) for line in lines]
    cells = [cell for line in lines for cell in line]
    counts = gpu_counts(cells)
    ends = [end for cell in cells for end in (_ideal(cell), _speed(cell), *_ends(cell.intervals.get(SPEED)))]
    drawing = figure(
        [*_ideal_lines(lines), *(_absolute_line(place, line) for place, line in enumerate(lines))],
        height=HEIGHT_PX,
        x_title=noun(cells),
        y_title=for_plotly(metric(SPEED).unit or metric(SPEED).label),
        legend=True,
        xaxis=_gpu_axis(counts),
        yaxis={
            **{"type": "log", "tickformat": "~s", "tickvals": round_ticks(min(ends) * 0.9, max(ends) * 1.1)},
            "range": [rounded(log10(min(ends) * 0.9)), rounded(log10(max(ends) * 1.1))],
        },
    )
    best = max(cells, key=_speed)
    doubt = " (in doubt)" if best.in_doubt else ""
    return View(
        at=at,
        figure=drawing,
        summary=f"{_over(lines, counts)}; the highest is {one_line(best.name)} on {best.where} with {_words(best)}{doubt}.",
        columns=("row", *(f"on {count}" for count in counts)),
        rows=tuple(_row(line, counts, [_words(cell) for cell in line]) for line in lines),
    )


def _over(lines: Sequence[Line], counts: Sequence[int]) -> str:
    return f"{counted(len(lines), 'row')} over {', '.join(map(str, counts))} {noun([cell for line in lines for cell in line])}"


def _row(line: Line, counts: Sequence[int], words: Sequence[str]) -> tuple[str, ...]:
    by_count = {cell.gpus: word for cell, word in zip(line, words, strict=True)}
    return (one_line(line[0].name), *(by_count.get(count, "-") for count in counts))


def _gpu_axis(counts: Sequence[int]) -> dict[str, Any]:
    return {"type": "log", "tickvals": counts, "ticktext": [str(count) for count in counts], "showgrid": False}


def _offsets(lines: int, counts: Sequence[int]) -> list[float]:
    """Return the factor of each line's GPU counts that moves its points a little to the side on the logarithmic axis."""
    reach = max(counts) / min(counts)
    return [reach ** (_APART * (place - (lines - 1) / 2)) for place in range(lines)]


def _share_interval(cell: Cell) -> Interval | None:
    return cell.scaling.interval if cell.scaling else None


def _ends(interval: Interval | None) -> tuple[float, ...]:
    return (interval.low, interval.high) if interval else ()


def _share(cell: Cell) -> str:
    """Return the share of ideal as the findings say it, or the table's number where they claim nothing."""
    return efficiency(cell.scaling) if cell.scaling else shown(EFFICIENCY, cell.numbers[EFFICIENCY])


def _is_unclaimed(cell: Cell, line: Line) -> bool:
    """Return whether the cell's scaling is in doubt, by its own speed or by that of the smallest count."""
    return cell.in_doubt or (cell.scaling is None and cell.gpus > line[0].gpus)


def _as_scaled(line: Line) -> Line:
    """Return the cells of a line with the speeds that its shares compare, which may be those without padding."""
    share_of = [aggregate.Cell(facts={}, arguments={}, numbers=cell.numbers) for cell in line]
    if aggregate.scaled_speed(*share_of) == PER_GPU or any(REAL not in cell.numbers for cell in line):
        return line
    return [
        replace(
            cell,
            numbers={**cell.numbers, SPEED: cell.numbers[REAL]},
            intervals={name: one for name, one in cell.intervals.items() if name != SPEED}
            | ({SPEED: cell.intervals[REAL]} if REAL in cell.intervals else {}),
        )
        for cell in line
    ]


def _speed(cell: Cell) -> float:
    return cell.numbers.get(SPEED) or cell.numbers[PER_GPU] * cell.gpus


def _ideal(cell: Cell) -> float:
    """Return the speed that the cell would have if it scaled ideally from the smallest GPU count."""
    return _speed(cell) / cell.numbers[EFFICIENCY]


def _words(cell: Cell) -> str:
    interval = cell.intervals.get(SPEED)
    ends = f" ({shown(SPEED, interval.low)} to {shown(SPEED, interval.high)})" if interval else ""
    return f"{shown(SPEED, _speed(cell))} tokens/s{ends}"


def _share_line(place: int, line: Line, offset: float) -> Trace:
    values = [cell.numbers[EFFICIENCY] for cell in line]
    hover = [[cell.name, f"{cell.where}: {_share(cell)} of ideal", *cell.doubts] for cell in line]
    points = [(cell.gpus * offset, value) for cell, value in zip(line, values, strict=True)]
    return _line(place, line, points, [_share_interval(cell) for cell in line], hover)


def _absolute_line(place: int, line: Line) -> Trace:
    hover = [[cell.name, f"{cell.where}: {_words(cell)}", f"{_share(cell)} of ideal", *cell.doubts] for cell in line]
    points = [(cell.gpus, _speed(cell)) for cell in line]
    return _line(place, line, points, [cell.intervals.get(SPEED) for cell in line], hover)


def _line(
    place: int,
    line: Line,
    points: Sequence[tuple[float, float]],
    intervals: Sequence[Interval | None],
    hover: Sequence[Sequence[str]],
) -> Trace:
    colour = colours.colour(line[0].place)
    hollow = [_is_unclaimed(cell, line) for cell in line]
    style = marker(place, size=9, color=colour)
    style["symbol"] = [f"{style['symbol']}{'-open' if doubt else ''}" for doubt in hollow]
    whiskers = error_bars([y for _, y in points], intervals, color=colour, thickness=1.5, width=5)
    return scatter(
        "lines+markers",
        line[0].name,
        points,
        line={"color": colour, "dash": colours.dash(place), "width": 2},
        marker=style,
        hovertext=[*map(lines_for_plotly, hover)],
        hoverinfo="text",
        **({"error_y": whiskers} if any(intervals) else {}),
    )


def _ideal_lines(lines: Sequence[Line]) -> Iterator[Trace]:
    """Yield the ideal speed of each line, with one entry in the legend for all."""
    for place, line in enumerate(lines):
        style = thin(colours.INK, "dash") | {"width": 1}
        points = [(cell.gpus, _ideal(cell)) for cell in line]
        yield scatter(
            "lines", "ideal", points, line=style, hoverinfo="skip", legendgroup="ideal", showlegend=place == 0
        )
