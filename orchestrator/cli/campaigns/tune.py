"""The command `tune`: `run` with only the runs that are needed to find the fastest experiment."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import fields

from orchestrator.cli.campaigns.races import Races
from orchestrator.cli.campaigns.run import carry_out
from orchestrator.cli.campaigns.suite import price_of
from orchestrator.cli.options import RunOptions, StartOptions, TuneOptions, takes


@takes(TuneOptions)
def tune(options: TuneOptions) -> None:
    """Find the fastest experiment for each model and number of GPUs, with few runs.

    Experiments that are clearly slower than the fastest get no more runs. The fastest gets all its repeats.
    """
    from orchestrator.campaign.race.aim import aim_of

    given = {field.name: getattr(options, field.name) for field in fields(StartOptions)}
    races = Races(aim=aim_of(options.objective, options.limit or (), price_of(options)))
    with ExitStack() as until_end:
        carry_out(RunOptions(**given), until_end.enter_context, races=races)
