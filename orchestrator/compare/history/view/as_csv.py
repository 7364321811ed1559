"""Write a history as two CSV files: one row per campaign, experiment and metric, and one row per step, drift or suspicious step.

Numbers are in base units at full precision.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.compare.history.history import History, Point, Series, Step
from orchestrator.compare.history.view import wording
from orchestrator.measure.metrics import metric
from orchestrator.report.tables import as_csv
from orchestrator.results.table.rows import Value

POINTS = (
    *("campaign", "began_at", "experiment", "id", "metric", "unit"),
    *("value", "low", "high", "runs", "left_out", "doubt", "level", "changes"),
)
STEPS = (
    *("campaign", "began_at", "experiment", "id", "metric", "unit", "finding", "kind"),
    *("change", "before", "after", "campaigns_before", "expected_false_steps", "changes"),
)


def points(history: History) -> str:
    """Return the CSV file of the points.

    `level` is the fitted level. `left_out` says that the first run does not count. `doubt` says how runs were disturbed. `changes`
    lists the differences from the previous campaign. After these columns, there is a column for each name of an experiment's key.
    """
    keys = dict.fromkeys(name for series in wording.every_series(history) for name in series.key if name not in POINTS)
    rows = [_point(history, series, point) for series in wording.every_series(history) for point in series.points]
    return as_csv.rows_text(rows, (*POINTS, *keys))


def steps(history: History) -> str:
    """Return the CSV file of the steps, newest first, then of the drifts, then of the suspicious steps.

    `change` is new ÷ old − 1. `campaigns_before` is the number of campaigns on the old level. A drift ends at its campaign, and
    `campaigns_before` counts its other campaigns. `expected_false_steps` is the number for the whole history.
    """
    rows = [
        _step(history, series, step, finding)
        for sort, finding in wording.SORTS.items()
        for series, step in wording.newest_first(history, sort)
    ]
    return as_csv.rows_text(rows, STEPS)


def _point(history: History, series: Series, point: Point) -> Mapping[str, Value]:
    return {
        **series.key,
        **_shared(history, series, point),
        "value": point.value,
        "low": point.interval.low if point.interval else None,
        "high": point.interval.high if point.interval else None,
        "runs": point.runs,
        "left_out": "first run" if series.without_first else None,
        "doubt": ", ".join(point.doubts) or None,
        "level": point.level,
    }


def _step(history: History, series: Series, step: Step, finding: str) -> Mapping[str, Value]:
    return {
        **_shared(history, series, series.points[step.at]),
        "finding": finding,
        "kind": step.kind.value,
        "change": step.change,
        "before": step.before,
        "after": step.after,
        "campaigns_before": step.at - step.since,
        "expected_false_steps": history.expected_false_steps,
    }


def _shared(history: History, series: Series, point: Point) -> dict[str, Value]:
    """Return the cells that both files have. The id is that of the point's campaign, because a changed argument changes it."""
    began_at = wording.moment(point.began_at)
    return {
        "campaign": history.campaigns[point.campaign].name,
        "began_at": began_at.isoformat(timespec="seconds") if began_at else None,
        "experiment": series.label,
        "id": point.id,
        "metric": series.metric,
        "unit": metric(series.metric).unit,
        "changes": wording.changes_text(point.changes) or None,
    }
