"""Write a history as one HTML page: its steps in words, a grid of small curves, trend charts, the campaigns.

The page is a text, and `files` writes it. It shares its frame, colours and scripts with all pages (`report.page`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.compare.history.history import Campaign, History, Kind, Point, Series, Step
from orchestrator.compare.history.view import sparklines, wording
from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import DASH, metric, show
from orchestrator.report.page import shell
from orchestrator.report.page.charts import colours
from orchestrator.report.page.charts.chart import (
    Chart,
    Figure,
    Trace,
    View,
    chart_or_absent,
    error_bars,
    layout,
    upright,
)
from orchestrator.report.page.shell import Section
from orchestrator.report.page.texts import for_plotly, lines_for_plotly, one_line, rounded

MOST_STEPS, MOST_VIEWS, MOST_WARNINGS = 100, 500, 100
# The most points in all charts together. So many points take about 12 MB, and a page should be smaller than 25 MB.
MOST_POINTS = 60_000

HEIGHT_PX = 400
# Series with more points have ticks only at some campaigns.
_ALL_TICKS = 25
# The space at the top is for the labels of the steps.
_MARGINS = {"l": 12, "r": 12, "t": 30, "b": 12}

_CLASSES = {Kind.BETTER: "gain", Kind.WORSE: "failure", Kind.CHANGED: "warning"}
_COLOURS = {Kind.BETTER: "@good", Kind.WORSE: colours.BAD, Kind.CHANGED: "@warn"}
_DASHES = {Kind.BETTER: "dash", Kind.WORSE: "solid", Kind.CHANGED: "dot"}


def trend_page(history: History) -> str:
    """Return the page as one document that can be opened from a disk."""
    charts = [chart_or_absent(_chart(history), "no campaign has a measured value to show")]
    sections = [
        Section(id="steps", title="Steps, newest first", body=_steps(history)),
        Section(id="series", title="All series", body=_series(history)),
        Section(id="trends", title="Trends", body=shell.charts_body(charts)),
        Section(id="campaigns", title="Campaigns", body=_campaigns(history)),
    ]
    period = wording.period(history)
    count = f"{len(history.campaigns):,} campaigns{f', from {period}' if period else ''}"
    lead = f"{count}. A step is a lasting change of a series' level."
    return shell.document(title="History", lead=lead, sections=sections, data=shell.page_data(charts))


def _series(history: History) -> Any:
    tiles, more = sparklines.tiles(history)
    size = {"width": sparklines.WIDTH, "height": sparklines.HEIGHT}
    return shell.render("sparklines.html", tiles=tiles, more=more, shown=f"{sparklines.SHOWN:.0%}", **size)


def _steps(history: History) -> Any:
    steps, drifts, suspicious = (wording.newest_first(history, sort) for sort in wording.SORTS)
    return shell.render(
        "history.html",
        turns=_turns(steps, history),
        more=max(0, len(steps) - MOST_STEPS),
        expected=wording.expected(history),
        drifts=[
            {"when": one_line(wording.drift_time(series, drift, history.campaigns)), "step": _step(series, drift)}
            for series, drift in drifts[:MOST_STEPS]
        ],
        more_drifts=max(0, len(drifts) - MOST_STEPS),
        suspicious=_turns(suspicious, history),
        more_suspicious=max(0, len(suspicious) - MOST_STEPS),
    )


def _turns(steps: Sequence[wording.SeriesStep], history: History) -> list[dict[str, Any]]:
    return [
        {
            "when": wording.day(turn.campaign.began_at),
            "campaign": one_line(turn.campaign.name),
            "changes": one_line(turn.changes, width=600),
            "steps": [_step(series, step) for series, step in turn.steps],
        }
        for turn in wording.turns(steps[:MOST_STEPS], history.campaigns)
    ]


def _step(series: Series, step: Step) -> dict[str, str]:
    return {
        "style": _CLASSES[step.kind],
        "kind": step.kind.value,
        "what": one_line(wording.step_text(series, step)),
        "label": one_line(series.label),
    }


def _campaigns(history: History) -> Any:
    rows = [
        {
            "name": one_line(campaign.name),
            "began": wording.day(campaign.began_at),
            "experiments": f"{campaign.experiments:,}",
        }
        for campaign in reversed(history.campaigns)
    ]
    warnings = [one_line(warning, width=600) for warning in history.warnings[:MOST_WARNINGS]]
    return shell.render("campaigns.html", campaigns=rows, warnings=warnings)


def _chart(history: History) -> Chart:
    every = wording.every_series(history)
    shown, headings = _that_fit(every), wording.labels(history)
    left_out = len(every) - len(shown)
    note = f"{left_out:,} more series without a step are in history.csv."
    return Chart(
        id="trend",
        title="An experiment over the campaigns",
        reading=(
            "Each point is a campaign: the mean over its runs, with its 95 % interval if there are several runs. The horizontal "
            "line is the fitted level; a drift is a sloped line. A vertical line is a step: solid if it is worse, dashed if it is "
            "better. The first experiment of the list is the geometric mean over all experiments, if there are several."
        ),
        facets=("Experiment", "Metric"),
        views=tuple(_view(series, history.campaigns, headings[series.metric]) for series in shown),
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


def _view(series: Series, campaigns: Sequence[Campaign], heading: str) -> View:
    at, unit = _places(series), metric(series.metric).unit
    dated = isinstance(at[0], str)
    figure: Figure = {
        "data": [*_level_lines(series, at), _points(series, campaigns, at)],
        "layout": layout(
            height=HEIGHT_PX,
            margin=_MARGINS,
            x_title="when the campaign began (UTC)" if dated else "campaign, by its place",
            y_title=for_plotly(f"{heading} ({unit})" if unit else heading, width=60),
            xaxis={"type": "date"} if dated else {"dtick": 1 if len(at) <= _ALL_TICKS else None},
            shapes=[
                upright(at[step.at], {"color": _COLOURS[step.kind], "width": 1.5, "dash": _DASHES[step.kind]})
                for step in series.steps
            ],
            annotations=[_label(step, at) for step in series.steps],
        ),
        "narrow": {},
    }
    return View(
        at=(one_line(series.label), one_line(heading)),
        figure=figure,
        summary=_summary(series),
        columns=("campaign", "began (UTC)", one_line(heading), "interval", "runs", "changed"),
        rows=tuple(_row(series, point, campaigns) for point in series.points),
    )


def _places(series: Series) -> list[str | int]:
    """Return the dates of the points if all are known, else the numbers of the campaigns, counted from 1."""
    moments = [wording.moment(point.began_at) for point in series.points]
    dates = [f"{moment:%Y-%m-%d %H:%M:%S}" for moment in moments if moment is not None]
    return [*dates] if len(dates) == len(moments) else [point.campaign + 1 for point in series.points]


def _points(series: Series, campaigns: Sequence[Campaign], at: Sequence[str | int]) -> Trace:
    values, intervals = [point.value for point in series.points], [point.interval for point in series.points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "campaign",
        "x": list(at),
        "y": [rounded(value) for value in values],
        "error_y": error_bars(values, intervals, color=colours.MUTED, thickness=1.2, width=3),
        "marker": {"color": colours.colour(0), "symbol": colours.symbol(0), "size": 8},
        "hovertext": [_hover(series, point, campaigns) for point in series.points],
        "hoverinfo": "text",
    }


def _hover(series: Series, point: Point, campaigns: Sequence[Campaign]) -> str:
    name, began, value, interval, runs, changed = _row(series, point, campaigns)
    lines = [name, began, f"{value} ({interval}) of {runs}" if point.interval else f"{value} of {runs}"]
    return lines_for_plotly([*lines, *([f"changed: {changed}"] if point.changes else [])])


def _level_lines(series: Series, at: Sequence[str | int]) -> list[Trace]:
    """Return one line for each level, from its first campaign to its last."""
    if series.points[0].level is None:
        return []
    x: list[str | int | None] = []
    y: list[float | None] = []
    for number, (point, place) in enumerate(zip(series.points, at, strict=True)):
        if number and point.level != series.points[number - 1].level and not _is_in_a_drift(series, number):
            x.append(None)
            y.append(None)
        x.append(place)
        y.append(rounded(point.level))
    line = {"color": colours.INK, "width": 1.5}
    return [{"type": "scatter", "mode": "lines", "name": "level", "x": x, "y": y, "line": line, "hoverinfo": "skip"}]


def _is_in_a_drift(series: Series, at: int) -> bool:
    """Return whether a point and the point before it are on one sloped line."""
    return any(drift.since < at <= drift.at for drift in series.drifts)


def _label(step: Step, at: Sequence[str | int]) -> dict[str, Any]:
    place = {"x": at[step.at], "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    text = for_plotly(wording.percent(step.change))
    return {**place, "text": text, "font": {"color": _COLOURS[step.kind], "size": 12}}


def _row(series: Series, point: Point, campaigns: Sequence[Campaign]) -> tuple[str, ...]:
    name = series.metric
    interval = f"{show(name, point.interval.low)} to {show(name, point.interval.high)}" if point.interval else DASH
    return (
        one_line(campaigns[point.campaign].name),
        wording.day(point.began_at),
        show(name, point.value),
        interval,
        counted(point.runs, "run"),
        one_line(wording.changes_shown(point.changes), width=400) if point.changes else DASH,
    )


def _summary(series: Series) -> str:
    last = show(series.metric, series.points[-1].value)
    changes = [
        f"{word}{step.kind.value} ({wording.percent(step.change)})"
        for sort, word in {"steps": "", "drifts": "slow drift, ", "suspicious": "suspicious, "}.items()
        for step in getattr(series, sort)
    ]
    cold = " The first run is left out: it was the slowest in most campaigns." if series.without_first else ""
    return f"{len(series.points)} campaigns; the last has {last}; {', '.join(changes) or 'no step'}.{cold}"
