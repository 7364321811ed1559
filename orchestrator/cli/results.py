"""What is looked at once runs were made: `report`, `show`, `status`; and `cancel`, which ends runs from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator import options
from orchestrator.cli.console import out, print_raw, say, tell
from orchestrator.errors import OrchestratorError


def report(
    folders: options.Folders,
    keep: options.Keep = None,
    drop: options.Drop = None,
    form: Annotated[options.Format, typer.Option("--format")] = options.Format.TABLE,
) -> None:
    """Make the report of results folders again, at any time."""
    write_report(folders, keep=_words(keep), drop=_words(drop), form=form)


def show(
    experiment: Annotated[str, typer.Argument(help="An experiment's id, or a part of it that no other has.")],
    results: options.Results = Path("results"),
    lines: Annotated[int, typer.Option("--lines", min=0, help="Lines of each log's end.")] = 20,
) -> None:
    """Print one experiment's facts, its command, and the end of its logs."""
    from orchestrator.experiment_view import experiment_view
    from orchestrator.store import Store

    for part in experiment_view(Store.resume(results), experiment, lines=lines):
        say(part)


def status(folder: options.Folder, watch: options.Watch = False, as_json: options.AsJson = False) -> None:
    """Show where a campaign stands, and how long it may still take."""
    from orchestrator import asked, status_view
    from orchestrator.status import Reader, looks, pause_on
    from orchestrator.stop_signals import StopSignals
    from orchestrator.store import Store

    if watch and as_json:
        raise OrchestratorError("--watch and --json: give one of them; `--json` prints one document")
    store = Store.resume(folder)
    reader = Reader(store, only=asked.current(store.root))
    if as_json:
        print_raw([status_view.as_json(reader.look())])
    elif not watch:
        status_view.show(reader.look(), out, title=str(folder))
    else:
        with StopSignals() as stop:
            status_view.follow(looks(reader, pause=pause_on(stop)), out, title=str(folder))


def cancel(folder: options.Folder, experiments: options.Running = None) -> None:
    """End running runs from outside; each leaves a cancelled record, and the next `tunebench run` owes it again."""
    from orchestrator import cancel as ending
    from orchestrator.store import Store

    store, answers = Store.resume(folder), []
    for answer in ending.cancel(store, experiments or ()):
        say(str(answer))
        answers.append(answer)
    if not answers:
        say(ending.nothing_runs(store, experiments or ()))
    raise typer.Exit(1 if any(one.end is not ending.End.ENDED for one in answers) else 0)


def write_report(
    folders: list[Path], *, keep: tuple[str, ...], drop: tuple[str, ...], form: options.Format | None
) -> None:
    """`form` None: the files alone, nothing on stdout."""
    from orchestrator import campaign

    table = campaign.load_table(folders)
    for warning in (*table.warnings, *campaign.unknown_columns(table, (*keep, *drop))):
        tell(f"warning: {warning}")
    if form is options.Format.TABLE:
        out.print(campaign.terminal_table(table, keep=keep, drop=drop, width=out.width))
    elif form is not None:
        print_raw([campaign.report_text(table, form.value, keep=keep, drop=drop)])
    for path in campaign.write_reports(table, folders, keep=keep, drop=drop):
        tell(f"wrote {path}")


def _words(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(word for text in texts or () for word in text.split(",") if word)
