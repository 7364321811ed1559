"""The lines below the table of a plan: totals, duplicates, reasons why experiments do not run, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.files.printable_text import counted
from orchestrator.measure.losses.target import seeds_needed
from orchestrator.plan.expand import Plan, has_id
from orchestrator.plan.view.as_table import ROWS_SHOWN
from orchestrator.records import Experiment

if TYPE_CHECKING:  # most plans need no forecast
    from orchestrator.plan.forecast.outlook import Outlook

REASONS_SHOWN = 12
# The seeds of MLPerf's reference runs for language models spread by 3 to 10 % in the samples that they need.
_DIFFERENCE, _SPREADS = 0.05, (0.05, 0.10)


def summary(plan: Plan, *, outlook: Outlook | None = None) -> list[str]:
    """Return the lines below the table: totals, duplicates, reasons why experiments do not run, a forecast, notes."""
    experiments = plan.experiments
    lines = [] if outlook and outlook.elsewhere else [_to_do(experiments)]
    lines += _to_build(experiments)
    lines += _seeds(experiments)
    if len(experiments) > ROWS_SHOWN:
        lines.append(f"The first {ROWS_SHOWN} rows are shown; use --json or --commands to see all {len(experiments)}.")
    if plan.collapsed:
        same = Counter(duplicate.id for duplicate in plan.collapsed)
        examples = ", ".join(f"{name} ({times + 1}×)" for name, times in same.most_common(3))
        more = ", …" if len(same) > 3 else ""
        lines.append(
            f"left out: {counted(len(plan.collapsed), 'duplicate')}; each of these experiments runs once: {examples}{more}"
        )
    if not (outlook and outlook.elsewhere):
        lines += _reasons(experiments)
    if outlook is not None:
        lines += outlook.lines(experiments)
    return lines + [f"note: {note}" for note in plan.notes]


def _to_do(experiments: Sequence[Experiment]) -> str:
    ready = [experiment for experiment in experiments if not (experiment.skip or experiment.cannot_run_here)]
    least, most = sum(experiment.repeats for experiment in ready), sum(experiment.most_repeats for experiment in ready)
    runs = counted(least, "run") if least == most else f"{least:,} to {counted(most, 'run')}"
    return f"{counted(len(experiments), 'experiment')}, {runs} can be made here."


def _to_build(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yield a sentence that says which software environments are not built yet. Their experiments have no ids."""
    names = dict.fromkeys(one.environment.name for one in experiments if one.environment and not has_id(one))
    if names:
        are = "environment is" if len(names) == 1 else "environments are"
        ids = "its experiments have" if len(names) == 1 else "their experiments have"
        yield f"{', '.join(names)}: the {are} not built, so {ids} no ids yet; `run` builds, and so does `tunebench env build`."


def _seeds(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yield a sentence about the number of seeds if experiments have a target."""
    repeats = [experiment.repeats for experiment in experiments if experiment.target and not experiment.skip]
    if repeats:
        few, many = (seeds_needed(spread, _DIFFERENCE) for spread in _SPREADS)
        yield (
            f"target: each repeat has its own seed. To show a difference of {_DIFFERENCE:.0%} takes {few} seeds per experiment "
            f"if the seeds spread by {_SPREADS[0]:.0%}, and {many} if they spread by {_SPREADS[1]:.0%}; repeats: {min(repeats)}."
        )


def _reasons(experiments: Sequence[Experiment]) -> Iterator[str]:
    """Yield the reasons why experiments are skipped or cannot run here, the most frequent first."""
    skipped = Counter(experiment.skip for experiment in experiments if experiment.skip)
    elsewhere = Counter(
        experiment.cannot_run_here for experiment in experiments if experiment.cannot_run_here and not experiment.skip
    )
    for label, reasons in (("skipped", skipped), ("cannot run here", elsewhere)):
        for reason, times in reasons.most_common(REASONS_SHOWN):
            yield f"{label} ({reason.kind}), {times}×: {reason.text}"
        if len(reasons) > REASONS_SHOWN:
            yield f"{label}: {len(reasons) - REASONS_SHOWN} more reasons; use --json to see all"
