"""The speed-ups of many models at once: a row for each framework configuration, a column for each model or batch. Pure.

In all charts, up to MOST_SIDE_BY_SIDE models are drawn side by side. The map is drawn only for more models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from statistics import fmean

from orchestrator.files.printable_text import counted
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import LABELS, Chart, Figure, Trace, View, figure, in_stretches
from orchestrator.report.page.charts.chart_data import ALL, Cell, Key, by_panel, gpu_counts, noun, of_gpus
from orchestrator.report.page.charts.row_axis import FRAME_PX, ROW_PX, ROWS, narrow_names, row_axis
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded

# charts.js draws at most as many panels side by side.
MOST_SIDE_BY_SIDE = 6
COLUMNS = 16
# The least speed-up, or slow-down, that has the full colour. Without it, noise would be as colourful as a gain.
_FULL_COLOUR = 1.25
_LONGEST_NAME, _LETTER_PX = 24, 5
# Fewer columns than these have room for two digits after the point on a phone.
_FEW_COLUMNS = 10

# A cell's place in a map: its row and its column.
Place = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Map:
    """The cells of one map, and the keys of the experiments that others are compared with."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells: Mapping[Place, Cell]
    bases: frozenset[Key]

    def speedup(self, place: Place) -> float | None:
        """Return the speed-up at a place: 1 for the reference, None if nothing is claimed."""
        cell = self.cells.get(place)
        if cell is None or cell.in_doubt:
            return None
        return 1.0 if cell.speedup is None and cell.key in self.bases and cell.claimed else cell.speedup

    def why_not(self, place: Place) -> str:
        """Return the reason why nothing is claimed at a place."""
        cell = self.cells.get(place)
        if cell is None:
            return "not run"
        if cell.ended_badly:
            return f"{cell.status}: {cell.kind}" if cell.kind else cell.status
        if cell.in_doubt:
            return ", ".join(cell.doubts)
        return "its baseline is in doubt" if cell.base and not cell.claimed else "nothing to compare with"

    def words(self, place: Place) -> tuple[str, str, str]:
        """Return the speed-up, its interval, and a remark."""
        cell, speedup = self.cells.get(place), self.speedup(place)
        if cell is None or speedup is None:
            return "-", "-", self.why_not(place)
        interval = cell.speedup_interval
        ends = f"{interval.low:.2f} to {interval.high:.2f}" if interval else "-"
        unclear = "no clear difference" if interval and interval.low <= 1 <= interval.high else ""
        return f"{speedup:.2f}×", ends, unclear if cell.speedup is not None else "the reference"


def speedups(cells: Sequence[Cell], facet: str) -> Chart:
    """Return the chart of speed-ups, with a map for each GPU count. It has no views if the models fit side by side."""
    panels = by_panel(cells)
    views: list[View] = []
    if len(panels) > MOST_SIDE_BY_SIDE and any(cell.speedup is not None for cell in cells):
        batches = _batches(cells)
        for batch in batches or [ALL]:
            some = [cell for cell in cells if batch in (ALL, cell.batch)]
            views += _views((ALL, batch), some, cells, batches, by_batch=False)
        for panel, part in panels.items() if batches else ():
            views += _views((panel, ALL), part, cells, batches, by_batch=True)
    reading = (
        "Speed relative to the baseline with otherwise equal settings: green is faster, purple is slower. In a grey cell nothing "
        "is claimed: ✕ failed, ⚠ in doubt, – not run or nothing to compare with. Hover over a cell for its interval or the reason."
    )
    facets = (facet, "Batch", noun(cells), "Columns", "Rows")
    return Chart(id="speedups", title="Speed-up of all models", reading=reading, facets=facets, views=tuple(views))


def _batches(cells: Sequence[Cell]) -> list[str]:
    """Return the batches, if the batch is an axis: if any row of a model has several at one GPU count."""
    of_row: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for cell in cells:
        of_row[cell.panel, _row(cell, batches=True), cell.gpus].add(cell.batch)
    if all(len(batches) < 2 for batches in of_row.values()):
        return []
    return sorted({cell.batch for cell in cells}, key=lambda batch: (len(batch), batch))


def _row(cell: Cell, *, batches: bool) -> str:
    """Return the name of a cell's row. If there are batches to choose from, leave out the batch."""
    parts = [part for part in cell.name.split(" · ") if not batches or part != cell.batch]
    return " · ".join(parts) or cell.framework


def _views(
    at: tuple[str, str], cells: Sequence[Cell], known: Sequence[Cell], batches: Sequence[str], *, by_batch: bool
) -> Iterator[View]:
    bases = frozenset(cell.base for cell in known if cell.base)
    names = _short([*dict.fromkeys(cell.panel for cell in cells)])
    for count in gpu_counts(cells):
        part = of_gpus(cells, count)
        columns = {cell.key: cell.batch if by_batch else names[cell.panel] for cell in part}
        placed = {(_row(cell, batches=bool(batches)), columns[cell.key]): cell for cell in part}
        in_order = [*dict.fromkeys(batches if by_batch else names.values())]
        whole = _Map(rows=[*dict.fromkeys(row for row, _ in placed)], columns=in_order, cells=placed, bases=bases)
        for columns_word, some in in_stretches([name for name in in_order if name in {*columns.values()}], COLUMNS):
            for rows_word, rows in in_stretches(_best_first(whole), ROWS):
                drawn = _Map(rows=rows, columns=some, cells=placed, bases=bases)
                yield _view((*at, str(count), columns_word, rows_word), drawn, part[0].where)


def _short(names: Sequence[str]) -> dict[str, str]:
    """Return short names of models: without the owner, if the names stay different."""
    short = {name: name.rpartition("/")[2].removeprefix("config:") for name in names}
    return short if len({*short.values()}) == len(names) else {name: name for name in names}


def _best_first(whole: _Map) -> list[str]:
    """Return the rows, the highest mean speed-up first, and rows without a speed-up last."""

    def mean(row: str) -> float:
        values = [log2(value) for column in whole.columns if (value := whole.speedup((row, column)))]
        return fmean(values) if values else float("-inf")

    return sorted(whole.rows, key=lambda row: (-mean(row), row))


def _view(at: tuple[str, ...], drawn: _Map, where: str) -> View:
    places = [(row, column) for row in drawn.rows for column in drawn.columns]
    claimed = {place: value for place in places if (value := drawn.speedup(place))}
    best = max(claimed, key=lambda place: claimed[place], default=None)
    sentence = f"{counted(len(drawn.rows), 'row')} × {counted(len(drawn.columns), 'column')} on {where}"
    if best:
        speedup, ends, _ = drawn.words(best)
        interval = f" ({ends})" if ends != "-" else ""
        sentence += f"; the highest is {one_line(best[0])} on {one_line(best[1])} with {speedup}{interval}"
    if without := len(places) - len(claimed):
        sentence += f"; {counted(without, 'cell')} without a claim"
    return View(
        at=at,
        figure=_figure(drawn, claimed),
        summary=f"{sentence}.",
        columns=("row", "column", "speed-up", "95 % interval", "remarks"),
        rows=tuple((one_line(row), one_line(column), *drawn.words((row, column))) for row, column in places),
    )


def _figure(drawn: _Map, claimed: Mapping[Place, float]) -> Figure:
    labels = [for_plotly(name, width=_LONGEST_NAME) for name in drawn.columns]
    longest, digits = max(map(len, labels)), 2 if len(labels) < _FEW_COLUMNS else 1
    reach = max(log2(_FULL_COLOUR), *(abs(log2(value)) for value in claimed.values())) if claimed else 1.0
    return figure(
        [_unclaimed(drawn, claimed), _claimed(drawn, claimed, reach)],
        narrow={
            "ticktext": narrow_names(drawn.rows),
            "words": _grid(drawn, {place: f"{value:.{digits}f}" for place, value in claimed.items()}),
        },
        height=len(drawn.rows) * ROW_PX + FRAME_PX + longest * _LETTER_PX,
        x_title="",
        xaxis={
            **{"side": "top", "range": [-0.5, len(labels) - 0.5], "tickvals": [*range(len(labels))]},
            **{"ticktext": labels, "tickangle": 40, "showgrid": False, "zeroline": False, "fixedrange": True},
        },
        yaxis=row_axis(drawn.rows),
    )


def _grid(drawn: _Map, values: Mapping[Place, object], *, missing: str | None = "") -> list[list[object]]:
    """Return the values row by row."""
    return [[values.get((row, column), missing) for column in drawn.columns] for row in drawn.rows]


def _claimed(drawn: _Map, claimed: Mapping[Place, float], reach: float) -> Trace:
    words = {place: drawn.words(place) for place in claimed}
    hover = {
        (row, column): lines_for_plotly(
            [
                *(row, column, f"{value} the baseline" if remark != "the reference" else remark),
                *([f"95 % interval {ends}"] if ends != "-" else []),
                *([remark] if remark == "no clear difference" else []),
                drawn.cells[row, column].id,
            ]
        )
        for (row, column), (value, ends, remark) in words.items()
    }
    return _heat_map(
        _grid(drawn, {place: rounded(log2(value)) for place, value in claimed.items()}, missing=None),
        _grid(drawn, {place: value for place, (value, _, _) in words.items()}),
        _grid(drawn, hover),
        meta=LABELS,
        zmin=-reach,
        zmax=reach,
        colorscale=[[0, "@slower"], [0.5, colours.PAPER], [1, "@faster"]],
    )


def _unclaimed(drawn: _Map, claimed: Mapping[Place, float]) -> Trace:
    """Return the grey cells, each with a sign and its reason."""
    signs: dict[Place, str] = {}
    for place in ((row, column) for row in drawn.rows for column in drawn.columns if (row, column) not in claimed):
        cell = drawn.cells.get(place)
        signs[place] = "–" if cell is None else "✕" if cell.ended_badly else "⚠" if cell.doubts else "–"
    hover = {place: lines_for_plotly([*place, f"nothing is claimed: {drawn.why_not(place)}"]) for place in signs}
    return _heat_map(
        _grid(drawn, dict.fromkeys(signs, 0), missing=None),
        _grid(drawn, signs),
        _grid(drawn, hover),
        zmin=0,
        zmax=1,
        colorscale=[[0, "@line"], [1, "@line"]],
    )


def _heat_map(z: object, text: object, hover: object, **more: object) -> Trace:
    return {
        **{"type": "heatmap", "name": "", "z": z, "text": text, "texttemplate": "%{text}", "hovertext": hover},
        **{"hoverinfo": "text", "hoverongaps": False, "showscale": False, "showlegend": False, "xgap": 2, "ygap": 2},
        **{"textfont": {"color": colours.INK, "size": 12}},
        **more,
    }
