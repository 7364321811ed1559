"""The commands `doctor`, `monitor`, `screen` and `site`, which examine machines, `run --screen`, and the commands of executors."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from orchestrator.cli import options
from orchestrator.cli.terminal import streams
from orchestrator.cli.terminal.console import out, print_raw, tell
from orchestrator.errors import SelectionError

if TYPE_CHECKING:
    from orchestrator.executors.slurm.cluster.probe import Probed
    from orchestrator.plan.expand import Plan
    from orchestrator.results.store import Store


class SiteAction(StrEnum):
    """The things that `tunebench site` can do."""

    CHECK = "check"


def doctor(
    as_json: options.AsJson = False,
    python: Annotated[
        str | None, Option(help="Interpreter of the training environment. [default: Tunebench's own]")
    ] = None,
    executor: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="slurm: check a node of the cluster with one short job. The nodes must share the current folder.",
        ),
    ] = None,
) -> None:
    """Check what this machine can run, and say how to get what is missing."""
    from orchestrator.plan import doctor as examination

    if python is not None and not python.strip():
        raise SelectionError("--python is empty; give it the path of an interpreter, or leave it out")
    if executor not in (None, "local", "slurm"):
        raise SelectionError(f"--executor {executor}: only local and slurm can be checked")
    findings = examination.of_node(_probed(python)) if executor == "slurm" else examination.examine(python)
    if as_json:
        print_raw([examination.as_json(findings)])
    else:
        out().print(examination.as_table(findings))
    raise typer.Exit(1 if any(finding.level is examination.Level.MISSING for finding in findings) else 0)


def _probed(python: str | None) -> Probed:
    """Ask a node of the cluster, with one short job."""
    from orchestrator.executors.local import TUNEBENCH
    from orchestrator.executors.slurm.cluster.probe import probe, probe_folder
    from orchestrator.executors.slurm.site import Site
    from orchestrator.plan.config.site_file import load_site

    found = load_site(None)
    with probe_folder(Path.cwd()) as folder:
        tell("waiting for one job on the cluster")
        return probe(found.site if found else Site(), folder, command=(*TUNEBENCH, "probe-node"), python=python)


def probe_node(folder: Path, element: int) -> None:
    """Answer the question of `tunebench doctor --executor slurm`, on a node. Its batch script starts this command."""
    import os
    from dataclasses import asdict

    from orchestrator.executors.slurm.cluster import probe
    from orchestrator.machine import process_identity
    from orchestrator.plan import doctor as examination

    asked = probe.question(folder)
    python = asked.get("python")
    findings = examination.examine(python if isinstance(python, str) else None)
    node = os.environ.get("SLURMD_NODENAME") or process_identity.host_name()
    probe.answer(folder, asked, [asdict(finding) for finding in findings], node=node)


def monitor(
    gpus: Annotated[
        str | None, Option(help="Show only these GPUs: indices or UUIDs, separated by commas. [default: all]")
    ] = None,
    interval: Annotated[float, Option(help="Seconds between views, 0.1 to 60.")] = 1.0,
    once: Annotated[bool, Option("--once", help="Show one view and exit.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print a line of JSON for each view.")] = False,
) -> None:
    """Show what the GPUs are doing now, even during a benchmark. Ctrl-C ends the view."""
    from itertools import islice

    from orchestrator.campaign.gpu_monitor import readings
    from orchestrator.campaign.gpu_monitor import view as monitor_view
    from orchestrator.machine import gpus as machine
    from orchestrator.machine.stop_signals import StopSignals

    interval = readings.pace(interval)
    with machine.nvml_session() as nvml, StopSignals() as stop:
        if nvml is None or not machine.all_gpus(nvml):
            tell(f"error: {machine.nvml_problem()}")
            raise typer.Exit(1)
        watch = readings.Watch(nvml, readings.chosen(nvml, gpus))
        views = readings.views(watch, interval_s=interval, stopped=lambda: bool(stop.received or streams.is_lost()))
        shown = islice(views, 1 if once else None)
        if not as_json:
            return monitor_view.follow(shown, out())
        for view in shown:
            print_raw([monitor_view.as_json(view)])


def site(
    action: Annotated[SiteAction, typer.Argument(help="check: compare the site file with the cluster.")],
    scenarios: Annotated[
        Path | None,
        typer.Argument(help="Scenario file; a site.yaml next to it is used. [default: site.yaml in this folder]"),
    ] = None,
) -> None:
    """Compare the site file with the Slurm cluster: `tunebench site check`."""
    from orchestrator.executors.slurm.cluster import check, facts
    from orchestrator.executors.slurm.site import Site
    from orchestrator.plan.config.site_file import load_site
    from orchestrator.plan.forecast.assumed_machine import assumed_machine

    found = load_site(scenarios)
    given = found.site if found else Site()
    cluster = facts.ask()
    mistake = facts.prologue_mistake(given.prologue) if given.prologue else None
    node_gpus = len(assumed_machine(given.node).gpus) if given.node else None
    lines = check.compare(given, cluster, node_gpus=node_gpus, mistake=mistake)
    out().print(check.as_table(lines))
    raise typer.Exit(1 if any(line.level is check.Level.MISSING for line in lines) else 0)


def run_one(run_dir: Path) -> None:
    """Run one claimed job. Every executor starts this command."""
    from orchestrator.machine.process_tree import adopt_orphans
    from orchestrator.run.run_one import run_one as carry_out_one

    adopt_orphans()
    raise typer.Exit(0 if carry_out_one(run_dir).status == "ok" else 1)


def run_array(folder: Path, element: int) -> None:
    """Run one element of a submitted array. The batch script of the executor `slurm` starts this command."""
    from orchestrator.executors.slurm.batches import BatchFolder
    from orchestrator.executors.slurm.worker import carry_out

    carry_out(BatchFolder(folder.absolute()), element)


def screen(
    as_json: options.AsJson = False,
    python: Annotated[str | None, Option(help="Interpreter with torch. [default: Tunebench's own]")] = None,
) -> None:
    """Measure this machine's own figures, such as matmul and bandwidths, and say what is off.

    Exit code 1: a figure is off, or could not be measured.
    """
    from orchestrator.plan.placement import interpreter
    from orchestrator.screen import measure, stored
    from orchestrator.screen import view as screen_view

    if python is not None and not python.strip():
        raise SelectionError("--python is empty; give it the path of an interpreter, or leave it out")
    if not as_json:
        tell("measuring this machine; this takes up to a minute")
    found = measure.screen(interpreter(python, Path()))
    if as_json:
        print_raw([screen_view.as_json(found)])
    else:
        out().print(screen_view.view(found, stored_in=str(stored.folder_of(found.host))))
    raise typer.Exit(1 if screen_view.has_failed(found) else 0)


def refuse_screen(executor: str) -> None:
    """Raise SelectionError if the runs start on other machines than this one."""
    from orchestrator.executors import LOCAL

    if executor != LOCAL:
        raise SelectionError(
            f"--screen measures this machine, but executor {executor} starts the runs on others; leave --screen out, "
            "or write `tunebench screen` in a job there"
        )


def screen_before(planned: Plan, store: Store) -> None:
    """Measure this machine before a campaign. Store the figures in the results folder, and print what is off."""
    from orchestrator.screen import measure, stored
    from orchestrator.screen import view as screen_view

    tell("note: measuring the figures of this machine (--screen)")
    found = measure.screen(_interpreter(planned))
    store.write(f"{stored.FOLDER}/{stored.file_name(found)}", stored.text(found))
    for sentence in screen_view.warnings(found):
        tell(f"warning: {sentence}")


def _interpreter(planned: Plan) -> str | None:
    """Return the interpreter of the first experiment that can run here. A container's interpreter starts only inside."""
    able = (one for one in planned.experiments if one.skip is None and one.cannot_run_here is None)
    on_host = (one for one in able if one.environment is None or one.environment.container is None)
    return next((one.python for one in on_host), None)
