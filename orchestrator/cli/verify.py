"""The command `verify`: published values next to Tunebench's own numbers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.terminal.console import print_table, say, tell

if TYPE_CHECKING:
    from orchestrator.compare.published.values import Found, Value
    from orchestrator.machine.provenance import Machine
    from orchestrator.records import Experiment

RESULTS = Path("verify_results")


def verify(
    results: Annotated[
        Path | None,
        typer.Argument(
            help=f"Results folder of runs of examples/verify.yaml. [default: {RESULTS}]", show_default=False
        ),
    ] = None,
) -> None:
    """Compare Tunebench's numbers with published ones. Each is met, explained, not met, not run, or cannot run here.

    Counts of parameters and FLOPs are made at once. Memory and speed are those of earlier runs. Exit code 1: a number is not met.
    """
    from orchestrator.compare.published import judging, records, values, view
    from orchestrator.machine.provenance import this_machine
    from orchestrator.plan.config import shipped_folder

    published, machine, scenarios = values.read(), this_machine(), shipped_folder() / "examples" / "verify.yaml"
    experiments = _experiments(scenarios, machine)
    recorded = records.read(results or RESULTS) if results or RESULTS.exists() else {}
    outcomes = judging.judge(
        published, experiments, counted=_counted(published, experiments), recorded=recorded, gpus=machine.gpus
    )
    print_table(view.table(outcomes))
    for sentence in view.sentences(outcomes):
        say(f"\n{sentence}")
    say(f"\n{view.summary(outcomes)}")
    is_other = results is not None and not recorded.keys() & {one.id for one in experiments}
    if is_other:
        say(f"{results}: this folder has no ended run of {_shown(scenarios)}, so no value is compared with its runs.")
    states = {outcome.state for outcome in outcomes}
    if states & {judging.State.NOT_RUN, judging.State.CANNOT_RUN}:
        where = "here" if judging.State.NOT_RUN in states else "on a machine with such GPUs"
        folder = RESULTS if is_other or results is None else results
        command = shlex.join(["tunebench", "run", _shown(scenarios), "--results", str(folder)])
        say(f"To measure the other values {where}: {command}")
    raise typer.Exit(1 if judging.State.NOT_MET in states else 0)


def _shown(path: Path) -> str:
    """Return the path as people would write it in the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _experiments(scenarios: Path, machine: Machine) -> Sequence[Experiment]:
    """Return the experiments of all scenarios, also of those that are only counted."""
    from orchestrator.plan.config import load_suite
    from orchestrator.plan.expand import expand
    from orchestrator.plan.selection import parse_selection

    suite = load_suite(scenarios)
    every = parse_selection(scenarios=tuple(scenario.name for scenario in suite.scenarios))
    return expand(suite, every, machine).experiments


def _counted(published: Sequence[Value], experiments: Sequence[Experiment]) -> Mapping[str, Found]:
    """Return the counts of the experiments that need them."""
    from orchestrator.compare.published import counts
    from orchestrator.compare.published.judging import experiment_of
    from orchestrator.compare.published.values import COUNTED

    tell("note: building models without weights, to count their parameters and FLOPs")
    needed = [experiment_of(value, value.cell, experiments) for value in published if value.metric in COUNTED]
    return counts.count([*{one.id: one for one in needed}.values()])
