"""The commands about a results folder: `report`, `show`, `status`, `export`, `bundle`, and `cancel`, which stops its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from orchestrator.cli import options
from orchestrator.cli.options import ReportOptions, given_price, takes
from orchestrator.cli.terminal import streams
from orchestrator.cli.terminal.console import out, print_raw, say, tell, tell_warnings, words
from orchestrator.errors import OrchestratorError, ResultsError
from orchestrator.report.format import Format

if TYPE_CHECKING:
    from orchestrator.report.write import Report, Write


class Target(StrEnum):
    """The trackers that can receive runs."""

    TENSORBOARD = "tensorboard"
    MLFLOW = "mlflow"
    WANDB = "wandb"
    TRACKIO = "trackio"


@takes(ReportOptions)
def report(choices: ReportOptions) -> None:
    """Write the report of results folders again, at any time."""
    from orchestrator.report import write as reporting

    forms = reporting.forms_of(choices.form)
    write = reporting.writer(choices.folders, choices.output)
    if write is None and reporting.are_files(forms):
        raise OrchestratorError(
            "without --output, files are written only into a single results folder of Tunebench; name a folder with --output"
        )
    plain = reporting.report_of(
        choices.folders,
        keep=words(choices.keep),
        drop=words(choices.drop),
        baseline=choices.baseline or (),
        pivot=choices.pivot,
        group_by=choices.group_by,
        price=given_price(choices.price),
    )
    made = reporting.with_findings(plain)
    _warn(made)
    _show(made, forms)
    looks_only = reporting.is_one_text(forms) and choices.output is None
    for line in _remade(made, forms, write) if write and not looks_only else ():
        tell(line)


def show(
    experiment: Annotated[
        str, Argument(help="Experiment: its id, a unique part of it, or a value that only this experiment has.")
    ],
    results: options.Results = options.RESULTS,
    lines: Annotated[int, Option(min=0, help="Number of last lines to print of each log.")] = 20,
) -> None:
    """Print an experiment's command, its facts, a table of its runs, and the last lines of its logs."""
    from orchestrator.report.experiment import experiment_view
    from orchestrator.results.store import Store

    for part in experiment_view(Store.resume(results), experiment, lines=lines):
        say(part)


def status(
    folder: options.Folder,
    watch: Annotated[bool, Option("--watch", help="Update the view until everything is done.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the state of a campaign's runs, and how long the remaining runs may take."""
    from orchestrator.campaign.status import view
    from orchestrator.campaign.status.campaign import Reader, looks, pause_on
    from orchestrator.campaign.status.cluster_queue import ClusterQueue
    from orchestrator.machine.stop_signals import StopSignals
    from orchestrator.results import requested
    from orchestrator.results.store import Store

    if watch and as_json:
        raise OrchestratorError(
            "--watch and --json cannot be combined, because --json prints one document; leave out one of the two"
        )
    store = Store.resume(folder)
    reader = Reader(store, only=requested.current(store.root), queue=ClusterQueue(store.root))
    if as_json:
        print_raw([view.as_json(reader.look())])
    elif not watch:
        view.show(reader.look(), out(), title=str(folder))
    else:
        with StopSignals() as stop:
            pause = pause_on(stop)
            shown = looks(reader, pause=lambda seconds: pause(seconds) or streams.is_lost())
            view.follow(shown, out(), title=str(folder))


def cancel(
    folder: options.Folder,
    experiments: Annotated[
        list[str] | None, Argument(help="Experiments: ids, or unique parts of them. [default: all that are running]")
    ] = None,
) -> None:
    """Stop running experiments. Their runs are recorded as cancelled, and the next `tunebench run` repeats these runs."""
    from orchestrator.campaign import cancel as ending
    from orchestrator.results.store import Store

    store, answers = Store.resume(folder), []
    for answer in ending.cancel(store, experiments or ()):
        say(str(answer))
        answers.append(answer)
    if not answers:
        say(ending.nothing_runs(store, experiments or ()))
    raise typer.Exit(1 if any(answer.end is not ending.End.ENDED for answer in answers) else 0)


def _remade(made: Report, forms: Sequence[Format], write: Write) -> Iterator[str]:
    """Write the files of the requested formats, and yield a line for each file. Raise ResultsError if one cannot be written.

    If no format is requested, write the CSV files and the page. If a pivot or a grouping is requested (`--pivot`, `--group-by`),
    write nothing.
    """
    from orchestrator.report import write as reporting

    if reporting.are_files(forms):
        yield from _written(made, forms, write)
    elif made.view is None:
        yield from _written(made, (Format.CSV,), write)
        if not reporting.is_one_text(forms):
            written, problem = _page(made, write)
            if problem:
                raise ResultsError(problem)
            yield written


def write_report(folders: list[Path], *, keep: tuple[str, ...], drop: tuple[str, ...], form: Format | None) -> None:
    """Write the report at the end of a campaign, the CSV files first. If `form` (the format) is None, print nothing on stdout."""
    from orchestrator.report import write as reporting

    made = reporting.report_of(folders, keep=keep, drop=drop)
    write = reporting.writer(folders, None)
    lines = [*_written(made, (Format.CSV,), write)] if write else []
    found, problem = reporting.or_sentence(partial(reporting.with_findings, made), what="the findings")
    _warn(made, problem)
    if form is not None:
        _show(found or made, (form,))
    for line in lines:
        tell(line)
    if write:
        written, problem = _page(found or made, write)
        tell(f"warning: {problem}" if problem else written)


def _warn(made: Report, problem: str | None = None) -> None:
    from orchestrator.report.write import unknown_columns

    sentences = (*made.table.warnings, *unknown_columns(made.table, (*made.keep, *made.drop)))
    tell_warnings((*sentences, *([problem] if problem else [])))


def _show(made: Report, forms: Sequence[Format]) -> None:
    """If one text format is requested, print the report in this format. If the table or no format is requested, print the table."""
    from orchestrator.report import write as reporting

    if reporting.is_one_text(forms):
        print_raw([reporting.as_text(made, forms[0])])
    elif not forms or Format.TABLE in forms:
        out().print(reporting.on_terminal(made, width=out().width))


def _written(made: Report, forms: Sequence[Format], write: Write) -> Iterator[str]:
    from orchestrator.report import write as reporting

    yield from (f"wrote {write(name, content())}" for name, content in reporting.files(made, forms))


def _page(made: Report, write: Write) -> tuple[str, str | None]:
    """Write the page. Return a line with its path, and a sentence that says why it cannot be written, if it cannot."""
    from orchestrator.report import write as reporting

    path, problem = reporting.or_sentence(lambda: write(reporting.PAGE, reporting.page(made)), what="the page")
    return f"wrote {path}", problem


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

    done = hand_over(folder, to=to.value, destination=destination, project=experiment, say=tell)
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

    done = packing.bundle(folder, output=output, whole_logs=whole_logs, say=tell)
    tell_warnings(done.warnings)
    for line in packing.summary(done):
        say(line)
