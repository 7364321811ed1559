"""Write a comparison as one HTML page: the verdict in sentences, the sides, charts, rows, the environment.

The page is a text, and `files` writes it. It shares its frame, colours and scripts with all pages (`report.page`). `forest` and
`scatter` make the charts. `page_table` makes the table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.compare import gate
from orchestrator.compare.comparison import Comparison, Row, Verdict
from orchestrator.compare.gate import Cause
from orchestrator.compare.sides.profiles import Profiles
from orchestrator.compare.view import in_words, marks, page_table, wording
from orchestrator.compare.view.charts.forest import forest
from orchestrator.compare.view.charts.scatter import scatter
from orchestrator.compare.view.marks import MARKS
from orchestrator.compare.view.page_table import NO_PROFILES
from orchestrator.report.page import shell
from orchestrator.report.page.charts.chart import Absent, Chart, chart_or_absent
from orchestrator.report.page.shell import Section
from orchestrator.report.page.texts import one_line

if TYPE_CHECKING:
    from markupsafe import Markup

# This text near the beginning of a page identifies the page as a comparison.
MARK = "<title>Comparison: "

MOST_DIFFERENCES, MOST_LISTED, MOST_WARNINGS, MOST_IN_VERDICT = 100, 200, 100, 4
NAME, SENTENCE = 160, 600

_KINDS = {gate.NOTHING_WORSE: "gain", gate.WORSE: "failure"}
_LISTS = (
    (Verdict.FAILED, "Failed"),
    (Verdict.MISSING, "Missing on the new side"),
    (Verdict.UNKNOWN, "Unknown, because records cannot be read"),
    (Verdict.NOT_COMPARABLE, "Not comparable"),
    (Verdict.NEW, "New"),
)

# The most rows of the table, rows per metric of the forest plot, and points per metric of the scatter plot.
MOST_ROWS, MOST_IN_FOREST, MOST_POINTS = 20_000, 120, 1500
# The most operations in the difference of two profiles.
MOST_OPERATIONS = 10


def page(
    comparison: Comparison,
    *,
    fail_on: Sequence[Cause] = gate.DEFAULT,
    lead: str | None = None,
    profiles: Mapping[str, Profiles] = NO_PROFILES,
) -> str:
    """Return the page as one document that can be opened from a disk.

    `fail_on` has the causes that count for the exit code. `lead` is the text below the title. `profiles` has the profiles of
    changed pairs, by the label of the pair.
    """
    charts = list(_charts(comparison))
    table = page_table.of(comparison, most=MOST_ROWS, profiles=profiles)
    left_out = len(comparison.rows) - int(table["rows"])
    note = f"The page has room for the {table['rows']:,} worst rows; {left_out:,} more are in the CSV."
    sections = [
        Section(id="verdict", title="Verdict", body=_verdict(comparison, fail_on)),
        Section(id="charts", title="Charts", body=shell.charts_body(charts)),
        Section(id="table", title="Rows", body=shell.table_body(constant=[], notes=[note] if left_out else [])),
        Section(id="together", title="All experiments together", body=_together(comparison)),
        Section(id="environment", title="Differences of environment", body=_environment(comparison)),
        Section(id="without", title="Without numbers", body=_without_numbers(comparison)),
    ]
    base, new = one_line(comparison.base, width=60), one_line(comparison.new, width=60)
    return shell.document(
        title=f"{MARK.removeprefix('<title>')}{base} → {new}",
        lead=lead or wording.experiments(comparison),
        sections=sections,
        data=shell.page_data(charts, table),
    )


def _verdict(comparison: Comparison, fail_on: Sequence[Cause]) -> Markup:
    """Return what changed in sentences, the number of each verdict, the two sides and the rules."""
    code = gate.exit_code(comparison, fail_on=fail_on)
    differences = [wording.difference(differing) for differing, _ in wording.environment(comparison)]
    shown = "; ".join(differences[:MOST_IN_VERDICT])
    more = f"; and {len(differences) - MOST_IN_VERDICT} more" if len(differences) > MOST_IN_VERDICT else ""
    facts = [
        ("Base", one_line(comparison.base, width=SENTENCE)),
        ("New", one_line(comparison.new, width=SENTENCE)),
        ("Environment", one_line(f"{shown}{more}", width=SENTENCE) or "no difference is known"),
        ("Judged by", one_line(wording.judged_by(comparison), width=SENTENCE) or "-"),
        ("Fails on", ", ".join(fail_on) or "nothing"),
    ]
    return shell.render(
        "comparison.html",
        facts=facts,
        sentences=[
            {"kind": one.kind, "head": one.head, "text": one_line(one.text, width=SENTENCE)}
            for one in in_words.sentences(comparison)
        ],
        conclusion=one_line(wording.conclusion(comparison, fail_on)),
        kind=_KINDS.get(code, "warning"),
        tiles=_tiles(comparison),
    )


def _tiles(comparison: Comparison) -> list[dict[str, str]]:
    counts, old = Counter(row.verdict for row in comparison.rows), len(wording.old_failures(comparison))
    notes = {Verdict.FAILED: f"{old} on both sides" if old else ""}
    return [
        {"value": f"{counts[verdict]:,}", "label": marks.signed(verdict), "note": notes.get(verdict, "")}
        for verdict in wording.WORST_FIRST
        if counts[verdict]
    ]


def _environment(comparison: Comparison) -> Markup:
    differences = wording.environment(comparison)
    forbidding = {name for pair in comparison.pairs for name in pair.disqualifying}
    rows = [
        {
            "cells": [one_line(cell) for cell in wording.difference_cells(difference)],
            "often": pairs,
            "forbids": difference.name in forbidding,
        }
        for difference, pairs in differences[:MOST_DIFFERENCES]
    ]
    own = any(pair.arguments for pair in comparison.pairs)
    return shell.render(
        "comparison_environment.html", rows=rows, more=max(0, len(differences) - MOST_DIFFERENCES), own=own
    )


def _together(comparison: Comparison) -> Markup:
    lines = [
        {
            "verdict": marks.signed(line.verdict),
            "kind": MARKS[line.verdict].kind,
            "metric": one_line(wording.heading(line.metric)),
            "change": wording.change(line.ratio),
            "interval": wording.interval(line.ratio),
            "pairs": wording.fleet_note(line),
        }
        for line in comparison.fleet
    ]
    return shell.render("comparison_together.html", lines=lines)


def _charts(comparison: Comparison) -> Iterator[Chart | Absent]:
    of_metric: dict[str, list[Row]] = defaultdict(list)
    for row in comparison.rows:
        if row.ratio is not None and row.metric:
            of_metric[row.metric].append(row)
    ordered = {name: sorted(rows, key=wording.badness) for name, rows in of_metric.items()}
    headings, why = _headings([*ordered]), "no row has a number above 0 on both sides"
    yield chart_or_absent(forest(comparison, ordered, headings, most=MOST_IN_FOREST), why)
    yield chart_or_absent(scatter(comparison, ordered, headings, most=MOST_POINTS), why)


def _headings(names: Sequence[str]) -> dict[str, str]:
    """Return a dict from metric to heading. If two metrics have the same heading, add their names."""
    headings = {name: wording.heading(name) for name in names}
    counts = Counter(headings.values())
    return {name: one_line(text if counts[text] == 1 else f"{text} ({name})") for name, text in headings.items()}


def _without_numbers(comparison: Comparison) -> Markup:
    """Return the experiments that could not be compared, by kind, and the warnings of the readers."""
    old = wording.old_failures(comparison)
    lists = []
    for verdict, title in _LISTS:
        rows = sorted((row for row in comparison.rows if row.verdict is verdict), key=lambda row: row.label in old)
        if rows:
            items = [
                (one_line(row.label, width=NAME), one_line(_reason(row), width=SENTENCE)) for row in rows[:MOST_LISTED]
            ]
            more = max(0, len(rows) - MOST_LISTED)
            lists.append({"title": f"{MARKS[verdict].sign} {title}", "count": len(rows), "rows": items, "more": more})
    warnings = [one_line(warning, width=SENTENCE) for warning in comparison.warnings]
    return shell.render(
        "comparison_without.html",
        lists=lists,
        warnings=warnings[:MOST_WARNINGS],
        more_warnings=max(0, len(warnings) - MOST_WARNINGS),
    )


def _reason(row: Row) -> str:
    return f"{wording.heading(row.metric)}: {row.why}" if row.metric else row.why
