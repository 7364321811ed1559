"""The steps of `tunebench run` between the plan and the report: results folder, data, runs.

Each step is a function. The functions are in the order of their calls. `cli` calls them and prints. `report/` writes the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from orchestrator import executors
from orchestrator.campaign.environments import requirements
from orchestrator.campaign.events.json_events import EventLines
from orchestrator.campaign.live_display import Progress
from orchestrator.campaign.loop import Event, EventKind, Summary, run_benchmark
from orchestrator.campaign.probes import parallel_cost
from orchestrator.campaign.probes.largest_value import Found, Search, largest_values
from orchestrator.campaign.probes.memory_probe import mark_what_does_not_fit
from orchestrator.campaign.race.places import most_repeats
from orchestrator.campaign.race.rounds import tune
from orchestrator.campaign.status.budget import Spending
from orchestrator.campaign.status.campaign import Reader
from orchestrator.campaign.way import AUTO, Way
from orchestrator.errors import LaunchError, PreparationError, ResultsError, SelectionError
from orchestrator.executors import LOCAL, Executor, SlurmExecutor
from orchestrator.executors.starters import Starters
from orchestrator.files import writing
from orchestrator.files.printable_text import counted
from orchestrator.files.redaction import redact_words
from orchestrator.machine.provenance import pip_freeze, this_machine
from orchestrator.plan.config import Suite
from orchestrator.plan.expand import Plan
from orchestrator.plan.view.as_arrays import Arrays, all_runs, arrays_of
from orchestrator.records import Device, Experiment, Status
from orchestrator.records.labels import labels
from orchestrator.results import folder
from orchestrator.results import requested as asked
from orchestrator.results.due_runs import FAILURES, NO_RETRY, Retry, half_width, without_cold_first
from orchestrator.results.neighbour_cost import PACKING
from orchestrator.results.store import Store
from orchestrator.run.data_preparation import prepare_data

if TYPE_CHECKING:
    from orchestrator.executors.slurm.site import Site
    from orchestrator.plan.selection import Selection

Say = Callable[[str], object]


def refuse_empty(plan: Plan) -> None:
    """Raise SelectionError with the reasons if no experiment can run here."""
    if not plan.experiments:
        raise SelectionError("there is nothing to run: every scenario of the file is slow; name one with --scenario")
    if any(_can_run(experiment) for experiment in plan.experiments):
        return
    every = (experiment.skip or experiment.cannot_run_here for experiment in plan.experiments)
    reasons = "; ".join([*dict.fromkeys(reason.text for reason in every if reason)][:3])
    raise SelectionError(
        f"none of the {len(plan.experiments)} experiments can run here: {reasons}; `tunebench plan` shows the reason for each"
    )


def _can_run(experiment: Experiment) -> bool:
    return experiment.skip is None and experiment.cannot_run_here is None


def open_results(root: Path, *, move_aside: bool, suite: Suite, argv: Sequence[str], say: Say) -> Store:
    """Return the results folder. Create it if it does not exist.

    With `move_aside`, first move an existing folder aside. Raise ResultsError if the folder is not a results folder of Tunebench.
    """
    if move_aside:
        needed = {str(file): file for file in suite.files.values()}
        folder.refuse_to_move(root, what={"the current folder": Path.cwd(), **needed})
        moved = folder.move_aside(root)
        if moved is not None:
            say(f"Moved the results of {root} to {moved}")
    if folder.is_ours(root):
        say(f"Resuming {root}: ended runs are kept, and only missing ones are started.")
        return Store.resume(root)
    files = {name: str(file) for name, file in suite.files.items()}
    try:
        return Store.create(root, {"argv": redact_words(argv), "files": files})
    except ResultsError:
        if not folder.is_ours(root):
            raise
        return Store.resume(root)  # another process of Tunebench has just made it


def note_asked(store: Store, plan: Plan, *, suite: Suite, selection: Selection) -> None:
    """Note the experiments that this call requests. Experiments that no call requests any more are left out of the report."""
    names = [*(scenario.name for scenario in suite.scenarios), *suite.left_out]
    changes = asdict(replace(selection, scenarios=()))
    choices = {name: value for name, value in changes.items() if name not in ("frameworks", "models", "cells")}
    asked.note(
        store.root,
        file=suite.document.file,
        choices=choices,
        names=names,
        experiments=plan.experiments,
        not_chosen=plan.not_chosen,
    )


def gpu_hours(plan: Plan, root: Path, *, move_aside: bool, retry: Retry) -> float:
    """Return the largest number of GPU-hours that the due runs may take. Write no file. Runs on CPUs take none.

    Each run is expected to take the longest time of the experiment's earlier runs. If there are none, the run's time limit is used,
    or 0 if it has no limit. All adaptive repeats up to the maximum are included.
    """
    on_gpus = [one for one in plan.experiments if one.device is Device.CUDA]
    due = {one.id: one.most_repeats for one in on_gpus if _can_run(one)}
    took: dict[str, float] = {}
    if folder.is_ours(root) and not move_aside:
        store = Store.resume(root)
        runs = Counter(job.experiment_id for job in store.plan(on_gpus, retry=retry))
        due = {one.id: runs[one.id] + one.most_repeats - one.repeats for one in on_gpus if one.id in runs}
        ran = (stored for stored in store.contents().experiments if stored.records)
        took = {stored.experiment.id: max(record.wall_s for record in stored.records) for stored in ran}
    return sum(due.get(one.id, 0) * (took.get(one.id) or one.timeout_s or 0.0) * one.num_gpus / 3600 for one in on_gpus)


def with_all_rounds(plan: Plan) -> Plan:
    """Return the plan with as many repeats as its races may make at most, on average over the experiments of a race."""
    experiments = (replace(one, adaptive=None, repeats=most_repeats(one)) for one in plan.experiments)
    return replace(plan, experiments=tuple(experiments))


def arrays_to_submit(plan: Plan, site: Site, root: Path | None, *, retry: Retry = NO_RETRY) -> Arrays:
    """Return the arrays of the runs that are due in this folder. Without a results folder of Tunebench, all runs are due."""
    if root is None or not folder.is_ours(root):
        return arrays_of(plan.experiments, all_runs(plan.experiments), site, {})
    store = Store.resume(root)
    took_s = {
        stored.experiment.id: [record.wall_s for record in stored.records if record.status is Status.OK]
        for stored in store.contents().experiments
    }
    return arrays_of(plan.experiments, store.plan(plan.experiments, retry=retry), site, took_s)


def carry_out(
    plan: Plan, store: Store, *, way: Way, console: Console, json_lines: Callable[[str], None] | None = None
) -> Summary | None:
    """Prepare the data and carry out the due runs. Show the progress on the console, or as lines of JSON.

    Return None if the runs were only submitted.
    """
    reader = Reader(store, only={experiment.id for experiment in plan.experiments})
    shown, is_race = labels(plan.experiments), way.race is not None
    events = EventLines(json_lines) if json_lines else Progress(console, [reader], labels=shown, is_race=is_race)
    with (
        events as progress,
        Starters(way.environment_of_run(store), say=progress.say) as of_runs,
        Starters(way.environment_of, say=progress.say) as of_probes,
    ):
        _prepare(*plan.experiments, way=way, say=progress.say)
        store.write("requirements.txt", pip_freeze(None))
        for name, packages in requirements(plan):
            store.write(name, packages)
        short = partial(_say_probe, progress)
        parallel = way.parallel or _packed(plan, store, retry=way.retry, tell=short, say=progress.say)
        retry = way.retry
        get = partial(executors.get, way.executor, parallel, site=way.site, say=progress.say)
        get_measuring = partial(get, starters=None if way.warm is False else of_runs)
        executor = get_measuring()
        if way.submit_only and isinstance(executor, SlurmExecutor):
            progress.say(_submitted(plan, store, executor, retry=retry))
            return None
        if way.probe:
            probing = executor if way.warm is not None else get(starters=of_probes)
            mark = partial(mark_what_does_not_fit, store=store, executor=probing, retry=retry)
            marked = mark(plan.experiments, on_probe=short, on_event=progress.on_event)
            retry = replace(retry, tried=frozenset((job.experiment_id, job.repeat) for job in marked))
        spending = _spending(plan, store, way)
        if spending is not None:
            executor = get_measuring(may_start=spending.may_start)
        with what_goes_on(executor, [store.root], progress.say):
            run = partial(
                run_benchmark,
                store=store,
                executor=executor,
                retry=retry,
                fail_fast=way.fail_fast,
                take_over=way.take_over,
                spending=spending,
                on_event=way.also_telling(progress.on_event),
            )
            if way.race is None:
                return run(plan.experiments)
            race = partial(tune, store=store, run=run, say=progress.say, aim=way.race, retries=retry.failed)
            return race(plan.experiments)


def _spending(plan: Plan, store: Store, way: Way) -> Spending | None:
    """Return what the campaign has used of its budget; None without a budget."""
    if way.budget is None:
        return None
    is_race = way.race is not None
    return Spending.of(way.budget, way.price, plan.experiments, store, machine=this_machine, is_race=is_race)


def _submitted(plan: Plan, store: Store, executor: SlurmExecutor, *, retry: Retry) -> str:
    """Submit the due runs. Return a sentence that says what is left to do. Raise LaunchError if Slurm took none of them."""
    if due := store.plan(plan.experiments, retry=retry):
        writing.refuse_without_links(store.root)
    submitted, left = executor.submit(due)
    rest = f"; {counted(left, 'run')} did not fit under the limits of Slurm and of the site file" if left else ""
    if left and not submitted:
        raise LaunchError(f"no run was submitted{rest}; repeat the command when other jobs have ended")
    queued = f"{counted(submitted, 'run')} {'is' if submitted == 1 else 'are'} in Slurm's queue{rest}"
    return f"{queued}. The same command without --submit-only waits for the runs."


@contextmanager
def what_goes_on(executor: Executor, folders: Iterable[Path], say: Say) -> Iterator[None]:
    """If the user interrupts runs of these results folders whose jobs may go on without the command, say whether they do."""
    try:
        yield
    except KeyboardInterrupt:
        if isinstance(executor, SlurmExecutor):
            for sentence in dict.fromkeys(map(executor.goes_on, folders)):
                say(sentence)
        raise


def _packed(plan: Plan, store: Store, *, retry: Retry, tell: Callable[[Event], None], say: Say) -> int:
    """Return how many runs fit at once. Measure how much concurrent runs slow each other down, and report the result."""
    copies = parallel_cost.places(plan.experiments)
    say(f"--parallel {AUTO}: room for {copies} at once")
    look = partial(parallel_cost.cost, executor_of=partial(executors.get, LOCAL), on_event=tell, retry=retry)
    cost = look(plan.experiments, store=store, copies=copies)
    if isinstance(cost, parallel_cost.Cost):
        say(str(cost))
    elif cost is not None:
        say(f"the slowdown could not be measured: {cost} (the runs of this measurement are in {PACKING}/)")
    return copies


def remarks(plan: Plan, store: Store, summary: Summary, *, retry: Retry) -> Iterator[str]:
    """Yield remarks about a campaign that has ended."""
    yield from _not_agreed(plan, store)
    yield from _not_repeated(summary, retry)


def _not_agreed(plan: Plan, store: Store) -> Iterator[str]:
    """Yield a sentence for each experiment whose runs still differ too much after the maximum number of repeats."""
    rules = {experiment.id: experiment.adaptive for experiment in plan.experiments if experiment.adaptive}
    for stored in store.contents().experiments if rules else ():
        rule, records = rules.get(stored.experiment.id), {run.repeat: run for run in stored.records}
        width = half_width(without_cold_first(rule, records.values())) if rule and len(records) >= rule.max else None
        if rule and rule.within is not None and width is not None and width > rule.within:
            yield (
                f"{stored.experiment.id}: after {len(records)} runs, the most that repeats: allows, the speed is known within "
                f"±{width:.1%}; the target (within:) is {rule.within:.3g}"
            )


def _not_repeated(summary: Summary, retry: Retry) -> Iterator[str]:
    """Yield a sentence about runs with unreadable records, and one about earlier failures that this call did not repeat."""
    if summary.unreadable:
        yield f"{summary.unreadable} run(s) have a record that cannot be read; add --retry-failed lost to repeat them"
    failed = {(record.experiment_id, record.repeat) for record in summary.records if record.status in FAILURES}
    if not retry.failed and (before := failed - summary.tried):
        yield f"{len(before)} run(s) failed before and were not repeated; add --retry-failed to repeat them"


def find_largest(
    searches: Sequence[Search],
    store: Store,
    *,
    way: Way,
    console: Console,
    json_lines: Callable[[str], None] | None = None,
) -> list[Found]:
    """Return the largest value of each search that fits in memory. Each probe is a recorded run in `searches/`."""
    events = EventLines(json_lines) if json_lines else None
    results: list[Found] = []
    with events or Progress(console) as progress, Starters(way.environment_of, say=progress.say) as starters:
        prepare = partial(_prepare, way=way, say=progress.say)
        tell = events.on_event if events else partial(_say_probe, progress)
        executor = executors.get(
            way.executor, site=way.site, say=progress.say, starters=starters if way.probes_warm else None
        )
        for found in largest_values(
            searches, store=store, executor=executor, retry=way.retry, prepare=prepare, on_event=tell
        ):
            results.append(found)
            if events:
                events.tell_found(found)
    return results


def _prepare(*experiments: Experiment, way: Way, say: Callable[[str], None]) -> None:
    """Prepare the experiments' data. Raise PreparationError if data are missing and may not be prepared."""
    if not way.prepare:
        return _refuse_unprepared(experiments)
    for sentence in prepare_data(experiments, on_event=say):
        say(sentence)


def _say_probe(progress: Progress | EventLines, event: Event) -> None:
    if event.kind is EventKind.ENDED:
        progress.say(f"probe: {event.text}")


def _refuse_unprepared(experiments: Iterable[Experiment]) -> None:
    for experiment in experiments:
        if _can_run(experiment) and experiment.data_path and not Path(experiment.data_path).exists():
            source = experiment.data.source if experiment.data else "the data"
            raise PreparationError(
                f"scenario {experiment.scenario!r}: {source} was never prepared for {experiment.model} "
                f"(there is no {experiment.data_path}); run once without --no-data-processing"
            )
