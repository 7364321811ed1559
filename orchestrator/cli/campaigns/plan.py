"""The command `plan`: what would run, in a table, as JSON, or as shell commands."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from orchestrator.campaign.race.objective import Objective
from orchestrator.cli.campaigns.suite import (
    expanded,
    loaded,
    machine_of,
    price_of,
    selection_of,
    with_executor,
    without_what_cannot_run,
)
from orchestrator.cli.options import RESULTS, PlanOptions, RunOptions, takes
from orchestrator.cli.terminal.console import out, print_raw, say
from orchestrator.errors import SelectionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.campaign.way import Way
    from orchestrator.executors.slurm.site import Site
    from orchestrator.machine.provenance import Machine
    from orchestrator.plan.expand import Plan
    from orchestrator.plan.forecast.outlook import Outlook
    from orchestrator.plan.view.as_arrays import Arrays
    from orchestrator.results.due_runs import Retry


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Show what would run. The command writes nothing and needs neither a GPU nor torch."""
    gc.disable()  # a plan makes no cycles of objects, and a search for them takes up to a tenth of the time
    if options.fit_only and options.gpu_memory:
        cure = f"leave --gpu-memory out, or write --assume 1x{options.gpu_memory}"
        raise SelectionError(f"--fit-only uses the memory of this machine's GPUs or of --assume; {cure}")
    if not options.tune and (options.limit or options.objective is not Objective.SPEED):
        raise SelectionError("--objective and --limit are for a race; add --tune, or leave them out")
    suite, site = with_executor(loaded(options), options)
    machine = machine_of(options.assume, site)
    results = options.results
    is_new = results is not None and not results.exists()  # as before every first campaign
    if results is not None and not is_new:
        from orchestrator.results.store import Store

        Store.resume(results)  # raises ResultsError if this is another kind of folder
    outlook = None
    if options.fit or options.gpu_memory or machine.assumed:
        from orchestrator.plan.forecast.outlook import outlook_of

        earlier = None if is_new else results
        outlook = outlook_of(
            fit=options.fit,
            gpu_memory=options.gpu_memory,
            machine=machine,
            results=earlier,
            price=price_of(options),
        )
    planned = expanded(suite, selection_of(options), machine, site)
    if options.fit_only:
        planned = without_what_cannot_run(planned, machine)
    races: list[str] = []
    if options.tune:
        planned, races = _raced(planned, options, machine)
    arrays = None
    if site is not None:
        from orchestrator.campaign import steps

        arrays = steps.arrays_to_submit(planned, site, results)
    below = _below(planned, options, results or RESULTS, machine, site=site)
    below += [f"{results}: there is no such folder yet, so all runs are new."] if is_new else []
    _show_plan(planned, options, outlook, below=[*races, *below], arrays=arrays)


def _raced(planned: Plan, options: PlanOptions, machine: Machine) -> tuple[Plan, list[str]]:
    """Return the plan with the most runs that its races make, and a line about these runs."""
    from orchestrator.campaign.race.aim import aim_of
    from orchestrator.cli.campaigns.races import Races

    races = Races(aim=aim_of(options.objective, options.limit or (), price_of(options)))
    root = None if machine.assumed else options.results or RESULTS
    planned, line = races.most(races.prepared(planned, machine, root), root)
    is_known = machine.assumed or machine.gpus or (root is not None and root.is_dir())
    return planned, [line] if is_known else [
        line,
        "How long they take, and what they cost, is known after the first runs.",
    ]


def show_dry_run(planned: Plan, options: RunOptions, way: Way, machine: Machine) -> None:
    from orchestrator.campaign import steps

    root = None if options.move_aside else options.results
    arrays = steps.arrays_to_submit(planned, way.site, root, retry=way.retry) if way.site else None
    below = _below(planned, options, root, machine, retry=way.retry, site=way.site)
    _show_plan(planned, options, below=below, arrays=arrays)


def _below(
    planned: Plan,
    options: PlanOptions | RunOptions,
    root: Path | None,
    machine: Machine,
    *,
    retry: Retry | None = None,
    site: Site | None = None,
) -> list[str]:
    """Return lines below a plan's table: which files changed since the runs in a results folder, and which runs are due there.

    Only files of users' own programs count. The runs of an assumed machine are not counted. The lines of a cluster's arrays
    already have the hours.
    """
    if options.as_json or options.commands:
        return []
    ours = None
    if root is not None and root.is_dir():
        from orchestrator.results import folder

        ours = root if folder.is_ours(root) else None
    notes = list[str]()
    if ours and any(experiment.sources for experiment in planned.experiments):
        from orchestrator.campaign.changed_files import changed_files

        notes = [f"note: {note}" for note in changed_files(planned, ours)]
    if machine.assumed or not (ours or (machine.gpus and site is None)):
        return notes
    from orchestrator.campaign.status.expected_use import due_lines
    from orchestrator.results.due_runs import NO_RETRY

    price = None if site else price_of(options)
    on = None if site else machine
    return [
        *notes,
        *due_lines(planned.experiments, ours, retry=retry or NO_RETRY, machine=on, price=price),
    ]


def _show_plan(
    planned: Plan,
    options: PlanOptions | RunOptions,
    outlook: Outlook | None = None,
    *,
    below: Sequence[str] = (),
    arrays: Arrays | None = None,
) -> None:
    """Show the plan. A table is printed when all its lines are known, so that a mistake never follows half an output."""
    from orchestrator.plan import view

    if options.as_json:
        print_raw(view.json_document(planned, sys.executable, outlook=outlook))
    elif options.commands:
        print_raw(view.command_lines(planned.experiments, sys.executable))
        print_raw(arrays.scripts() if arrays else ())
    else:
        shown, lines = view.table(planned, width=out().width, outlook=outlook), view.summary(planned, outlook=outlook)
        out().print(shown)
        for line in (*lines, *(arrays.lines() if arrays else ()), *below):
            say(line)
