"""The command `tune`: `run` with only the runs that are needed to find the fastest experiment."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import fields
from typing import TYPE_CHECKING

from orchestrator.cli.options import RunOptions, TuneOptions, takes
from orchestrator.cli.plan_run import carry_out
from orchestrator.cli.terminal.console import out, say

if TYPE_CHECKING:
    from orchestrator.plan.expand import Plan
    from orchestrator.results.store import Store


@takes(TuneOptions)
def tune(options: TuneOptions) -> None:
    """Find the fastest experiment for each model and number of GPUs, with few runs.

    Experiments that are clearly slower than the fastest get no more runs. The fastest gets all its repeats.
    """
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    with ExitStack() as until_end:
        carry_out(RunOptions(**given), until_end.enter_context, show_races=_show_races)


def _show_races(planned: Plan, store: Store) -> None:
    """Show who left the races, and what is fastest. The second is the report's own answer, which knows doubts."""
    from orchestrator.campaign import race
    from orchestrator.report.highlights.answers import answers
    from orchestrator.results.table.baseline import with_baseline
    from orchestrator.results.table.load import load

    for title, table in race.view([*race.places(planned.experiments, store)]):
        say(f"\n{title}")
        out().print(table)
    say("")
    for answer in answers(with_baseline(load([store.root]))):
        say(f"{answer.place}: {answer.text}.")
