"""`plan` and `run`: from a scenario file to a campaign that is done. The journey, one call a step.

`run`: load the suite, expand it, open the results folder, prepare the data, run what is due, report.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator import options
from orchestrator.cli.console import err, out, print_raw, say, tell
from orchestrator.cli.given import confirm
from orchestrator.cli.results import write_report
from orchestrator.errors import SelectionError

if TYPE_CHECKING:
    from orchestrator.config import Suite
    from orchestrator.matrix import Plan
    from orchestrator.selection import Selection

QUICKSTART = "quickstart"


def plan(
    scenarios: options.Scenarios = None,
    defaults: options.Defaults = None,
    accelerate: options.Accelerate = None,
    frameworks: options.Frameworks = None,
    num_gpus: options.NumGpus = None,
    scenario: options.ScenarioNames = None,
    settings: options.Settings = None,
    axis: options.Axes = None,
    trainer: options.TrainerName = None,
    repeats: options.Repeats = None,
    memory: options.MemoryKind = None,
    fit: options.Fit = False,
    gpu_memory: options.GpuMemory = None,
    as_json: options.AsJson = False,
    commands: options.AsCommands = False,
) -> None:
    """Show what would run: writes nothing, needs no GPU and no torch."""
    suite = _load(scenarios, defaults, accelerate, frameworks)
    selection = _select(scenarios, scenario, axis, settings, num_gpus, trainer=trainer, repeats=repeats, memory=memory)
    _show_plan(_expand(suite, selection), as_json=as_json, commands=commands, fit=fit, gpu_memory=gpu_memory)


def run(
    scenarios: options.Scenarios = None,
    defaults: options.Defaults = None,
    accelerate: options.Accelerate = None,
    frameworks: options.Frameworks = None,
    num_gpus: options.NumGpus = None,
    scenario: options.ScenarioNames = None,
    settings: options.Settings = None,
    axis: options.Axes = None,
    trainer: options.TrainerName = None,
    repeats: options.Repeats = None,
    memory: options.MemoryKind = None,
    results: options.Results = Path("results"),
    move_aside: options.MoveAside = False,
    no_data_processing: options.NoData = False,
    retry_failed: options.RetryFailed = None,
    fail_fast: options.FailFast = False,
    take_over: options.TakeOver = False,
    probe: options.Probe = False,
    find_batch: options.FindBatch = False,
    executor: options.Executor = None,
    parallel: options.Parallel = "1",
    gpus: options.RunGpus = None,
    confirm_above: options.ConfirmAbove = 8.0,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
    as_json: options.AsJson = False,
    json_lines: options.JsonLines = False,
    commands: options.AsCommands = False,
) -> None:
    """Run what is missing in the results folder, then write its report."""
    if not dry_run:
        _refuse_views_of_plans(as_json=as_json, commands=commands)
    from orchestrator import campaign

    suite = _load(scenarios, defaults, accelerate, frameworks, executor=executor)
    starter, copies = executor or suite.executor, campaign.parallel_of(parallel)
    campaign.refuse_options_of_local(starter, parallel=copies, gpus=gpus)
    _use_only(gpus)
    selection = _select(scenarios, scenario, axis, settings, num_gpus, trainer=trainer, repeats=repeats, memory=memory)
    planned = _expand(suite, selection)
    if dry_run:
        _show_plan(planned, as_json=as_json, commands=commands)
        return None if as_json or commands or move_aside else _show_what_stands(planned, results, retry_failed)
    retry = campaign.retry_of(retry_failed)
    way = campaign.Way(
        prepare=not no_data_processing,
        retry=retry,
        fail_fast=fail_fast,
        take_over=take_over,
        executor=starter,
        parallel=copies,
        probe=probe,
    )
    campaign.refuse_empty(planned)
    for sentence in planned.notes:
        tell(f"note: {sentence}")
    confirm(campaign.gpu_hours(planned, results, move_aside=move_aside), above=confirm_above, yes=yes)
    store = campaign.open_results(results, move_aside=move_aside, suite=suite, argv=sys.argv[1:], say=err.print)
    if find_batch:
        for line in campaign.batch_lines(campaign.find_batches(planned, store, way=way, console=err)):
            say(line)
        return
    store.add(planned.experiments)
    campaign.note_asked(store, planned, suite=suite, selection=selection)
    lines = (lambda text: print_raw([text])) if json_lines else None
    began = time.time()
    summary = campaign.carry_out(planned, store, way=way, console=err, json_lines=lines)
    for sentence in campaign.remarks(planned, store, summary, since=began, retry=retry):
        tell(f"note: {sentence}")
    write_report([results], keep=(), drop=(), form=None if json_lines else options.Format.TABLE)
    raise typer.Exit(summary.exit_code)


def _load(
    scenarios: Path | None,
    defaults: Path | None,
    accelerate: Path | None,
    frameworks: Path | None,
    *,
    executor: str | None = None,
) -> Suite:
    from orchestrator.config import load_suite, shipped_folder

    file = scenarios or shipped_folder() / "scenarios.yaml"
    suite = load_suite(file, defaults=defaults, accelerate=accelerate, frameworks=frameworks)
    if (executor or suite.executor) != "local":  # a plan loads no executor, and `local` is there
        from orchestrator.campaign import refuse_unknown_executor

        refuse_unknown_executor(suite, executor)
    return suite


def _refuse_views_of_plans(*, as_json: bool, commands: bool) -> None:
    if as_json or commands:
        said = "--json-lines tells of each run as it goes, and `tunebench report --format json` of the results"
        raise SelectionError(f"{'--json' if as_json else '--commands'} shows a plan: add --dry-run; {said}")


def _show_what_stands(planned: Plan, results: Path, retry_failed: str | None) -> None:
    from orchestrator import results_folder

    if results_folder.is_ours(results):
        from orchestrator import campaign

        say(campaign.due_line(planned, results, retry=campaign.retry_of(retry_failed)))


def _use_only(gpus: str | None) -> None:
    """For this process and its runs. What names no GPU that it may use is refused, as CUDA would ignore it in silence."""
    if gpus is None:
        return
    from orchestrator.gpus import chosen, visible_gpus

    picked = chosen(gpus, visible_gpus(), option="--gpus")
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in picked)


def _select(
    file: Path | None,
    names: list[str] | None,
    axes: list[str] | None,
    settings: list[str] | None,
    num_gpus: str | None,
    *,
    trainer: str | None,
    repeats: int | None,
    memory: options.Memory | None,
) -> Selection:
    from orchestrator.selection import parse_selection, whole_numbers

    return parse_selection(
        scenarios=names or ([QUICKSTART] if file is None else []),
        axes=axes or (),
        settings=settings or (),
        num_gpus=whole_numbers(num_gpus, option="--num-gpus") if num_gpus else None,
        trainer=trainer,
        repeats=repeats,
        monitors=options.MONITORS_OF[memory] if memory else None,
    )


def _expand(suite: Suite, selection: Selection) -> Plan:
    from orchestrator.matrix import expand
    from orchestrator.provenance import this_machine

    return expand(suite, selection, this_machine())


def _show_plan(
    planned: Plan, *, as_json: bool, commands: bool, fit: bool = False, gpu_memory: str | None = None
) -> None:
    from orchestrator import plan_view

    card = plan_view.card(fit=fit, gpu_memory=gpu_memory)
    if as_json:
        print_raw(plan_view.json_document(planned, sys.executable, fit=card))
    elif commands:
        print_raw(plan_view.command_lines(planned.experiments, sys.executable))
    else:
        out.print(plan_view.table(planned, width=out.width, fit=card))
        for line in plan_view.summary(planned, fit=card):
            say(line)
