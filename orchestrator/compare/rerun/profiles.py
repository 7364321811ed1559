"""Profile the changed pairs of a comparison (`tunebench rerun --from comparison.json --profile`).

Each side runs once more, as in its own results folder, but with the monitor `torch_profiler`. The run is stored in a folder next to
the results folder, so it is never compared. A side that has a profile already gets no run, unless its trace was removed or damaged.
So the two sides of a pair can be profiled by two calls, each in the environment of one side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from orchestrator import trainers
from orchestrator.compare.comparison import Comparison, Entry, Run
from orchestrator.compare.rerun.contests import Prepared, of_experiments
from orchestrator.compare.rerun.readiness import (
    Here,
    Ready,
    Refused,
    due_repeats,
    readiness,
    this_machine,
    with_repeats,
)
from orchestrator.compare.rerun.rounds import Contest, Turn
from orchestrator.compare.rerun.undecided import Undecided, changed
from orchestrator.compare.sides.profiles import has_profile, of_sides
from orchestrator.compare.view import wording
from orchestrator.executors.slurm.site import Site
from orchestrator.files.printable_text import counted, shell_word
from orchestrator.monitors import perturbing
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.records import Status
from orchestrator.report.profile.places import next_to, profiled
from orchestrator.results.contents import StoredRun
from orchestrator.results.folder import is_ours
from orchestrator.results.store import Store

MONITOR, NUMBER = "torch_profiler", "profiled_steps"
# If so many traces cannot be read, another one cannot be read either.
_UNREADABLE = 2


def prepare(
    comparison: Comparison, *, ignore: Collection[str] = (), here: Here = this_machine, site: Site | None = None
) -> Prepared:
    """Check every changed pair that has not yet two profiles, and its folders. Nothing is run or written."""
    contests: list[Contest] = []
    warnings: list[str] = []
    open_pairs = 0
    for pair in of_experiments(changed(comparison)):
        if pair.is_same_experiment:
            warnings.append(f"{pair.label:.200}: not profiled: both sides are the same experiment")
            open_pairs += 1
            continue
        lacking = [(name, entry) for name, entry in _sides(pair) if not has_profile(entry)]
        if not lacking:
            continue
        open_pairs += 1
        sides = {name: _side(entry, ignore, here, site) for name, entry in lacking}
        refused = {name: side.why for name, side in sides.items() if isinstance(side, Refused)}
        warnings += [f"{pair.label:.200}: {name} is not run: {why}" for name, why in refused.items()]
        ready = tuple(side for side in sides.values() if isinstance(side, Ready))
        contests.append(Contest(label=pair.label, sides=ready))
    return Prepared(contests=tuple(contests), open=open_pairs, warnings=tuple(warnings))


def _sides(pair: Undecided) -> Iterator[tuple[str, Entry]]:
    yield "base", pair.base
    yield "new", pair.new


def _side(entry: Entry, ignore: Collection[str], here: Here, site: Site | None) -> Ready | Refused:
    """Return the side with the monitor and one run, in the folder next to its results folder."""
    ready = readiness(entry, runs=0, seen=entry.runs, ignore=ignore, here=here, site=site)
    if isinstance(ready, Refused):
        return ready
    known = ready.experiment
    if not trainers.get(known.trainer).instrumented:
        return Refused(why=f"runs of the trainer {known.trainer} have no trace")
    monitors = tuple(dict.fromkeys((*known.monitors, MONITOR)))
    experiment = replace(known, monitors=monitors, repeats=1, adaptive=None)
    digest = Digester(perturbing(monitors)).digest(experiment)
    experiment = replace(experiment, id=f"{known.id.rpartition('-')[0]}-{digest}")
    store = Store(next_to(ready.store.root))
    stored = store.runs(experiment.id)
    # The trace of such a run was removed or damaged since, so another run replaces it. But traces may also be too large to be read.
    made = (
        [run for run in stored if _made_a_trace(run)]
        if len([*profiled(store.root, experiment.id)]) < _UNREADABLE
        else []
    )
    lost = {run.job.repeat: Run(repeat=run.job.repeat, numbers={}) for run in made}
    repeats = due_repeats(store, experiment, stored, runs=1, known=lost)
    experiment = with_repeats(experiment, max(repeats, default=0))
    return replace(ready, store=store, experiment=experiment, repeats=repeats)


def _made_a_trace(run: StoredRun) -> bool:
    numbers = run.record.measurements if run.record else ()
    return any(number.name == NUMBER and number.value is not None for number in numbers)


def make_folders(order: Sequence[Turn]) -> None:
    """Make the folders of profiled runs that do not exist yet. Raise ResultsError if something else has the name of one."""
    for root in dict.fromkeys(turn.ready.store.root for turn in order):
        if not is_ours(root):
            Store.create(root, {})


def lines(prepared: Prepared, order: Sequence[Turn]) -> Iterator[str]:
    """Yield one line for each run."""
    if not prepared.open:
        yield "No changed row of this comparison lacks a profile: there is nothing to run."
    elif order:
        yield f"{counted(len(order), 'run')} with the monitor {MONITOR}:"
        yield from (f"  {turn.ready.experiment.id} in {turn.ready.store.root}" for turn in order)


def findings(comparison: Comparison, prepared: Prepared) -> Iterator[str]:
    """Yield for each changed pair what changed the most, and the command that shows the whole; or why a side has no profile."""
    ready = {contest.label: contest.sides for contest in prepared.contests}
    for pair in of_experiments(changed(comparison)):
        if found := of_sides(pair.base, pair.new, most=1):
            if warning := wording.elsewhere(found):
                yield f"{pair.label}: {warning}"
            yield f"{pair.label}: {found.sentence}"
            yield f"  tunebench profile {' '.join(shell_word(str(trace.parents[1])) for trace in found.traces)}"
        for side in ready.get(pair.label, ()):
            if not any(profiled(side.store.root, side.experiment.id)):
                yield f"{pair.label}: {side.experiment.id} has no profile: {_why_not(side)}"


def _why_not(side: Ready) -> str:
    runs = side.store.runs(side.experiment.id)
    record = runs[-1].record if runs else None
    if record is None:
        return "the run has not ended"
    if record.status is not Status.OK:
        return f"the run is {record.status}: {record.cause or record.kind}"
    if _made_a_trace(runs[-1]):
        return "the trace was removed"
    missing = [number.why_missing for number in record.measurements if number.name == NUMBER]
    return missing[0] if missing else "the run was not profiled"
