"""The commands `history`, which follows many campaigns, `rerun`, which repeats the inconclusive part of a comparison, and `bisect`.

`bisect` finds the commit at which a training became slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from orchestrator.cli import options
from orchestrator.cli.results.report_show_status import write_report
from orchestrator.cli.terminal.console import confirm, err, out, print_raw, say, tell, tell_warnings, words
from orchestrator.errors import SelectionError

if TYPE_CHECKING:
    from orchestrator.compare.bisect.checkout import Checkout
    from orchestrator.compare.comparison import Comparison
    from orchestrator.compare.rerun.rounds import Turn
    from orchestrator.executors.slurm.site import Site
    from orchestrator.plan.config import Suite
    from orchestrator.plan.selection import Selection


def history(
    places: Annotated[
        list[Path],
        Argument(
            help="Campaigns: results folders, folders that contain results folders, databases, or CSV files; sorted by date."
        ),
    ],
    output: Annotated[Path, Option(help="Folder for the files; not a results folder.")] = Path("history"),
    metrics: Annotated[
        list[str] | None, Option(help="Metrics to follow, separated by commas: METRIC or METRIC:lower.")
    ] = None,
    min_effect: Annotated[list[str] | None, Option(help="Smallest change to report: 0.02, or METRIC=0.05.")] = None,
    error_rate: Annotated[
        float, Option(help="Chance that a history shows a step if nothing changed, between 0 and 1.")
    ] = 0.05,
    by: options.By = None,
    as_json: options.AsJson = False,
) -> None:
    """Follow each experiment over many campaigns. Show when its level changed, and what else changed at that time."""
    from orchestrator.compare import rules
    from orchestrator.compare.history import campaigns, findings, trends
    from orchestrator.compare.history.view import as_csv, files, terminal
    from orchestrator.compare.history.view.trend_page import trend_page

    files.refuse_foreign(output)
    findings.check_error_rate(error_rate)
    judged = rules.parse(metrics=words(metrics), min_effect=words(min_effect))
    read, warnings = campaigns.read(places, by=words(by))
    found = trends.history(read, rules=judged, by=words(by), error_rate=error_rate, warnings=warnings)
    tell_warnings(found.warnings)
    text = files.document(found)
    if as_json:
        print_raw([text])
    else:
        out().print(terminal.summary(found))
    texts = {
        files.JSON: text,
        files.POINTS: as_csv.points(found),
        files.STEPS: as_csv.steps(found),
        files.PAGE: trend_page(found),
    }
    for path in files.write(output, texts):
        tell(f"wrote {path}")


def rerun(
    comparison: Annotated[
        Path, Option("--from", help="File that `tunebench compare --output FILE.json` wrote.", show_default=False)
    ],
    runs: Annotated[
        int | None,
        Option(
            min=1, max=1000, help="Number of further runs of each side. [default: the number that the comparison gives]"
        ),
    ] = None,
    max_runs: Annotated[
        int,
        Option(
            min=1,
            max=1000,
            help="Largest number of runs per side. Rows that need more are skipped, unless --runs is given.",
        ),
    ] = 20,
    ignore: Annotated[
        list[str] | None,
        Option(help="Facts of the environment that may differ between the first runs and the new runs, or all."),
    ] = None,
    dry_run: options.DryRun = False,
    profile: Annotated[
        bool,
        Option(
            "--profile",
            help="Instead, run both sides of each changed row once with torch's profiler, and name the largest change.",
        ),
    ] = False,
    executor: Annotated[str, Option(metavar="NAME", help="Start the runs with this executor.")] = "local",
    confirm_above: options.ConfirmAbove = 8.0,
    yes: options.Yes = False,
) -> None:
    """Repeat the inconclusive experiments of a comparison, or profile the changed ones. The runs alternate between its sides."""
    from orchestrator import executors
    from orchestrator.compare.rerun import contests, profiles, rounds
    from orchestrator.compare.view import as_json

    if profile and runs is not None:
        raise SelectionError("--runs has no effect with --profile, which makes one run of each side; leave it out")
    executors.get(executor)  # an unknown name is an error before anything else
    site = _site() if executor == executors.SLURM else None
    compared = as_json.load(comparison)
    if profile:
        prepared = profiles.prepare(compared, ignore=words(ignore), site=site)
    else:
        prepared = contests.prepare(compared, runs=runs, max_runs=max_runs, ignore=words(ignore), site=site)
    for sentence in prepared.warnings:
        tell(f"note: {sentence}")
    order = rounds.turns(prepared.contests, seed=rounds.seed_of(prepared.contests))
    for line in profiles.lines(prepared, order) if profile else contests.lines(prepared, order):
        say(line)
    code = 1 if prepared.is_stuck else 0
    if dry_run:
        raise typer.Exit(code)
    if order:
        confirm(contests.gpu_hours(order), above=confirm_above, yes=yes)
        code = _carried_out(order, executor=executor, site=site, profile=profile)
    if profile:
        for line in profiles.findings(compared, prepared):
            say(line)
    elif order:
        _after(compared, order)
    raise typer.Exit(code)


def _carried_out(order: Sequence[Turn], *, executor: str, site: Site | None, profile: bool) -> int:
    """Run the turns, and return the exit code."""
    from orchestrator import executors
    from orchestrator.campaign.live_display import Progress
    from orchestrator.campaign.steps import what_goes_on
    from orchestrator.compare.rerun import profiles, rounds
    from orchestrator.executors.starters import Starters
    from orchestrator.plan.command.warm_start import environment_of
    from orchestrator.records.labels import labels

    if profile:
        profiles.make_folders(order)
    shown = labels([*{turn.ready.experiment.id: turn.ready.experiment for turn in order}.values()])
    with Progress(err(), rounds.readers(order), labels=shown) as progress:
        for sentence in rounds.prepare_data(order, on_event=progress.say):
            progress.say(sentence)
        with Starters(environment_of, say=progress.say) as starters:
            cold, warm = (executors.get(executor, site=site, say=progress.say, starters=of) for of in (None, starters))
            with what_goes_on(cold, _folders(order), progress.say):
                return rounds.carry_out(order, cold=cold, warm=warm, on_event=progress.on_event).exit_code


def _site() -> Site:
    """Return the site of the current folder, and say what is not checked."""
    from orchestrator.executors.slurm.site import Site
    from orchestrator.plan.config.site_file import load_site

    tell(
        "note: hosts, GPUs and drivers of nodes are not checked; the new runs record them, and `compare` names differences"
    )
    found = load_site(None)
    return found.site if found else Site()


def _folders(order: Sequence[Turn]) -> list[Path]:
    return [*dict.fromkeys(turn.ready.store.root for turn in order)]


def _after(compared: Comparison, order: Sequence[Turn]) -> None:
    """Write the reports of the folders with new runs again, and print the next command."""
    from orchestrator.compare.rerun import contests

    for root in _folders(order):
        write_report([root], keep=(), drop=(), form=None)
    say(f"Compare again: {contests.compare_again(compared)}")


def bisect(
    scenarios: Annotated[
        Path, Argument(help="Scenario file. It must be in a git repository, unless --repo names one.")
    ],
    good: Annotated[
        str,
        Option(
            metavar="COMMIT",
            help="Commit at which the training is fast, or a version: torch==2.11.",
            show_default=False,
        ),
    ],
    bad: Annotated[
        str, Option(metavar="COMMIT", help="Later commit or version at which it is slow.", show_default=False)
    ],
    repo: Annotated[
        Path | None, Option(help="Folder of the git repository. [default: that of the scenario file]")
    ] = None,
    scenario: Annotated[list[str] | None, Option(help="Use only this scenario; repeatable.")] = None,
    cell: Annotated[
        list[str] | None, Option(help="Use only this experiment: its id, or a unique part of it; repeatable.")
    ] = None,
    metric: Annotated[
        str | None,
        Option(metavar="METRIC[:lower]", help="Metric to judge. [default: the first speed that the runs have]"),
    ] = None,
    results: Annotated[Path, Option(help="Folder of the bisection, with a results folder for each commit.")] = Path(
        "bisect"
    ),
    as_json: options.AsJson = False,
) -> None:
    """Find the commit or version at which a training became slower. Each probe runs 5 to 15 times, in turns with both ends.

    Exit codes: 0 found, 1 good and bad do not differ clearly, or the result is in doubt.
    """
    from orchestrator import executors
    from orchestrator.compare import rules
    from orchestrator.compare.bisect import carry_out

    judged = rules.parse(metrics=words([metric] if metric else None))
    suite, selection = _suite(scenarios, scenario), _only(scenario, cell)
    done = carry_out.bisect(
        results,
        _between((good, bad), suite, selection, repo=repo, results=results),
        rules=judged,
        executor=executors.get("local"),
        say=tell if as_json else say,
        tell=tell,
    )
    if as_json:
        print_raw([done.document()])
    for line in done.lines():
        tell(line) if as_json else say(line)
    if done.page is not None:
        tell(f"wrote {done.page}")
    raise typer.Exit(done.exit_code)


def _between(
    ends: tuple[str, str], suite: Suite, selection: Selection, *, repo: Path | None, results: Path
) -> Checkout:
    """Return the commits, or the versions of a package, from the good end to the bad end."""
    from orchestrator.compare.bisect import commits
    from orchestrator.compare.bisect.chosen import chosen
    from orchestrator.compare.bisect.versions import versions

    if any("==" in end for end in ends):
        if repo is not None:
            raise SelectionError(f"--repo {repo} has no effect on versions of a package; leave it out")
        return versions(ends, chosen(suite, selection, say=tell))
    file = suite.document.file
    repository = commits.repository(file, repo)
    experiment = chosen(suite, selection, say=tell, folder=commits.folder_of(file, repository))
    return commits.commits(repository, ends, file=file, results=results, chosen=experiment)


def _suite(scenarios: Path, scenario: Sequence[str] | None) -> Suite:
    """Return the suite. Raise SelectionError if its runs do not start on this machine."""
    from orchestrator.plan.config import load_suite
    from orchestrator.plan.config.site_file import executor_of

    suite = load_suite(scenarios, chosen=scenario or ())
    name, _ = executor_of(suite, None, scenarios)
    if name != "local":
        raise SelectionError(f"{scenarios}: bisect starts runs only with the executor local, not {name}; name local")
    return suite


def _only(scenario: Sequence[str] | None, cell: Sequence[str] | None) -> Selection:
    from orchestrator.plan.selection import parse_selection

    return parse_selection(scenarios=scenario or (), cells=words(cell))
