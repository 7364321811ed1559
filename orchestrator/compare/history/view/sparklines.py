"""Make the grid of the history page: a small curve for each experiment and metric, those with the latest change first. Pure.

A curve shows at least ±SHOWN around the median, so that the noise of a series without a step looks as small as it is. Each step has
a mark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from statistics import median
from typing import Any

from orchestrator.compare.history.history import History, Kind, Series
from orchestrator.compare.history.view import wording
from orchestrator.compare.history.view.events import latest_first
from orchestrator.report.page.texts import one_line

MOST_TILES = 48
SHOWN = 0.05
WIDTH, HEIGHT, MARGIN = 180, 40, 4
_CLASSES = {Kind.BETTER: "good", Kind.WORSE: "bad", Kind.CHANGED: "changed"}


def tiles(history: History) -> tuple[list[dict[str, Any]], int]:
    """Return the tiles of the grid, and the number of series that are left out."""
    headings = wording.labels(history)
    ordered = [series for series in latest_first(history) if len(series.points) > 1]
    return [_tile(series, history, headings) for series in ordered[:MOST_TILES]], max(0, len(ordered) - MOST_TILES)


def _tile(series: Series, history: History, headings: Mapping[str, str]) -> dict[str, Any]:
    heading = one_line(headings[series.metric])
    places = _places(series)
    last = max((*series.steps, *series.drifts), key=lambda step: step.at, default=None)
    began_at = None if last is None else series.points[last.at].began_at
    return {
        "name": one_line(series.label),
        "metric": heading,
        "value": wording.value(series, series.points[-1]),
        "last_in": one_line(wording.last_in(series, history)),
        "change": "" if last is None else wording.percent(last.change),
        "when": wording.date(began_at),
        "style": "" if last is None else _CLASSES[last.kind],
        "line": " ".join(f"{x:.1f},{y:.1f}" for x, y in places),
        "marks": [{"x": f"{places[step.at][0]:.1f}", "style": _CLASSES[step.kind]} for step in series.steps],
        "at": view_of(series, headings),
    }


def view_of(series: Series, headings: Mapping[str, str]) -> str:
    """Return the choices of the chart that show a series, as JSON for a button."""
    return json.dumps([one_line(series.label), one_line(headings[series.metric])])


def _places(series: Series) -> list[tuple[float, float]]:
    """Return the places of the points in a drawing of WIDTH × HEIGHT, from left to right; a high value is on top."""
    values = [point.value for point in series.points]
    middle = median(values)
    reach = max(max(abs(value - middle) for value in values), SHOWN * abs(middle)) or 1.0
    step = (WIDTH - 2 * MARGIN) / (len(values) - 1)
    half = HEIGHT / 2 - MARGIN
    return [
        (MARGIN + number * step, HEIGHT / 2 - half * (value - middle) / reach) for number, value in enumerate(values)
    ]
