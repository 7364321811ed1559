"""The report of results folders as one HTML page: answers, findings, warnings, the table, charts, what was run and where.

The findings come from `highlights`, and the numbers come from the table. From the folders, the page reads only a bounded part:
the series of runs, their commands and the ends of their logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.files import gc_pause
from orchestrator.files.printable_text import counted
from orchestrator.files.reading import resolved
from orchestrator.files.redaction import redact
from orchestrator.report.highlights import Highlight, HighlightKind
from orchestrator.report.highlights.answers import Answer, answers
from orchestrator.report.page import chooser, overview, runs, shell, table_data
from orchestrator.report.page.charts import all_charts, chart_data
from orchestrator.report.page.charts.chart import Absent, Chart
from orchestrator.report.page.folders import Folders
from orchestrator.report.page.shell import Section
from orchestrator.report.page.texts import one_line
from orchestrator.results import folder

if TYPE_CHECKING:
    from markupsafe import Markup

    from orchestrator.results.table.load import ResultsTable

# The objective of a race for speed in `race.json`.
SPEEDS_OF_RACES = "tokens_per_s"
MOST_ANSWERS, MOST_HIGHLIGHTS, MOST_WARNINGS, MOST_IDS = 24, 60, 100, 200

# The largest number of experiments in the charts.
MOST_CELLS = 1000

# Space for the commands and logs of the table's rows. A page of 1,000 experiments has less than 15 MB.
DETAIL_BYTES = 3_000_000


@gc_pause.left_alone()
def report_page(table: ResultsTable, *, roots: Sequence[Path], highlights: Sequence[Highlight]) -> str:
    """Return the page. The page also says how many experiments, rows, commands and logs do not fit.

    `roots` are the folders of the table. If there is one folder, the page is report.html of this folder and has links to its files.
    """
    folders, ended = Folders.of(roots), runs.read(table.runs)
    known, capacities = chart_data.read(table, most=MOST_CELLS), all_charts.gpu_capacities(ended, folders)
    charts = list(all_charts.charts(table, known, ended, folders, capacities=capacities))
    rows = table_data.of(table, ended, folders, detail_bytes=DETAIL_BYTES)
    table_rows = {**rows.data, "panels": [cell.panel for cell in known]}
    notes = [one_line(shown.text, width=600) for shown in highlights if shown.kind is HighlightKind.NOTE]
    suites = [suite for root in roots if (suite := folder.read_suite(root)) is not None]
    facts = overview.of(table, suites, gpu_bytes=sorted({*capacities.values()}))
    found = answers(table)
    sections = [
        Section(
            id="answers",
            title="What is fastest",
            body=_best(highlights, places=len(found))
            + shell.render(
                "answers.html",
                races=[*islice(_races(roots, found), MOST_ANSWERS)],
                answers=found[:MOST_ANSWERS],
                more=len(found[MOST_ANSWERS:]),
            )
            + shell.render("chooser.html"),
        ),
        *_findings(highlights, table),
        Section(
            id="table",
            title="All experiments",
            body=shell.table_body(constant=rows.constant, calls=rows.calls, notes=(*notes, *rows.notes)),
        ),
        Section(id="charts", title="Charts", body=_charts_body(len(known), len(table.experiments), charts)),
        Section(id="overview", title="What was run, and where", body=shell.render("overview.html", overview=facts)),
    ]
    title = "Report: " + ", ".join(one_line(redact(resolved(root).name), width=60) for root in roots[:3])
    return shell.document(
        title=title,
        lead=overview.in_one_line(facts),
        sections=sections,
        data=shell.page_data(charts, table_rows)
        | {"chooser": chooser.places(table, hardware=overview.in_one_line(facts))},
    )


def _races(roots: Sequence[Path], found: Sequence[Answer]) -> Iterator[str]:
    """Yield the answers of races (`tunebench tune`), and how many runs they had. Without a winner, the answer says why.

    A race knows limits and other objectives, and leaves out single runs in doubt. An answer is left out if the page's own answer
    names the same fastest experiment, unless most runs were in doubt, so that the winner only leads.
    """
    fastest = {name for answer in found if len(answer.best) == 1 for name in answer.best}
    for race in (race for root in roots for race in folder.races(root) if race.get("is_over") is True):
        winner, text, runs = race.get("winner"), race.get("answer"), folder.runs_of_race(race)
        is_clear = race.get("objective") == SPEEDS_OF_RACES and race.get("is_doubtful") is not True
        is_said = is_clear and str(winner) in fastest
        if (winner is None or isinstance(winner, str)) and isinstance(text, str) and len(runs) > 1 and not is_said:
            yield one_line(f"after {counted(sum(runs.values()), 'run')}: {text}", width=800)


def _best(highlights: Sequence[Highlight], *, places: int) -> Markup:
    """Return the best of each model over all numbers of GPUs. If each model has only one answer, the answers already say it."""
    best = [highlight for highlight in highlights if highlight.kind is HighlightKind.BEST]
    return _highlights(best if places > len(best) else (), empty="")


def _findings(highlights: Sequence[Highlight], table: ResultsTable) -> Iterator[Section]:
    """Yield the findings, then the warnings: doubts about numbers, failures, and messages about single runs."""
    gains = [highlight for highlight in highlights if highlight.kind is HighlightKind.GAIN]
    doubts = [highlight for highlight in highlights if highlight.kind in (HighlightKind.WARNING, HighlightKind.FAILURE)]
    yield Section(id="findings", title="Findings", body=_highlights(gains, empty="No two experiments can be compared."))
    single = [one_line(sentence, width=600) for sentence in table.warnings]
    body = shell.render(
        "warnings.html",
        highlights=_highlights(doubts, empty="No warnings." if not single else ""),
        single=single[:MOST_WARNINGS],
        more=max(0, len(single) - MOST_WARNINGS),
    )
    yield Section(id="warnings", title="Warnings", body=body)


def _highlights(highlights: Sequence[Highlight], *, empty: str) -> Markup:
    items = [
        {"kind": shown.kind.value, "text": one_line(shown.text, width=600), "ids": list(shown.experiments[:MOST_IDS])}
        for shown in highlights[:MOST_HIGHLIGHTS]
    ]
    return shell.render("highlights.html", items=items, empty=empty, more=max(0, len(highlights) - MOST_HIGHLIGHTS))


def _charts_body(drawn: int, count: int, charts: Sequence[Chart | Absent]) -> Markup:
    lead = f"The charts show the first {drawn:,} of {count:,} experiments; the table has all." if drawn < count else ""
    return shell.render("lead.html", lead=lead) + shell.charts_body(charts)
