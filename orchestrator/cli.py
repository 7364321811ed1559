"""The command `tunebench`: its sub-commands, its options, its exit codes. The only module that prints or exits.

`run` reads like the journey of a campaign: load the suite, expand it, open the results folder, prepare the data, run what is
due, report. Exit codes: 0; 1 when an experiment failed (`doctor`, `monitor`: when this machine lacks something); 2 for a mistake of
the user's; 130 interrupted. What a sub-command alone needs (pandas, the store's readers) is imported inside it, so that `--help`
and `plan` cost little.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from orchestrator import options
from orchestrator.errors import OrchestratorError
from orchestrator.printable import printable
from orchestrator.redact import redact

if TYPE_CHECKING:
    from orchestrator.config import Suite
    from orchestrator.matrix import Plan
    from orchestrator.selection import Selection

app = typer.Typer(
    name="tunebench",
    help="Benchmarks of LLM fine-tuning: YAML scenarios in, a matrix of real training runs, a CSV report out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class _Output(Console):
    """A reader who leaves early (`| head`) ends neither a campaign nor its report: what follows goes nowhere.

    Names and logs may hold what steers a terminal: of all that is printed, only rich's own codes do.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


out = _Output(highlight=False)
err = _Output(stderr=True, highlight=False)

QUICKSTART = "quickstart"
INTERRUPTED = 130


@app.command()
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


@app.command()
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
    _use_only(gpus)
    suite = _load(scenarios, defaults, accelerate, frameworks)
    selection = _select(scenarios, scenario, axis, settings, num_gpus, trainer=trainer, repeats=repeats, memory=memory)
    planned = _expand(suite, selection)
    if dry_run:
        return _show_plan(planned, as_json=as_json, commands=commands)
    from orchestrator import campaign

    retry = campaign.retry_of(retry_failed)
    way = campaign.Way(
        prepare=not no_data_processing,
        retry=retry,
        fail_fast=fail_fast,
        take_over=take_over,
        parallel=campaign.parallel_of(parallel),
        probe=probe,
    )
    campaign.refuse_empty(planned)
    for note in planned.notes:
        err.print(f"note: {note}", markup=False, soft_wrap=True)
    _confirm(campaign.gpu_hours(planned, results, move_aside=move_aside), confirm_above, yes=yes)
    store = campaign.open_results(results, move_aside=move_aside, suite=suite, argv=sys.argv[1:], say=err.print)
    if find_batch:
        for line in campaign.batch_lines(campaign.find_batches(planned, store, way=way, console=err)):
            out.print(line, markup=False, soft_wrap=True)
        return
    store.add(planned.experiments)
    campaign.note_asked(store, planned, suite=suite, selection=selection)
    lines = (lambda text: _print_raw([text])) if json_lines else None
    summary = campaign.carry_out(planned, store, way=way, console=err, json_lines=lines)
    _report([results], keep=(), drop=(), form=None if json_lines else options.Format.TABLE)
    raise typer.Exit(summary.exit_code)


@app.command()
def report(
    folders: options.Folders,
    keep: options.Keep = None,
    drop: options.Drop = None,
    form: Annotated[options.Format, typer.Option("--format")] = options.Format.TABLE,
) -> None:
    """Make the report of results folders again, at any time."""
    _report(folders, keep=_words(keep), drop=_words(drop), form=form)


@app.command()
def show(
    experiment: Annotated[str, typer.Argument(help="An experiment's id, or a part of it that no other has.")],
    results: options.Results = Path("results"),
    lines: Annotated[int, typer.Option("--lines", min=0, help="Lines of each log's end.")] = 20,
) -> None:
    """Print one experiment's facts, its command, and the end of its logs."""
    from orchestrator.experiment_view import experiment_view
    from orchestrator.store import Store

    for part in experiment_view(Store.resume(results), experiment, lines=lines):
        out.print(part, markup=False, soft_wrap=True)


@app.command()
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
        _print_raw([status_view.as_json(reader.look())])
    elif not watch:
        status_view.show(reader.look(), out, title=str(folder))
    else:
        with StopSignals() as stop:
            status_view.follow(looks(reader, pause=pause_on(stop)), out, title=str(folder))


@app.command()
def cancel(folder: options.Folder, experiments: options.Running = None) -> None:
    """End running runs from outside; each leaves a cancelled record, and the next `tunebench run` owes it again."""
    from orchestrator import cancel as ending
    from orchestrator.store import Store

    store, answers = Store.resume(folder), []
    for answer in ending.cancel(store, experiments or ()):
        out.print(str(answer), markup=False, soft_wrap=True)
        answers.append(answer)
    if not answers:
        out.print(ending.nothing_runs(store, experiments or ()), markup=False, soft_wrap=True)
    raise typer.Exit(1 if any(one.end is not ending.End.ENDED for one in answers) else 0)


@app.command()
def doctor(
    as_json: options.AsJson = False,
    python: Annotated[str | None, typer.Option("--python", help="Interpreter of the environment that trains.")] = None,
) -> None:
    """Say what this machine can run, and what to do about what is missing."""
    from orchestrator import doctor as examination

    findings = examination.examine(python)
    if as_json:
        _print_raw([examination.as_json(findings)])
    else:
        out.print(examination.as_table(findings))
    raise typer.Exit(1 if any(finding.level is examination.Level.MISSING for finding in findings) else 0)


@app.command()
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
            err.print(f"error: {machine.nvml_problem()}", markup=False, soft_wrap=True)
            raise typer.Exit(1)
        watch = gpu_watch.Watch(nvml, gpu_watch.chosen(nvml, gpus))
        views = gpu_watch.views(watch, interval_s=interval, stopped=lambda: bool(stop.received or out.quiet))
        shown = islice(views, 1 if once else None)
        if not as_json:
            return monitor_view.follow(shown, out)
        for view in shown:
            _print_raw([monitor_view.as_json(view)])


@app.command()
def schema() -> None:
    """Print the JSON Schema of the scenario file."""
    from orchestrator.config import schema_text

    _print_raw([schema_text()])


@app.command()
def init(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist yet.")] = Path("scenarios.yaml"),
) -> None:
    """Write a commented starter scenario file."""
    from orchestrator.starter import write_starter

    write_starter(file)
    out.print(f"Wrote {file}. Next: tunebench plan {file}", markup=False, soft_wrap=True)


@app.command(name="run-one", hidden=True)
def run_one(run_dir: Path) -> None:
    """Run one claimed job; every executor starts this."""
    from orchestrator.process import adopt_orphans
    from orchestrator.runner import run_one as carry_out_one

    adopt_orphans()
    raise typer.Exit(0 if carry_out_one(run_dir).status == "ok" else 1)


def _load(scenarios: Path | None, defaults: Path | None, accelerate: Path | None, frameworks: Path | None) -> Suite:
    from orchestrator.config import load_suite, shipped_folder

    file = scenarios or shipped_folder() / "scenarios.yaml"
    return load_suite(file, defaults=defaults, accelerate=accelerate, frameworks=frameworks)


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
        _print_raw(plan_view.json_document(planned, sys.executable, fit=card))
    elif commands:
        _print_raw(plan_view.command_lines(planned.experiments, sys.executable))
    else:
        out.print(plan_view.table(planned, width=out.width, fit=card))
        for line in plan_view.summary(planned, fit=card):
            out.print(line, markup=False, soft_wrap=True)


def _confirm(gpu_hours: float, above: float, *, yes: bool) -> None:
    if yes or gpu_hours <= above:
        return
    question = f"This campaign may take {gpu_hours:.1f} GPU-hours (more than --confirm-above {above:g}). Start it?"
    if not sys.stdin.isatty():
        raise OrchestratorError(f"{question} Nobody is here to answer: add --yes.")
    if not typer.confirm(question, err=True):
        raise OrchestratorError("Not started.")


def _report(folders: list[Path], *, keep: tuple[str, ...], drop: tuple[str, ...], form: options.Format | None) -> None:
    """`form` None: the files alone, nothing on stdout."""
    from orchestrator import campaign

    table = campaign.load_table(folders)
    for warning in (*table.warnings, *campaign.unknown_columns(table, (*keep, *drop))):
        err.print(f"warning: {warning}", markup=False, soft_wrap=True)
    if form is options.Format.TABLE:
        out.print(campaign.terminal_table(table, keep=keep, drop=drop, width=out.width))
    elif form is not None:
        _print_raw([campaign.report_text(table, form.value, keep=keep, drop=drop)])
    for path in campaign.write_reports(table, folders, keep=keep, drop=drop):
        err.print(f"wrote {path}", markup=False, soft_wrap=True)


def _words(texts: list[str] | None) -> tuple[str, ...]:
    return tuple(word for text in texts or () for word in text.split(",") if word)


def _print_raw(pieces: Iterable[str]) -> None:
    """Text for another program: as it is, unwrapped; on a terminal, what steers it is made visible."""
    on_terminal = sys.stdout.isatty()
    try:
        for piece in pieces:
            sys.stdout.write(printable(piece) if on_terminal else piece)
        sys.stdout.flush()
    except BrokenPipeError:
        out.on_broken_pipe()


def main() -> Any:
    """Entry point: every known mistake ends as sentences on stderr and exit code 2."""
    try:
        code = app(args=_with_optional_values(sys.argv[1:]), standalone_mode=False)
    except OrchestratorError as error:
        for line in redact(str(error)).splitlines():
            err.print(f"error: {line}", markup=False, soft_wrap=True)
        code = 2
    except Exception as error:
        code = _usage_error(error)
    if code == INTERRUPTED:
        err.print("Interrupted. What is done is kept; the same command resumes (without --move-aside).", soft_wrap=True)
    sys.exit(code if isinstance(code, int) else 0)


def _with_optional_values(words: list[str]) -> list[str]:
    """`--retry-failed` may stand alone, which the parser has no notion of: then it means all kinds."""
    if "--retry-failed" not in words:
        return words
    from orchestrator.failures import KINDS

    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        alone = word == "--retry-failed" and not {*following.split(",")} <= {*KINDS, "all"}
        found += [f"{word}=all"] if alone else [word]
    return found


def _usage_error(error: Exception) -> int:
    """typer's own mistakes (unknown option, missing argument) shown as it shows them; anything else is a defect of ours."""
    if hasattr(error, "show") and hasattr(error, "exit_code"):
        error.show()
        return int(error.exit_code)
    sys.excepthook = _without_secrets
    if type(error).__name__ == "Abort":  # what older versions of typer make of Ctrl-C; today's give the code itself
        return INTERRUPTED
    raise error


def _without_secrets(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A defect of ours is told whole, but for secrets: its traceback may stand in a run's `run-one.log`."""
    from traceback import format_exception

    err.file.write(redact("".join(format_exception(kind, error, trace))))
