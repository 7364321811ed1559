"""Make the chart of the history page: a view for each experiment and metric, with its campaigns, levels and steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.compare.history.history import Campaign, History, Kind, Point, Series, Step
from orchestrator.compare.history.view import axis, wording
from orchestrator.compare.history.view.events import events, latest_first
from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import DASH, metric, show
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import Chart, Figure, Trace, View, error_bars, layout, upright
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded

ID = "trend"
MOST_VIEWS = 500
# The most points in all views together. So many points take about 12 MB, and a page should be smaller than 25 MB.
MOST_POINTS = 60_000
# More campaigns than this with a changed environment have no line, because lines would hide the points.
MOST_LINES = 40

# Longer series have smaller points.
MANY = 60

HEIGHT_PX = 420
# The space at the top is for the labels of the steps.
_MARGINS = {"l": 12, "r": 12, "t": 30, "b": 12}

_COLOURS = {Kind.BETTER: "@good", Kind.WORSE: colours.BAD, Kind.CHANGED: "@warn"}
_DASHES = {Kind.BETTER: "dash", Kind.WORSE: "solid", Kind.CHANGED: "dot"}
_CHANGED = {"color": colours.MUTED, "width": 1, "dash": "dot"}


def chart(history: History) -> Chart:
    """Return the chart. Its first view is the series of the newest event."""
    newest = [finding.series for event in events(history)[:1] for finding in event.findings[:1]]
    every = [*newest, *(series for series in latest_first(history) if series not in newest)]
    shown, headings = _that_fit(every), wording.labels(history)
    left_out = len(every) - len(shown)
    note = f"{left_out:,} more series without a step are in history.csv."
    return Chart(
        id=ID,
        title="An experiment over the campaigns",
        reading=(
            "Each point is the mean of a campaign, with its 95 % interval if it has several runs. A hollow point is in doubt, and "
            "so is a value with `?`, because runs were disturbed. A horizontal line is the fitted level; a sloped line is a drift. "
            "An upright line is a step: solid if it is worse, dashed if it is better. At a thin dotted line, a driver, a package "
            "or another fact changed."
        ),
        facets=("Experiment", "Metric"),
        views=tuple(_view(series, history, headings[series.metric]) for series in shown),
        notes=(note,) if left_out else (),
    )


def _that_fit(every: Sequence[Series]) -> list[Series]:
    """Return the series that fit on the page, in their order. Series with steps take precedence."""
    left, fit = MOST_POINTS, set[int]()
    for at in sorted(
        range(len(every)), key=lambda at: not (every[at].steps or every[at].drifts or every[at].suspicious)
    ):
        left -= len(every[at].points)
        if left >= 0 and len(fit) < MOST_VIEWS:
            fit.add(at)
    return [series for at, series in enumerate(every) if at in fit]


def _view(series: Series, history: History, heading: str) -> View:
    campaigns = history.campaigns
    unit = metric(series.metric).unit
    figure: Figure = {
        "data": [*_level_lines(series), _points(series, campaigns)],
        "layout": layout(
            height=HEIGHT_PX,
            margin=_MARGINS,
            x_title=axis.TITLE,
            y_title=for_plotly(f"{heading} ({unit})" if unit else heading, width=60),
            xaxis=axis.of(series, campaigns, width=axis.WIDE_PX),
            shapes=[*_changed_lines(series), *(_step_line(step, series) for step in series.steps)],
            annotations=[_label(step, series) for step in series.steps],
        ),
        "narrow": {"xaxis": axis.of(series, campaigns, width=axis.NARROW_PX)},
    }
    return View(
        at=(one_line(series.label), one_line(heading)),
        figure=figure,
        summary=_summary(series, history),
        columns=("campaign", "began (UTC)", "commit", one_line(heading), "interval", "runs", "changed"),
        rows=tuple(_row(series, point, campaigns) for point in series.points),
    )


def _changed_lines(series: Series) -> list[dict[str, Any]]:
    marked = axis.marked(series)
    return [upright(axis.place(point), _CHANGED) for point in marked] if len(marked) <= MOST_LINES else []


def _step_line(step: Step, series: Series) -> dict[str, Any]:
    line = {"color": _COLOURS[step.kind], "width": 1.5, "dash": _DASHES[step.kind]}
    return upright(axis.place(series.points[step.at]), line)


def _points(series: Series, campaigns: Sequence[Campaign]) -> Trace:
    values, intervals = [point.value for point in series.points], [point.interval for point in series.points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "campaign",
        "x": [axis.place(point) for point in series.points],
        "y": [rounded(value) for value in values],
        "error_y": error_bars(values, intervals, color=colours.MUTED, thickness=1.2, width=3),
        "marker": {
            "color": colours.colour(0),
            "symbol": _symbols(series.points),
            "size": 8 if len(series.points) <= MANY else 6,
        },
        "hovertext": [_hover(series, point, campaigns) for point in series.points],
        "hoverinfo": "text",
    }


def _symbols(points: Sequence[Point]) -> str | list[str]:
    """Return the symbol of the points, or one for each if a point is in doubt: that point is hollow."""
    symbol = colours.symbol(0)
    is_doubted = [bool(point.doubts) for point in points]
    return [f"{symbol}-open" if doubt else symbol for doubt in is_doubted] if any(is_doubted) else symbol


def _hover(series: Series, point: Point, campaigns: Sequence[Campaign]) -> str:
    name, began, commit, value, interval, runs, changed = _row(series, point, campaigns)
    lines = [
        name,
        f"{began} UTC",
        f"commit {commit}",
        f"{value} ({interval}) of {runs}" if point.interval else f"{value} of {runs}",
    ]
    doubt = [f"in doubt: {', '.join(point.doubts)}"] if point.doubts else []
    return lines_for_plotly([*lines, *doubt, *([f"changed: {changed}"] if point.changes else [])])


def _level_lines(series: Series) -> list[Trace]:
    """Return one line for each level, from its first campaign to its last."""
    if series.points[0].level is None:
        return []
    x: list[int | None] = []
    y: list[float | None] = []
    for number, point in enumerate(series.points):
        if number and point.level != series.points[number - 1].level and not _is_in_a_drift(series, number):
            x.append(None)
            y.append(None)
        x.append(axis.place(point))
        y.append(rounded(point.level))
    line = {"color": colours.INK, "width": 1.5}
    return [{"type": "scatter", "mode": "lines", "name": "level", "x": x, "y": y, "line": line, "hoverinfo": "skip"}]


def _is_in_a_drift(series: Series, at: int) -> bool:
    """Return whether a point and the point before it are on one sloped line."""
    return any(drift.since < at <= drift.at for drift in series.drifts)


def _label(step: Step, series: Series) -> dict[str, Any]:
    place = {"x": axis.place(series.points[step.at]), "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    text = for_plotly(wording.percent(step.change))
    return {**place, "text": text, "font": {"color": _COLOURS[step.kind], "size": 12}}


def _row(series: Series, point: Point, campaigns: Sequence[Campaign]) -> tuple[str, ...]:
    name = series.metric
    interval = f"{show(name, point.interval.low)} to {show(name, point.interval.high)}" if point.interval else DASH
    return (
        one_line(campaigns[point.campaign].name),
        wording.day(point.began_at),
        _commit(campaigns[point.campaign]),
        wording.value(series, point),
        interval,
        counted(point.runs, "run"),
        one_line(wording.changes_shown(point.changes), width=400) if point.changes else DASH,
    )


def _commit(campaign: Campaign) -> str:
    return one_line(wording.short_value(wording.COMMIT, campaign.environment.get(wording.COMMIT)))


def _summary(series: Series, history: History) -> str:
    number = ", ".join(filter(None, (f"{len(series.points)} campaigns", wording.last_in(series, history))))
    last = wording.value(series, series.points[-1])
    changes = [
        f"{word}{step.kind.value} ({wording.percent(step.change)})"
        for sort, word in {"steps": "", "drifts": "slow drift, ", "suspicious": "suspicious, "}.items()
        for step in getattr(series, sort)
    ]
    cold = " The first run is left out: it was the slowest in most campaigns." if series.without_first else ""
    return f"{number}; the last has {last}; {', '.join(changes) or 'no step'}.{cold}"
