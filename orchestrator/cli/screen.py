"""The command `screen`, which measures this machine, and `run --screen`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from orchestrator.cli import options
from orchestrator.cli.terminal.console import out, print_raw, tell
from orchestrator.errors import SelectionError

if TYPE_CHECKING:
    from orchestrator.plan.expand import Plan
    from orchestrator.results.store import Store


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
