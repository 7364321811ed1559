"""What concerns this machine alone: `doctor` and `monitor`; and `run-one`, which every executor starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator import options
from orchestrator.cli.console import out, print_raw, tell


def doctor(
    as_json: options.AsJson = False,
    python: Annotated[str | None, typer.Option("--python", help="Interpreter of the environment that trains.")] = None,
) -> None:
    """Say what this machine can run, and what to do about what is missing."""
    from orchestrator import doctor as examination

    findings = examination.examine(python)
    if as_json:
        print_raw([examination.as_json(findings)])
    else:
        out.print(examination.as_table(findings))
    raise typer.Exit(1 if any(finding.level is examination.Level.MISSING for finding in findings) else 0)


def monitor(
    gpus: options.GpuNames = None,
    interval: options.Interval = 1.0,
    once: options.Once = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Show what the GPUs are at, alone or beside a running benchmark; Ctrl-C ends it."""
    from itertools import islice

    from orchestrator import gpu_watch, monitor_view
    from orchestrator import gpus as machine
    from orchestrator.stop_signals import StopSignals

    interval = gpu_watch.pace(interval)
    with machine.nvml_session() as nvml, StopSignals() as stop:
        if nvml is None or not machine.every_gpu(nvml):
            tell(f"error: {machine.nvml_problem()}")
            raise typer.Exit(1)
        watch = gpu_watch.Watch(nvml, gpu_watch.chosen(nvml, gpus))
        views = gpu_watch.views(watch, interval_s=interval, stopped=lambda: bool(stop.received or out.quiet))
        shown = islice(views, 1 if once else None)
        if not as_json:
            return monitor_view.follow(shown, out)
        for view in shown:
            print_raw([monitor_view.as_json(view)])


def run_one(run_dir: Path) -> None:
    """Run one claimed job; every executor starts this."""
    from orchestrator.runner import run_one as carry_out_one
    from orchestrator.tree import adopt_orphans

    adopt_orphans()
    raise typer.Exit(0 if carry_out_one(run_dir).status == "ok" else 1)
