"""The commands `export`, which sends runs to a tracker, and `bundle`, which packs a campaign into one file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Option

from orchestrator.cli import options
from orchestrator.cli.console import say, tell, tell_warnings


class Target(StrEnum):
    """The trackers that can receive runs."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"
    TRACKIO = "trackio"


def export(
    folder: options.Folder,
    to: Annotated[Target, Option(help="Tracker; install it with pip install 'tunebench[NAME]'.")],
    destination: Annotated[
        str | None, Option("--dest", help="Folder for the export, or address of a tracking server (mlflow only).")
    ] = None,
    experiment: Annotated[
        str | None, Option(help="Experiment or project in the tracker. [default: the folder's name]")
    ] = None,
) -> None:
    """Send the runs of a results folder to a tracker. Runs that the tracker already has stay unchanged."""
    from orchestrator.report.export import export as hand_over

    done = hand_over(folder, to=to.value, destination=destination, project=experiment)
    tell_warnings(done.warnings)
    say(f"{done.new} new run(s), {done.already} there already: {done.place}")


def bundle(
    folder: options.Folder,
    output: Annotated[
        Path | None, Option(help="File to write; it must not exist. [default: NAME-bundle.tar.gz]")
    ] = None,
    whole_logs: Annotated[bool, Option("--whole-logs", help="Include complete logs instead of their ends.")] = False,
) -> None:
    """Pack a campaign into one file for other people. The file has no secrets, no addresses, and no names of hosts or users."""
    from orchestrator.report import bundle as packing

    for line in packing.summary(packing.bundle(folder, output=output, whole_logs=whole_logs, say=tell)):
        say(line)
