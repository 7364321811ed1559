"""The chart of the races of `tunebench tune`: who was dropped, and how the others compare with the leader.

`campaign/race/as_json.py` describes the file that is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from orchestrator.files.printable_text import counted
from orchestrator.files.redaction import redact
from orchestrator.measure.intervals import Interval
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Trace, View, error_bars, in_stretches, marker, scatter
from orchestrator.report.page.charts.row_axis import ROWS, row_figure, texts
from orchestrator.report.page.texts import for_plotly, one_line
from orchestrator.results.folder import RACE_FILE, read_ours

_MOST_ROWS = 200
# The axis has room for the words to the right of the dots.
_ROOM, _NARROW_ROOM = 0.75, 1.6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """An experiment of a race. `speed` and its interval are relative to the leader's speed."""

    name: str
    runs: int
    speed: float | None
    interval: Interval | None
    is_dropped: bool
    became: str

    @property
    def words(self) -> str:
        return f"{counted(self.runs, 'run')}, {self.became}"


def races(roots: Iterable[Path]) -> Chart:
    """Return the chart of the races in these results folders. It has no views if there was no race."""
    views = []
    for root in roots:
        document = read_ours(root / RACE_FILE) or {}
        for race in filter(_is_object, _list(document.get("races"))):
            rows = [*_rows(race)][:_MOST_ROWS]
            for stretch, drawn in in_stretches(rows, ROWS):
                views += [_view((_words(race.get("name")), stretch), drawn, _words(race.get("words")))] if drawn else []
    reading = (
        "Each row is an experiment of a race (`tunebench tune`): its estimated speed relative to the leader's, and an interval of "
        "two standard errors. Grey experiments were dropped: they got no more runs, for the reason next to them."
    )
    return Chart(id="race", title="The race", reading=reading, facets=("Race", "Rows"), views=tuple(views))


def _rows(race: Mapping[str, Any]) -> Iterator[_Row]:
    for one in filter(_is_object, _list(race.get("experiments"))):
        speed, low, high = (_number(one.get(name)) for name in ("speed", "low", "high"))
        has_interval = low is not None and high is not None and low < high
        runs = one.get("runs")
        yield _Row(
            name=_words(one.get("name")) or "-",
            runs=runs if isinstance(runs, int) else 0,
            speed=speed,
            interval=Interval(low=low, high=high) if has_interval and low is not None and high is not None else None,
            is_dropped=one.get("is_dropped") is True,
            became=_words(one.get("became")),
        )


def _view(at: tuple[str, str], rows: Sequence[_Row], words: str) -> View:
    known = [row.speed for row in rows if row.speed is not None]
    left, right = min([*known, 1.0]), max([*known, 1.0])
    width = max(right - left, 0.05)
    ends = [((row.interval.high if row.interval else row.speed or left), place) for place, row in enumerate(rows)]
    figure = row_figure(
        [row.name for row in rows],
        [
            *_dots(rows),
            texts([for_plotly(row.words, width=60) for row in rows], [(x + width * 0.02, y) for x, y in ends]),
        ],
        x_title="speed relative to the leader",
        x_range=(left - width * 0.08, right + width * _ROOM),
        narrow_range=(left - width * 0.08, right + width * _NARROW_ROOM),
        legend=len({row.is_dropped for row in rows}) > 1,
        xaxis={"tickformat": ".0%"},
    )
    figure["layout"]["yaxis"]["showgrid"] = True
    table = [
        (one_line(row.name), str(row.runs), "-" if row.speed is None else f"{row.speed:.1%}", row.became)
        for row in rows
    ]
    columns = ("experiment", "runs", "of the leader", "what became of it")
    return View(at=at, figure=figure, summary=f"{at[0]}: {words}.", columns=columns, rows=tuple(table))


def _dots(rows: Sequence[_Row]) -> Iterator[Trace]:
    for is_dropped, name in ((False, "in the race"), (True, "dropped")):
        drawn = [
            (row.speed, at, row)
            for at, row in enumerate(rows)
            if row.speed is not None and row.is_dropped is is_dropped
        ]
        if not drawn:
            continue
        colour = {"color": colours.MUTED} if is_dropped else {}
        yield scatter(
            "markers",
            name,
            [(speed, at) for speed, at, _ in drawn],
            marker=marker(1 if is_dropped else 0, size=11, **colour),
            error_x=error_bars([speed for speed, _, _ in drawn], [row.interval for _, _, row in drawn], thickness=1.5),
            hovertext=[for_plotly(f"{row.name}: {speed:.1%} of the leader, {row.words}") for speed, _, row in drawn],
            hoverinfo="text",
        )


def _words(value: object) -> str:
    return one_line(redact(value), width=300) if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (
        float(value) if is_number and isinstance(value, (int, float)) and 0 < value < 1e6 and isfinite(value) else None
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
