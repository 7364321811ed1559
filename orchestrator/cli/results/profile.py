"""The command `profile`: where the time of a profiled step goes, and what differs between two profiles."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from orchestrator.cli import options
from orchestrator.cli.terminal.console import out
from orchestrator.errors import SelectionError


def profile(
    sides: Annotated[
        list[str],
        Argument(
            metavar="PROFILE [NEW]",
            help="An experiment, by its id, a unique part of it, or a value that only it has; a folder with one; or a trace "
            "file. With two of them, the second is compared with the first.",
        ),
    ],
    results: options.Results = options.RESULTS,
    rank: Annotated[int, Option(min=0, help="Rank of the process whose trace is read.")] = 0,
    snapshot: Annotated[
        bool,
        Option("--snapshot", help="Show what holds the GPU's memory at its peak, from the monitor memory_snapshot."),
    ] = False,
) -> None:
    """Show which kernels a step's time goes to, from traces of the monitor torch_profiler, or compare two profiles."""
    from orchestrator.cli.results.profile_command import command_of
    from orchestrator.report.profile import memory as snapshots
    from orchestrator.report.profile import view
    from orchestrator.report.profile.places import SNAPSHOT, trace_of
    from orchestrator.report.profile.trace import read

    if len(sides) > 2:
        raise SelectionError(f"{len(sides)} profiles were named; name one, or two to compare")
    if snapshot:
        for word in sides:
            path = trace_of(word, results=results, rank=rank, kind=SNAPSHOT, command_of=command_of)
            out().print(view.of_memory(snapshots.read(path), title=str(path)), crop=False)
        return
    paths = [trace_of(word, results=results, rank=rank, command_of=command_of) for word in sides]
    profiles = [read(path) for path in paths]
    if len(profiles) == 1:
        shown = view.of_one(profiles[0], title=str(paths[0]))
    else:
        shown = view.of_two(profiles[0], profiles[1], names=(str(paths[0]), str(paths[1])))
    out().print(shown, crop=False)  # a path is longer than some terminals
