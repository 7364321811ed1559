"""The shared parts of charts with one row per experiment: the axis of names; bars; texts; the rows of each drawing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import LABELS, Figure, Trace, figure, in_stretches, scatter
from orchestrator.report.page.charts.chart_data import ALL, Cell, by_panel, gpu_counts, of_gpus
from orchestrator.report.page.texts import for_plotly, rounded

NBSP = "\N{NO-BREAK SPACE}"

# The largest number of rows in one drawing. More rows are divided into stretches.
ROWS = 40

FRAME_PX, ROW_PX = 66, 32
_NAME, _NARROW_NAME, _NARROW_HEAD = 46, 20, 12


def row_axis(names: Sequence[str]) -> dict[str, Any]:
    """Return the axis of rows. The first row is on top. Each row has its name."""
    return {
        "range": [len(names) - 0.5, -0.5],
        "tickvals": list(range(len(names))),
        "ticktext": [for_plotly(name, width=_NAME) + " " for name in names],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "ticklabeloverflow": "allow",  # the margin has room for each name; without this, Plotly measures each name several times
    }


def narrow_names(names: Sequence[str]) -> list[str]:
    """Return short names for phones: the beginning of the framework, and the values of the arguments."""
    return [for_plotly(_short(name), width=_NARROW_NAME) + " " for name in names]


def _short(name: str) -> str:
    framework, *rest = name.split(" · ")
    head = framework if len(framework) <= _NARROW_HEAD else f"{framework[: _NARROW_HEAD - 1]}…"
    return " · ".join([head, *(part if part[:1].isdigit() else part.rpartition(" ")[2] for part in rest)])


def row_bars(name: str, values: Mapping[int, float], hover: Sequence[str], **more: Any) -> Trace:
    """Return a trace of horizontal bars. `values` maps the place of a row to its value."""
    return {
        **{"type": "bar", "orientation": "h", "name": for_plotly(name), "hovertext": hover, "hoverinfo": "text"},
        **{"x": [*map(rounded, values.values())], "y": [*values]},
        **more,
    }


def texts(words: Sequence[str], points: Sequence[tuple[float, float]]) -> Trace:
    """Return a trace of texts, each to the right of its point."""
    return words_at([NBSP + word for word in words], points, at="middle right", meta=LABELS)


def words_at(
    words: Sequence[str], points: Sequence[tuple[float, float]], *, at: str | Sequence[str], meta: str
) -> Trace:
    """Return a trace of texts next to their points."""
    return scatter(
        "text",
        "",
        points,
        meta=meta,
        text=words,
        textposition=at,
        textfont={"color": colours.INK, "size": 12},
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )


def row_figure(
    names: Sequence[str],
    traces: Sequence[Trace],
    *,
    x_range: tuple[float, float],
    narrow_range: tuple[float, float],
    narrow_words: Sequence[str] | None = None,
    row_px: float = ROW_PX,
    xaxis: Mapping[str, Any] | None = None,
    **more: Any,
) -> Figure:
    """Return a figure with a row for each name. `more` is passed to `layout`.

    The narrow range is for phones. `narrow_words` are shorter texts for the trace of `texts`.
    """
    words = {"words": [NBSP + word for word in narrow_words]} if narrow_words else {}
    return figure(
        traces,
        narrow={"ticktext": narrow_names(names), "range": [*map(rounded, narrow_range)], **words},
        height=round(len(names) * row_px) + FRAME_PX,
        xaxis={"range": [*map(rounded, x_range)], **(xaxis or {})},
        yaxis=row_axis(names),
        **more,
    )


def rows_of(cells: Sequence[Cell], order: Callable[[Cell], Any]) -> list[tuple[tuple[str, ...], list[Cell]]]:
    """Return the stretches of a chart, as pairs of a place and its cells.

    A place is the panel, the GPU count, and the name of the stretch. If there is room, all GPU counts are together; else each
    count has its own stretches.
    """
    stretches: list[tuple[tuple[str, ...], list[Cell]]] = []
    for panel, part in by_panel(cells).items():
        counts = gpu_counts(part)
        choices = [(ALL, part)] if len(part) <= ROWS else [(str(count), of_gpus(part, count)) for count in counts]
        for choice, some in choices:
            rows = sorted(some, key=order)
            stretches += [((panel, choice, stretch), list(few)) for stretch, few in in_stretches(rows, ROWS)]
    return stretches


def row_names(rows: Sequence[Cell]) -> list[str]:
    """Return the names of rows, with their GPU counts if these differ."""
    together = len(gpu_counts(rows)) > 1
    return [f"{cell.name} · {cell.where}" if together else cell.name for cell in rows]
