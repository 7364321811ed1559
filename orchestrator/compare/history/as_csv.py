"""Write a history as two CSV files: a row for each campaign, experiment and metric; a row for each step. Base units, full
precision."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.compare.history import wording
from orchestrator.compare.history.history import History, Series, Step
from orchestrator.measure.metrics import metric
from orchestrator.report.tables import as_csv
from orchestrator.results.table.rows import Value

POINTS = (
    *("campaign", "began_at", "experiment", "id", "metric", "unit"),
    *("value", "low", "high", "runs", "level", "changes"),
)
STEPS = (
    *("campaign", "began_at", "experiment", "id", "metric", "unit", "kind"),
    *("change", "before", "after", "campaigns_before", "changes"),
)


def points(history: History) -> str:
    """Return the points. `level` is the fitted level. `changes` lists differences from the campaign before. The experiment's key
    follows."""
    keys = dict.fromkeys(name for one in history.series for name in one.key if name not in POINTS)
    rows = [row for one in history.series for row in _points(history, one)]
    return as_csv.rows_text(rows, (*POINTS, *keys))


def steps(history: History) -> str:
    """Return the steps, newest first. `change` is new ÷ old − 1; `campaigns_before` is the number of campaigns behind the old
    level."""
    return as_csv.rows_text([_step(history, series, step) for series, step in wording.newest_first(history)], STEPS)


def _points(history: History, series: Series) -> list[Mapping[str, Value]]:
    return [
        {
            **series.key,
            **_what(series),
            "campaign": history.campaigns[point.campaign].name,
            "began_at": _moment(point.began_at),
            "value": point.value,
            "low": point.interval.low if point.interval else None,
            "high": point.interval.high if point.interval else None,
            "runs": point.runs,
            "level": point.level,
            "changes": wording.changes_text(point.changes) or None,
        }
        for point in series.points
    ]


def _step(history: History, series: Series, step: Step) -> Mapping[str, Value]:
    point = series.points[step.at]
    return {
        **_what(series),
        "campaign": history.campaigns[point.campaign].name,
        "began_at": _moment(point.began_at),
        "kind": step.kind.value,
        "change": step.change,
        "before": step.before,
        "after": step.after,
        "campaigns_before": step.at - step.since,
        "changes": wording.changes_text(point.changes) or None,
    }


def _what(series: Series) -> dict[str, Value]:
    return {"experiment": series.label, "id": series.id, "metric": series.metric, "unit": metric(series.metric).unit}


def _moment(seconds: float | None) -> str | None:
    moment = wording.moment(seconds)
    return moment.isoformat(timespec="seconds") if moment else None
