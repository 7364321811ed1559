"""The commands `plan` and `run`: the way from a scenario file to a finished campaign.

`run` has one call for each step: load the suite, expand it, open the results folder, prepare the data, run what is due, report.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.doctor_monitor_screen import refuse_screen, screen_before
from orchestrator.cli.options import MONITORS_OF, RESULTS, PlanOptions, RunOptions, SuiteOptions, given_price, takes
from orchestrator.cli.results.report_show_status import write_report
from orchestrator.cli.terminal.console import confirm, err, out, print_raw, say, tell, words
from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import counted
from orchestrator.report.format import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orchestrator.campaign.environments import Hold
    from orchestrator.campaign.probes.largest_value import Search
    from orchestrator.campaign.way import Way
    from orchestrator.cli.races import Races
    from orchestrator.executors.slurm.site import Site
    from orchestrator.machine.provenance import Machine
    from orchestrator.plan.config import Suite
    from orchestrator.plan.expand import Plan
    from orchestrator.plan.forecast.outlook import Outlook
    from orchestrator.plan.selection import Selection
    from orchestrator.plan.view.as_arrays import Arrays
    from orchestrator.records.price import Price
    from orchestrator.results.due_runs import Retry
    from orchestrator.results.store import Store

QUICKSTART = "quickstart"


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Show what would run. The command writes nothing and needs neither a GPU nor torch."""
    gc.disable()  # a plan makes no cycles of objects, and a search for them takes up to a tenth of the time
    if options.fit_only and options.gpu_memory:
        cure = f"leave --gpu-memory out, or write --assume 1x{options.gpu_memory}"
        raise SelectionError(f"--fit-only uses the memory of this machine's GPUs or of --assume; {cure}")
    suite, site = _with_executor(_load(options), options)
    machine = _machine(options.assume, site)
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
    planned = _expand(suite, _select(options), machine, site)
    if options.fit_only:
        planned = _without_what_cannot_run(planned, machine)
    races: list[str] = []
    if options.tune:
        from orchestrator.cli.races import raced

        planned, races = raced(planned)
    arrays = None
    if site is not None:
        from orchestrator.campaign import steps

        arrays = steps.arrays_to_submit(planned, site, results)
    below = _below(planned, options, results or RESULTS, machine, site=site)
    below += [f"{results}: there is no such folder yet, so all runs are new."] if is_new else []
    _show_plan(planned, options, outlook, below=[*races, *below], arrays=arrays)


@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Run what is missing in the results folder, then write its report."""
    with ExitStack() as until_end:
        carry_out(options, until_end.enter_context)


def carry_out(options: RunOptions, hold: Hold, *, races: Races | None = None) -> None:
    """Carry out `run`; with `races`, carry out `tune`. `hold` keeps what is in use until the end."""
    _refuse_views_of_plans(options)
    suite, selection = _load(options), _select(options)
    suite, site = _with_executor(suite, options)
    way = replace(_way(options, suite.executor, site), race=races.aim if races else None)
    axis = _axis(options)
    _use_only(options.gpus)
    machine = _machine(None, site)
    planned, failed_builds = _with_environments(suite, selection, machine, site, hold=None if options.dry_run else hold)
    if options.fit_only:
        from orchestrator.plan.forecast.states import leave_out_what_may_not_fit

        planned = replace(planned, experiments=leave_out_what_may_not_fit(planned.experiments, machine))
    if options.dry_run:
        return _show_dry_run(planned, options, way, machine)
    from orchestrator.campaign import steps
    from orchestrator.campaign.changed_files import changed_files
    from orchestrator.campaign.events.notices import Notices

    planned = races.prepared(planned, machine) if races else planned
    steps.refuse_empty(planned)
    if way.budget is not None:
        way.budget.refuse_without_gpus(planned.experiments, way.price)
    searches = _searches(planned, axis, machine) if axis else []
    since = () if options.move_aside else changed_files(planned, options.results)
    for note in (*planned.notes, *since):
        tell(f"note: {note}")
    most = steps.with_all_rounds(planned) if races else planned
    hours = steps.gpu_hours(most, options.results, move_aside=options.move_aside, retry=way.retry)
    confirm(min(hours, way.budget.gpu_hours) if way.budget else hours, above=options.confirm_above, yes=options.yes)
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
    store.add(planned.experiments)
    steps.note_asked(store, planned, suite=suite, selection=selection)
    notices = Notices(suite.notify, store.root, scenarios=suite.document.file)
    hold(notices)
    summary = steps.carry_out(
        planned, store, way=replace(way, on_event=notices.on_event), console=err(), json_lines=lines
    )
    if summary is None:
        return
    for remark in steps.remarks(planned, store, summary, retry=way.retry):
        tell(f"note: {remark}")
    write_report([options.results], keep=(), drop=(), form=None if options.json_lines else Format.TABLE)
    has_winner = races is None or races.show(planned, store)
    notices.ended(summary)
    for problem in notices.problems():
        tell(f"note: {problem}")
    raise typer.Exit(summary.exit_code or min(failed_builds, 1) or int(not has_winner))


def _load(options: SuiteOptions) -> Suite:
    from orchestrator.plan.config import load_suite, shipped_folder

    _tell_names_from_folders(options)
    suite = load_suite(
        options.scenarios or shipped_folder() / "scenarios.yaml",
        defaults=options.defaults,
        accelerate=options.accelerate,
        frameworks=options.frameworks,
        chosen=options.scenario or (),
    )
    for sentence in (sentence for sentences in suite.left_out.values() for sentence in sentences):
        tell(f"note: {sentence}")
    return suite


def _tell_names_from_folders(options: SuiteOptions) -> None:
    """Raise SelectionError if `--framework` names a folder, or `--frameworks` names a configuration."""
    folder = options.frameworks
    if folder is not None and not folder.is_dir():
        cure = f"name a folder with a CONTENTS.yaml, or write --framework {folder} to choose a framework configuration"
        raise SelectionError(f"--frameworks {folder} is not a folder; {cure}")
    for name in words(options.framework):
        if os.sep in name or os.path.isfile(os.path.join(name, "CONTENTS.yaml")):
            cure = f"name a framework configuration, or write --frameworks {name} for a folder of them"
            raise SelectionError(f"--framework {name} is a folder; {cure}")


def _select(options: SuiteOptions) -> Selection:
    from orchestrator.plan.selection import parse_selection, whole_numbers

    for option in ("framework", "model", "cell", "num_gpus"):
        given = getattr(options, option)
        if any(not text.strip(", ") for text in ([given] if isinstance(given, str) else given or ())):
            flag = f"--{option.replace('_', '-')}"
            raise SelectionError(f"{flag} is empty, and would choose everything; give it a value, or leave it out")
    return parse_selection(
        scenarios=options.scenario or ([QUICKSTART] if options.scenarios is None else []),
        frameworks=words(options.framework),
        models=words(options.model),
        cells=words(options.cell),
        axes=options.axis or (),
        settings=options.settings or (),
        num_gpus=whole_numbers(options.num_gpus, option="--num-gpus") if options.num_gpus else None,
        trainer=options.trainer,
        repeats=options.repeats,
        monitors=MONITORS_OF[options.memory] if options.memory else None,
    )


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


def price_of(options: SuiteOptions) -> Price | None:
    """Return the price of `--price`, else that of the site file."""
    from orchestrator.plan.config.site_file import site_price

    return given_price(options.price) or site_price(options.scenarios)


def _with_executor(suite: Suite, options: PlanOptions | RunOptions) -> tuple[Suite, Site | None]:
    """Return the suite with the executor that starts the runs, and the site of the executor `slurm`."""
    from orchestrator.plan.config.site_file import executor_of

    name, found = executor_of(suite, options.executor, options.scenarios)
    if name == "local":  # it always exists, so a plan does not load the executors
        return replace(suite, executor=name), None
    from orchestrator.campaign import way
    from orchestrator.executors import SLURM
    from orchestrator.executors.slurm.site import Site

    is_in_suite = "executor" in suite.document.value
    document = None if options.executor else suite.document if is_in_suite or found is None else found.document
    way.refuse_unknown_executor(name, document)
    site = replace(found.site if found else Site(), price=price_of(options)) if name == SLURM else None
    return replace(suite, executor=name), site


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


def _machine(assume: str | None, site: Site | None) -> Machine:
    """Return this machine, or the machine that `--assume` describes, or a node of the site's cluster."""
    if assume is not None:
        from orchestrator.plan.forecast.assumed_machine import assumed_machine

        return assumed_machine(assume)
    if site is not None:
        from orchestrator.plan.forecast.assumed_machine import node_of

        return node_of(site)
    from orchestrator.machine.provenance import this_machine

    return this_machine()


def _expand(suite: Suite, selection: Selection, machine: Machine, site: Site | None) -> Plan:
    """Return the plan. If the GPUs of a cluster's nodes are unknown, a note says what is not checked."""
    from orchestrator.plan.expand import expand

    planned = expand(suite, selection, machine)
    if site is None or machine.gpus_known or all(scenario.device == "cpu" for scenario in suite.scenarios):
        return planned
    from orchestrator.plan.forecast.assumed_machine import node_note

    return replace(planned, notes=(*planned.notes, node_note(site)))


def _with_environments(
    suite: Suite, selection: Selection, machine: Machine, site: Site | None, *, hold: Hold | None
) -> tuple[Plan, int]:
    """Build what is missing and hold it, unless `hold` is None. Return two values: the plan, and how many builds failed."""
    planned = _expand(suite, selection, machine, site)
    if hold is None or all(one.environment is None for one in planned.experiments):
        return planned, 0
    from orchestrator.campaign.environments import with_environments

    again = partial(_expand, suite, selection, machine, site)
    return with_environments(planned, suite, again=again, say=tell, hold=hold)


def _without_what_cannot_run(planned: Plan, machine: Machine) -> Plan:
    """Return the plan with only the experiments that run on the machine. A note says how many experiments are left out, and why."""
    from orchestrator.plan.forecast.states import leave_out_what_may_not_fit

    marked = leave_out_what_may_not_fit(planned.experiments, machine)
    reasons = Counter(reason.kind for one in marked if (reason := one.skip or one.cannot_run_here))
    kept = {one.id: one for one in marked if not (one.skip or one.cannot_run_here)}
    why = ", ".join(f"{times}× {kind}" for kind, times in reasons.most_common())
    note = f"--fit-only leaves out {len(marked) - len(kept)} of {counted(len(marked), 'experiment')}: {why}"
    return replace(
        planned,
        experiments=tuple(kept.values()),
        collapsed=tuple(one for one in planned.collapsed if one.id in kept),
        notes=(*planned.notes, note) if reasons else planned.notes,
    )


def _show_dry_run(planned: Plan, options: RunOptions, way: Way, machine: Machine) -> None:
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
