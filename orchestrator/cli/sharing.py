"""What takes results elsewhere: `export` to a tracker, `bundle` into one file for other people."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from orchestrator import options
from orchestrator.cli.console import say, tell


class Target(StrEnum):
    """The trackers that runs can be handed to."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"
    TRACKIO = "trackio"


def export(
    folder: options.Folder,
    to: Annotated[Target, typer.Option("--to", help="The tracker; its package is an extra of ours.")],
    destination: Annotated[
        str | None, typer.Option("--dest", help="Folder, or the tracking server's address (mlflow).")
    ] = None,
    experiment: Annotated[
        str | None,
        typer.Option("--experiment", help="The tracker's experiment or project; the folder's name when left out."),
    ] = None,
) -> None:
    """Hand the runs of a results folder to a tracker; runs that are there already are left as they are."""
    from orchestrator.export import export as hand_over

    done = hand_over(folder, to=to.value, destination=destination, project=experiment)
    for warning in done.warnings:
        tell(f"warning: {warning}")
    say(f"{done.new} new run(s), {done.already} there already: {done.place}")


def bundle(
    folder: options.Folder,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="File to write; it must not exist yet. NAME-bundle.tar.gz when left out."),
    ] = None,
    whole_logs: Annotated[bool, typer.Option("--whole-logs", help="Take logs whole, not their ends alone.")] = False,
) -> None:
    """Put a campaign into one file for others: without secrets, host and user names, and addresses."""
    from orchestrator import bundle as packing

    for line in packing.summary(packing.bundle(folder, output=output, whole_logs=whole_logs)):
        say(line)
