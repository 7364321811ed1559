"""The chart of a run's ranks. It shows ranks that compute longer or use more memory than the other ranks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import Show
from orchestrator.measure.metrics import shown as forms
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Trace, View, in_stretches, marker, scatter
from orchestrator.report.page.charts.chart_data import Cell, Key
from orchestrator.report.page.charts.row_axis import ROWS, row_figure, texts
from orchestrator.report.page.texts import for_plotly, one_line
from orchestrator.results.table.column_choice import column

if TYPE_CHECKING:
    import pandas as pd

MEASURED = (
    ("compute time per step", "compute_time_s", Show.SECONDS),
    ("peak memory (tensors)", "peak_allocated_bytes", Show.BYTES),
)
MOST_RANKS, MOST_ROWS = 16, 120
_LEAST_REACH, _ROOM = 0.01, 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ranks:
    """The ranks of one experiment: rank → value, from its first run that ended ok."""

    name: str
    values: Mapping[int, float]

    @property
    def mean(self) -> float:
        return sum(self.values.values()) / len(self.values)

    def off(self, rank: int) -> float:
        """Return a rank's difference from the mean of all ranks, as a share of this mean."""
        return self.values[rank] / self.mean - 1

    @property
    def worst(self) -> int:
        return max(self.values, key=lambda rank: (self.off(rank), rank))


def balance(ranks: pd.DataFrame, cells: Sequence[Cell]) -> Chart:
    """Return the chart of each rank's difference from the mean of its run's ranks. The most uneven rows come first."""
    views = []
    for word, name, show in MEASURED:
        rows = sorted(_read(ranks, name, cells), key=lambda row: (-row.off(row.worst), row.name))
        for stretch, drawn in in_stretches(rows[:MOST_ROWS], ROWS):
            views += [_view((word, stretch), drawn, show)] if drawn else []
    reading = (
        "Each rank relative to the mean of its run's ranks. All ranks wait for the slowest rank, and the GPU with the highest use "
        f"limits what fits. At most the {MOST_ROWS} most uneven rows are drawn."
    )
    facets = ("Of what", "Rows")
    return Chart(id="balance", title="Balance between ranks", reading=reading, facets=facets, views=tuple(views))


def _read(frame: pd.DataFrame, of: str, cells: Sequence[Cell]) -> list[_Ranks]:
    """Return the ranks of each experiment with several ranks, from the experiment's first run that ended ok."""
    named = {cell.key: cell.full_name for cell in cells if cell.gpus > 1}
    values: dict[Key, dict[int, float]] = defaultdict(dict)
    of_run: dict[Key, tuple[object, object]] = {}
    names = ("results", "id", "repeat", "attempt", "status", "rank", of)
    lists = [column(frame, name) for name in names]
    for results, experiment, repeat, attempt, status, rank, value in zip(*lists, strict=True):
        key = (None if results is None else str(results), str(experiment))
        if status != "ok" or key not in named or of_run.setdefault(key, (repeat, attempt)) != (repeat, attempt):
            continue
        if isinstance(rank, int) and isinstance(value, (int, float)) and value > 0:
            values[key][rank] = float(value)
    return [_Ranks(name=named[key], values=ranks) for key, ranks in values.items() if len(ranks) > 1]


def _view(at: tuple[str, str], rows: Sequence[_Ranks], show: Show) -> View:
    names = [row.name for row in rows]
    numbers = sorted({rank for row in rows for rank in row.values})
    reach = max(_LEAST_REACH, *(abs(row.off(rank)) for row in rows for rank in row.values))
    traces = [_dots(rank, rows) for rank in numbers] if len(numbers) <= MOST_RANKS else [_dots(None, rows)]
    words = [f"rank {row.worst} {row.off(row.worst):+.2%}" for row in rows]
    ends = [(row.off(row.worst) + reach * 0.03, place) for place, row in enumerate(rows)]
    figure = row_figure(
        names,
        [*traces, texts([*map(for_plotly, words)], ends)],
        x_title="difference from the mean",
        x_range=(-reach * 1.1, reach * _ROOM),
        narrow_range=(-reach * 1.2, reach * 2.6),
        legend=len(traces) > 1,
        xaxis={"tickformat": "+.1%", "zeroline": True, "zerolinecolor": colours.MUTED},
    )
    figure["layout"]["yaxis"]["showgrid"] = True
    table = [
        (one_line(row.name), forms.text(row.mean, show), f"rank {row.worst}", f"{row.off(row.worst):+.2%}")
        for row in rows
    ]
    return View(
        at=at,
        figure=figure,
        summary=f"{counted(len(rows), 'row')}; the most uneven is {one_line(names[0])}: {words[0]}.",
        columns=("row", "mean of the ranks", "highest", "above the mean"),
        rows=tuple(table),
    )


def _dots(rank: int | None, rows: Sequence[_Ranks]) -> Trace:
    """Return the dots of a rank in all rows. If no rank is given, return the dots of all ranks."""
    dots = [(row.off(of), place, of) for place, row in enumerate(rows) for of in row.values if rank in (None, of)]
    return scatter(
        "markers",
        "ranks" if rank is None else f"rank {rank}",
        [(off, place) for off, place, _ in dots],
        marker=marker(rank or 0, size=10, color=colours.MUTED),
        hovertext=[f"rank {of}: {off:+.2%}" for off, _, of in dots],
        hoverinfo="text",
    )
