"""The command `run`: the way from a scenario file to a finished campaign.

`carry_out` has one call for each step: load the suite, expand it, open the results folder, prepare the data, run what is due,
report.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.campaigns.plan import show_dry_run
from orchestrator.cli.campaigns.suite import (
    loaded,
    machine_of,
    price_notes,
    price_of,
    selection_of,
    with_environments,
    with_executor,
)
from orchestrator.cli.doctor_monitor_screen import refuse_screen, screen_before
from orchestrator.cli.options import RunOptions, takes
from orchestrator.cli.results.report_show_status import write_report
from orchestrator.cli.terminal.console import confirm, err, print_raw, say, tell
from orchestrator.errors import SelectionError
from orchestrator.report.format import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.campaign.environments import Hold
    from orchestrator.campaign.probes.largest_value import Search
    from orchestrator.campaign.way import Way
    from orchestrator.cli.campaigns.races import Races
    from orchestrator.executors.slurm.site import Site
    from orchestrator.machine.provenance import Machine
    from orchestrator.plan.expand import Plan
    from orchestrator.results.store import Store


@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Run what is missing in the results folder, then write its report."""
    with ExitStack() as until_end:
        carry_out(options, until_end.enter_context)


def carry_out(options: RunOptions, hold: Hold, *, races: Races | None = None) -> None:
    """Carry out `run`; with `races`, carry out `tune`. `hold` keeps what is in use until the end."""
    _refuse_views_of_plans(options)
    suite, selection = loaded(options), selection_of(options)
    suite, site = with_executor(suite, options)
    way = replace(_way(options, suite.executor, site), race=races.aim if races else None)
    axis = _axis(options)
    _use_only(options.gpus)
    machine = machine_of(None, site)
    planned, failed_builds = with_environments(suite, selection, machine, site, hold=None if options.dry_run else hold)
    if options.fit_only:
        from orchestrator.plan.forecast.states import leave_out_what_may_not_fit

        planned = replace(planned, experiments=leave_out_what_may_not_fit(planned.experiments, machine))
    if options.dry_run:
        return show_dry_run(planned, options, way, machine)
    from orchestrator.campaign import steps
    from orchestrator.campaign.changed_files import changed_files
    from orchestrator.campaign.events.notices import Notices
    from orchestrator.records.labels import names

    root = None if options.move_aside else options.results
    planned = races.prepared(planned, machine, root) if races else planned
    steps.refuse_empty(planned)
    if way.budget is not None:
        way.budget.refuse_without_gpus(planned.experiments, way.price)
    searches = _searches(planned, axis, machine) if axis else []
    since = changed_files(planned, root) if root else ()
    for note in (*planned.notes, *since, *price_notes(options, planned)):
        tell(f"note: {note}")
    _confirm(planned, options, way)
    store = steps.open_results(
        options.results, move_aside=options.move_aside, suite=suite, argv=sys.argv[1:], say=err().print
    )
    if way.price is not None:
        store.note_price(way.price)
    if options.screen:
        screen_before(planned, store)
    lines = (lambda text: print_raw([text])) if options.json_lines else None
    if axis:
        return _find_largest(searches, store, way, lines)
    store.add(races.begun(planned, store) if races else planned.experiments)
    steps.note_asked(store, planned, suite=suite, selection=selection)
    notices = Notices(suite.notify, store.root, scenarios=suite.document.file, names=names(planned.experiments))
    hold(notices)
    summary = steps.carry_out(
        planned, store, way=replace(way, on_event=notices.on_event), console=err(), json_lines=lines
    )
    if summary is None:
        return
    for remark in steps.remarks(planned, store, summary, retry=way.retry):
        tell(f"note: {remark}")
    write_report([options.results], keep=(), drop=(), form=None if options.json_lines else Format.TABLE)
    has_winner, answers = races.show(planned, store) if races else (True, [])
    code = summary.exit_code or min(failed_builds, 1) or int(not has_winner)
    notices.ended(summary, answers=answers, exit_code=code)
    for problem in notices.problems():
        tell(f"note: {problem}")
    raise typer.Exit(code)


def _confirm(planned: Plan, options: RunOptions, way: Way) -> None:
    """Ask before a long campaign. A race counts with the most runs that it may make, and a budget limits the hours."""
    from orchestrator.campaign import steps

    most = planned if way.race is None else steps.with_all_rounds(planned)
    hours = steps.gpu_hours(most, options.results, move_aside=options.move_aside, retry=way.retry)
    confirm(min(hours, way.budget.gpu_hours) if way.budget else hours, above=options.confirm_above, yes=options.yes)


def _way(options: RunOptions, executor: str, site: Site | None) -> Way:
    """Return the options that say how to carry out the campaign. Raise SelectionError if options contradict each other."""
    from orchestrator.campaign import way

    parallel = way.parallel_of(options.parallel)
    way.refuse_options_of_local(
        executor, parallel=parallel, gpus=options.gpus, warm=options.warm, budget=options.budget
    )
    if options.submit_only:
        way.refuse_submit_only(executor, probe=options.probe, find=bool(_axis(options)))
    if options.screen:
        refuse_screen(executor)
    price = price_of(options)
    return way.Way(
        prepare=not options.no_data_processing,
        retry=way.retry_of(options.retry_failed),
        fail_fast=options.fail_fast,
        take_over=options.take_over,
        executor=executor,
        parallel=parallel,
        probe=options.probe,
        site=site,
        price=price,
        budget=way.budget_of(options.budget, price, find=bool(_axis(options))),
        submit_only=options.submit_only,
        warm=options.warm,
    )


def _refuse_views_of_plans(options: RunOptions) -> None:
    if options.json_lines and options.dry_run:
        raise SelectionError("--dry-run starts no runs, so --json-lines has no events; write --json for the plan")
    if (options.as_json or options.commands) and not options.dry_run:
        others = "--json-lines for events of the runs, or `tunebench report --format json` for the results"
        raise SelectionError(
            f"{'--json' if options.as_json else '--commands'} shows a plan; add --dry-run, or use {others}"
        )


def _use_only(gpus: str | None) -> None:
    """Restrict this process and its runs to these GPUs. Refuse words that name no GPU: CUDA would ignore them silently."""
    if gpus is None:
        return
    from orchestrator.machine.gpus import select_gpus, visible_gpus

    picked = select_gpus(gpus, visible_gpus(), option="--gpus")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in picked)


def _axis(options: RunOptions) -> str | None:
    """Return the argument whose largest value is to be found, or None. `--find-batch` is an older option for the batch."""
    if options.find_batch and options.find is not None:
        raise SelectionError(f"--find-batch finds another value than --find {options.find}; leave one of the two out")
    if options.find is not None and not options.find.strip():
        raise SelectionError("--find is empty; name an argument, such as max_seq_len")
    return "per_device_train_batch_size" if options.find_batch else options.find


def _searches(planned: Plan, axis: str, machine: Machine) -> list[Search]:
    from orchestrator.campaign.probes.largest_value import searches

    sizes = [gpu.memory_bytes or 0 for gpu in machine.gpus] if machine.gpus_known else []
    return searches(planned.experiments, axis, gpu_memory_bytes=min(sizes, default=0) or None)


def _find_largest(searches: Sequence[Search], store: Store, way: Way, json_lines: Callable[[str], None] | None) -> None:
    """Carry out the searches. Print their results on stdout, or on stderr if stdout has lines of JSON."""
    from orchestrator.campaign import steps
    from orchestrator.campaign.probes.largest_value import found_lines

    found = steps.find_largest(searches, store, way=way, console=err(), json_lines=json_lines)
    for line in found_lines(found):
        tell(line) if json_lines else say(line)
    if any(one.failure and one.value is None for one in found):
        raise typer.Exit(1)
