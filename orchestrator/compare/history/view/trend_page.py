"""Write a history as one HTML page: a card for each event with the chart next to it, a grid of small curves, the campaigns.

The page is a text, and `files` writes it. It shares its frame, colours and scripts with all pages (`report.page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.compare.history.history import History, Kind
from orchestrator.compare.history.view import sparklines, trend_chart, wording
from orchestrator.compare.history.view.events import Event, Finding, events
from orchestrator.files.printable_text import counted
from orchestrator.report.page import shell
from orchestrator.report.page.charts.chart import chart_or_absent
from orchestrator.report.page.shell import Section
from orchestrator.report.page.texts import one_line

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_EVENTS, MOST_OPEN, MOST_WARNINGS, MOST_FACTS, MOST_OTHER_SIDES = 100, 8, 100, 4, 2

_CLASSES = {Kind.BETTER: "gain", Kind.WORSE: "failure", Kind.CHANGED: "warning"}
# Facts that have no column in the table of campaigns.
_NOT_SHOWN = ("git_dirty", "host", "driver_cuda")


def trend_page(history: History) -> str:
    """Return the page as one document that can be opened from a disk."""
    charts = [chart_or_absent(trend_chart.chart(history), "no campaign has a measured value to show")]
    moved = any(getattr(series, sort) for series in wording.every_series(history) for sort in wording.SORTS)
    title = "What changed, newest first" if moved else "Course over time"  # then the section has only the chart
    sections = [
        Section(id="changes", title=title, body=_changes(history, shell.charts_body(charts))),
        Section(id="series", title="All series", body=_series(history)),
        Section(id="campaigns", title="Campaigns", body=_campaigns(history)),
    ]
    return shell.document(title="History", lead=_lead(history), sections=sections, data=shell.page_data(charts))


def _lead(history: History) -> str:
    days = [day for one in history.campaigns if (day := wording.date(one.began_at))]
    period = f", {min(days)} to {max(days)} (UTC)" if days else ""
    found = events(history)
    last = f", last on {wording.date(found[0].campaign.began_at)}" if found and days else ""
    moved = f"A level changed at {len(found)} of them{last}." if found else wording.no_step(history)
    return f"{counted(len(history.campaigns), 'campaign')}{period}. {moved}"


def _series(history: History) -> Markup:
    tiles, more = sparklines.tiles(history)
    size = {"width": sparklines.WIDTH, "height": sparklines.HEIGHT}
    return shell.render("sparklines.html", tiles=tiles, more=more, shown=f"{sparklines.SHOWN:.0%}", **size)


def _changes(history: History, chart: Markup) -> Markup:
    steps, drifts, suspicious = (events(history, sort) for sort in wording.SORTS)
    cards = [_card(event, history) for event in steps[:MOST_EVENTS]]
    return shell.render(
        "history.html",
        chart=chart,
        cards=cards[:MOST_OPEN],
        earlier=cards[MOST_OPEN:],
        more=max(0, len(steps) - MOST_EVENTS),
        expected=wording.expected(history),
        others=[
            {"title": title, "cards": [_card(event, history) for event in some[:MOST_EVENTS]], "open": some is drifts}
            for title, some in (("Slow drifts", drifts), ("Suspicious steps: perhaps noise", suspicious))
            if some
        ],
    )


def _card(event: Event, history: History) -> dict[str, Any]:
    headings, names = wording.labels(history), wording.short_names(history.campaigns)
    sides, *others = (
        f"{names[before.name]} {wording.ARROW} {names[at.name]}" for before, at in (event.sides, *event.other_sides)
    )
    some = f"; some {', '.join(others[:MOST_OTHER_SIDES])}" if others else ""
    return {
        "day": wording.day(event.campaign.began_at),
        "sides": one_line(f"{sides}{some}", width=200),
        "findings": [_finding(finding, headings) for finding in event.findings],
        "changes": one_line(wording.changes_shown(event.changes), width=600) if event.changes else "",
        "only_some": one_line(wording.changes_shown(event.only_some), width=600) if event.only_some else "",
    }


def _finding(finding: Finding, headings: Mapping[str, str]) -> dict[str, str]:
    return {
        "style": _CLASSES[finding.kind],
        "head": one_line(finding.head),
        "size": one_line(finding.size),
        "where": one_line(finding.where),
        "view": trend_chart.ID,
        "at": sparklines.view_of(finding.series, headings),
    }


def _campaigns(history: History) -> Markup:
    facts = _varying(history)
    rows = [
        {
            "name": one_line(campaign.name),
            "began": wording.day(campaign.began_at),
            "facts": [one_line(wording.short_value(name, campaign.environment.get(name)), width=40) for name in facts],
            "experiments": f"{campaign.experiments:,}",
        }
        for campaign in reversed(history.campaigns)
    ]
    warnings = [one_line(warning, width=600) for warning in history.warnings[:MOST_WARNINGS]]
    names = [one_line(wording.fact(name), width=40) for name in facts]
    return shell.render("campaigns.html", campaigns=rows, facts=names, warnings=warnings)


def _varying(history: History) -> Sequence[str]:
    """Return the first facts of the environment in which campaigns differ, the commit first."""
    environments = [campaign.environment for campaign in history.campaigns]
    names = dict.fromkeys(name for environment in environments for name in environment if name not in _NOT_SHOWN)
    varying = [name for name in names if len({str(environment.get(name)) for environment in environments}) > 1]
    return sorted(varying, key=lambda name: name != wording.COMMIT)[:MOST_FACTS]
