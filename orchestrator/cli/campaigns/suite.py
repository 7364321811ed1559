"""From the options of a command to its plan: load the scenario file, choose from it, and expand it for a machine."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.cli.options import (
    MONITORS_OF,
    RESULTS,
    PlanOptions,
    RunOptions,
    StartOptions,
    SuiteOptions,
    given_price,
)
from orchestrator.cli.terminal.console import tell, words
from orchestrator.errors import SelectionError
from orchestrator.files.printable_text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.campaign.environments import Hold
    from orchestrator.executors.slurm.site import Site
    from orchestrator.machine.provenance import Machine
    from orchestrator.plan.config import Suite
    from orchestrator.plan.expand import Plan
    from orchestrator.plan.selection import Selection
    from orchestrator.records.price import Price

QUICKSTART = "quickstart"


def loaded(options: SuiteOptions) -> Suite:
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


def selection_of(options: SuiteOptions) -> Selection:
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


def price_of(options: PlanOptions | StartOptions) -> Price | None:
    """Return the price of `--price`, else that of the site file, else the one that was given for the results folder before."""
    from orchestrator.plan.config.site_file import site_price
    from orchestrator.results import folder
    from orchestrator.results.table.sources import costs

    price = given_price(options.price) or site_price(options.scenarios)
    is_new = options.assume if isinstance(options, PlanOptions) else options.move_aside
    return price or (None if is_new else costs.price_of(folder.read_suite(options.results or RESULTS) or {}))


def price_notes(options: StartOptions, planned: Plan) -> Iterator[str]:
    """Yield a note if `--price` is per GPU-hour, and no experiment uses a GPU."""
    from orchestrator.records import Device
    from orchestrator.records.price import Per

    price = given_price(options.price)
    if price and price.per is Per.GPU_HOUR and all(one.device is not Device.CUDA for one in planned.experiments):
        yield f"{price} counts GPUs only, so these runs are without a cost; for CPUs, write a price such as 20USD/nodeh"


def with_executor(suite: Suite, options: PlanOptions | RunOptions) -> tuple[Suite, Site | None]:
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


def machine_of(assume: str | None, site: Site | None) -> Machine:
    """Return this machine, or the machine that `--assume` describes, or a node of the site's cluster."""
    if assume is not None:
        from orchestrator.plan.forecast.assumed_machine import assumed_machine

        return assumed_machine(assume)
    if site is not None:
        from orchestrator.plan.forecast.assumed_machine import node_of

        return node_of(site)
    from orchestrator.machine.provenance import this_machine

    return this_machine()


def expanded(suite: Suite, selection: Selection, machine: Machine, site: Site | None) -> Plan:
    """Return the plan. If the GPUs of a cluster's nodes are unknown, a note says what is not checked."""
    from orchestrator.plan.expand import expand

    planned = expand(suite, selection, machine)
    if site is None or machine.gpus_known or all(scenario.device == "cpu" for scenario in suite.scenarios):
        return planned
    from orchestrator.plan.forecast.assumed_machine import node_note

    return replace(planned, notes=(*planned.notes, node_note(site)))


def with_environments(
    suite: Suite, selection: Selection, machine: Machine, site: Site | None, *, hold: Hold | None
) -> tuple[Plan, int]:
    """Build what is missing and hold it, unless `hold` is None. Return two values: the plan, and how many builds failed."""
    planned = expanded(suite, selection, machine, site)
    if hold is None or all(one.environment is None for one in planned.experiments):
        return planned, 0
    from orchestrator.campaign.environments import with_environments

    again = partial(expanded, suite, selection, machine, site)
    return with_environments(planned, suite, again=again, say=tell, hold=hold)


def without_what_cannot_run(planned: Plan, machine: Machine) -> Plan:
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
