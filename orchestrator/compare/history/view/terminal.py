"""Show a history on a terminal of any width: steps, drifts and suspicious steps, newest first, then the course of each experiment.

The length of the output is limited. Rows that are left out are counted; the files have all rows. All text is made printable first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.compare.history.history import History, Kind, Series, Step
from orchestrator.compare.history.view import wording
from orchestrator.files.printable_text import counted, printable
from orchestrator.report.tables.terminal import plain

MOST_STEPS, MOST_EXPERIMENTS = 30, 40
_STYLES = {Kind.WORSE: "bold red", Kind.BETTER: "bold green", Kind.CHANGED: "bold yellow"}
_CURVE = 24


def summary(history: History) -> RenderableType:
    """Return the history as it is printed."""
    if not history.series:
        return Text("No campaign has a measured value to show.")
    return Group(*_heading(history), *_steps(history), *_drifts(history), *_suspicious(history), *_experiments(history))


def text(history: History, *, width: int) -> str:
    """Return the summary as plain text."""
    return plain(summary(history), width=width)


def _heading(history: History) -> Iterator[RenderableType]:
    campaigns = ", ".join(filter(None, (counted(len(history.campaigns), "campaign"), wording.period(history))))
    experiments = len({(series.label, series.id) for series in history.series})
    yield Text(f"{campaigns}; {counted(experiments, 'experiment')}", style="bold")


def _steps(history: History) -> Iterator[RenderableType]:
    steps = wording.newest_first(history)
    if not steps:
        yield Text(wording.no_step(history))
    else:
        yield Text(f"\n{counted(len(steps), 'step')}, newest first", style="bold")
        yield from _turns(steps, history)
    if wording.expected(history):
        yield Text(wording.expected(history), style="dim")


def _turns(steps: Sequence[wording.SeriesStep], history: History) -> Iterator[RenderableType]:
    for turn in wording.turns(steps[:MOST_STEPS], history.campaigns):
        yield Text(printable(f"{wording.day(turn.campaign.began_at)}  {turn.campaign.name}"))
        yield _indented(f"changed: {turn.changes}")
        for series, step in turn.steps:
            yield from _step(series, step)
    if len(steps) > MOST_STEPS:
        yield Text(f"and {len(steps) - MOST_STEPS} earlier steps: see steps.csv")


def _drifts(history: History) -> Iterator[RenderableType]:
    drifts = wording.newest_first(history, "drifts")
    if drifts:
        yield Text(f"\n{counted(len(drifts), 'slow drift')}, newest first", style="bold")
    for series, drift in drifts[:MOST_STEPS]:
        yield Text(printable(wording.drift_time(series, drift, history.campaigns)))
        yield from _step(series, drift)
    if len(drifts) > MOST_STEPS:
        yield Text(f"and {len(drifts) - MOST_STEPS} earlier drifts: see steps.csv")


def _suspicious(history: History) -> Iterator[RenderableType]:
    steps = wording.newest_first(history, "suspicious")
    if steps:
        yield Text(f"\n{counted(len(steps), 'suspicious step')} (perhaps noise), newest first", style="bold")
        yield from _turns(steps, history)


def _step(series: Series, step: Step) -> Iterator[RenderableType]:
    line = Text("  ")
    line.append(f"{step.kind.value:<7}", style=_STYLES[step.kind])
    line.append(f" {wording.step_text(series, step)}")
    line.plain = printable(line.plain)
    yield line
    yield Padding(_indented(series.label), (0, 0, 0, 8))


def _indented(text: str) -> RenderableType:
    return Padding(Text(printable(text), style="dim"), (0, 0, 0, 2))


def _experiments(history: History) -> Iterator[RenderableType]:
    groups = [
        list(group) for _, group in groupby(wording.every_series(history), key=lambda series: (series.label, series.id))
    ]
    yield Text("\nCourse of each experiment (first campaign left, last right)", style="bold")
    headings = wording.labels(history)
    for group in groups[:MOST_EXPERIMENTS]:
        yield Text(printable(group[0].label))
        yield _grid(group, history, headings)
    if len(groups) > MOST_EXPERIMENTS:
        yield Text(f"and {counted(len(groups) - MOST_EXPERIMENTS, 'more experiment')}: see history.csv")


def _grid(group: Sequence[Series], history: History, headings: Mapping[str, str]) -> Table:
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for column in range(5):
        grid.add_column(justify="right" if column in (2, 3) else "left")
    for series in group:
        grid.add_row(*(Text(printable(cell)) for cell in _cells(series, history, headings[series.metric])))
    return grid


def _cells(series: Series, history: History, heading: str) -> Iterable[str]:
    change = wording.overall(series)
    return (
        f"    {heading}",
        wording.curve(series, width=_CURVE),
        wording.value(series, series.points[-1]),
        "" if change is None else wording.percent(change),
        "; ".join(filter(None, (wording.counts(series), wording.last_in(series, history)))),
    )
