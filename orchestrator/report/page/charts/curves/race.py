"""The chart of the races of `tunebench tune`: who was dropped, and how the others compare with the leader.

`campaign/race/as_json.py` describes the file that is read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import Any

from orchestrator.files.redaction import redact
from orchestrator.measure.intervals import Interval
from orchestrator.measure.metrics import Show
from orchestrator.measure.metrics.shown import text
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Trace, View, error_bars, in_stretches, marker, scatter
from orchestrator.report.page.charts.row_axis import ROWS, row_figure, texts
from orchestrator.report.page.texts import for_plotly, one_line
from orchestrator.results import folder

_MOST_ROWS, _LONGEST_COUNT = 200, 20
# The axis has room for the words to the right of the dots.
_ROOM, _NARROW_ROOM = 0.75, 1.6
# The number that is compared, for each objective of `tunebench tune`.
_COMPARED = {"cost": "tokens for the same money", "energy": "tokens for the same energy"}
_IN_RACE, _DROPPED, _OVER_LIMIT = "in the race", "dropped", "over a limit"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """An experiment of a race. `speed` and its interval are relative to the leader's speed."""

    name: str
    runs: str
    speed: float | None
    interval: Interval | None
    state: str
    became: str

    @property
    def words(self) -> str:
        if self.runs in ("", "0"):
            return self.became
        return f"{self.runs} {'run' if self.runs == '1' else 'runs'}, {self.became}"


def races(roots: Iterable[Path]) -> Chart:
    """Return the chart of the races in these results folders. It has no views if there was no race."""
    views: list[View] = []
    names = Counter[str]()
    for root in roots:
        for race in folder.races(root):
            compared, limits = _COMPARED.get(str(race.get("objective")), "speed"), _limits(race.get("limits"))
            rows, name = [*_rows(race)][:_MOST_ROWS], _words(race.get("name"))
            names[name] += 1
            shown = name if names[name] == 1 else f"{name} ({names[name]})"
            for stretch, drawn in in_stretches(rows, ROWS):
                at = shown, stretch
                summary = f"{shown}: {_words(race.get('words'))}.{limits}"
                views += [_view(at, drawn, summary, compared)] if drawn else []
    reading = (
        "Each row is an experiment of a race (`tunebench tune`): its estimated speed relative to the leader's, and an interval of "
        "two standard errors. Grey experiments were dropped: they got no more runs, for the reason next to them; "
        "the share that they have at most is the end of three standard errors. "
        "If the race had limits, the sentence about it says them; the rest of this page does not know them."
    )
    return Chart(id="race", title="The race", reading=reading, facets=("Race", "Rows"), views=tuple(views))


def _rows(race: Mapping[str, Any]) -> Iterator[_Row]:
    for one in filter(_is_object, _list(race.get("experiments"))):
        speed, low, high = (_number(one.get(name)) for name in ("speed", "low", "high"))
        runs = one.get("runs_shown")  # a file of an older version has only `runs`
        has_interval = low is not None and high is not None and low < high
        yield _Row(
            name=_words(one.get("name")) or "-",
            runs=_words(runs if isinstance(runs, str) else str(one.get("runs") or ""))[:_LONGEST_COUNT],
            speed=speed,
            interval=Interval(low=low, high=high) if has_interval and low is not None and high is not None else None,
            state=_state(one),
            became=_words(one.get("became")),
        )


def _state(one: Mapping[str, Any]) -> str:
    if one.get("is_over_limit") is True:
        return _OVER_LIMIT
    return _DROPPED if one.get("is_dropped") is True else _IN_RACE


def _limits(limits: object) -> str:
    """Return a sentence about the limits of a race, with a blank before it, or nothing if it has none."""
    known = limits if isinstance(limits, dict) else {}
    memory, loss = _number(known.get("memory_bytes"), most=1e18), _number(known.get("loss"))
    words = [f"at most {text(memory, Show.BYTES)} of memory per device"] if memory is not None else []
    words += [f"a loss at most {100 * loss:.3g} % above the lowest"] if loss is not None else []
    return f" Its limits: {' and '.join(words)}." if words else ""


def _view(at: tuple[str, str], rows: Sequence[_Row], summary: str, compared: str) -> View:
    known = [row.speed for row in rows if row.speed is not None]
    left, right = min([*known, *(row.interval.low for row in rows if row.interval), 1.0]), max([*known, 1.0])
    width = max(right - left, 0.05)
    ends = [((row.interval.high if row.interval else row.speed or left), place) for place, row in enumerate(rows)]
    figure = row_figure(
        [row.name.replace(", ", " · ") for row in rows],  # as in the other charts
        [
            *_dots(rows),
            texts([for_plotly(row.words, width=60) for row in rows], [(x + width * 0.02, y) for x, y in ends]),
        ],
        x_title=f"{compared} relative to the leader",
        x_range=(left - width * 0.08, right + width * _ROOM),
        narrow_range=(left - width * 0.08, right + width * _NARROW_ROOM),
        legend=len({row.state for row in rows if row.speed is not None}) > 1,
        xaxis={"tickformat": ".0%", "tickvals": _ticks(left, right)},
    )
    figure["layout"]["yaxis"]["showgrid"] = True
    table = [
        (one_line(row.name), row.runs, "-" if row.speed is None else f"{row.speed:.1%}", row.became) for row in rows
    ]
    columns = ("experiment", "runs", "of the leader", "what became of it")
    return View(at=at, figure=figure, summary=summary, columns=columns, rows=tuple(table))


def _ticks(left: float, right: float) -> list[float]:
    """Return at most five round numbers. The axis has none below the words that are to the right of the dots."""
    steps = (factor * 10.0**power for power in range(-2, 7) for factor in (1, 2, 5))
    step = next(step for step in steps if right - left <= 4 * step)
    return [round(number * step, 9) for number in range(ceil(left / step - 1e-9), floor(right / step + 1e-9) + 1)]


def _dots(rows: Sequence[_Row]) -> Iterator[Trace]:
    for place, state in enumerate((_IN_RACE, _DROPPED, _OVER_LIMIT)):
        drawn = [(row.speed, at, row) for at, row in enumerate(rows) if row.speed is not None and row.state == state]
        if not drawn:
            continue
        colour = {"color": colours.MUTED} if place else {}
        yield scatter(
            "markers",
            state,
            [(speed, at) for speed, at, _ in drawn],
            marker=marker(place, size=11, **colour),
            error_x=error_bars([speed for speed, _, _ in drawn], [row.interval for _, _, row in drawn], thickness=1.5),
            hovertext=[for_plotly(f"{row.name}: {speed:.1%} of the leader, {row.words}") for speed, _, row in drawn],
            hoverinfo="text",
        )


def _words(value: object) -> str:
    return one_line(redact(value), width=300) if isinstance(value, str) else ""


def _number(value: object, *, most: float = 1e6) -> float | None:
    """Return a number that is not negative and below `most`. The file may come from someone else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, (int, float)) and 0 <= value < most else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_object(value: object) -> bool:
    return isinstance(value, dict)
