"""Decide whether one side of an open pair can run again here and now, and choose its repeats. "Here" may be a cluster.

Further runs help only if their conditions are those of the earlier runs. A side is not run if it was measured on another host or
GPU, with another driver or other packages, or at another commit. A sentence then says why. The nodes of a cluster cannot be asked
before a run, so only the facts that all machines of the cluster share are compared. The text of a comparison is not trusted.
Only the content of the results folder counts, and the folder must belong to this user. Nothing is started or written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from orchestrator import trainers
from orchestrator.compare.comparison import Difference, Entry, Run
from orchestrator.compare.sides import environment
from orchestrator.errors import OrchestratorError
from orchestrator.executors import LOCAL, SLURM
from orchestrator.executors.slurm.site import Site
from orchestrator.files.printable_text import one_line, quoted
from orchestrator.machine import provenance
from orchestrator.plan import placement
from orchestrator.plan.command.warm_start import environment_of
from orchestrator.plan.forecast.assumed_machine import node_of
from orchestrator.plan.identity import sources
from orchestrator.records import Device, Experiment, JobState, RunRecord, Start, Status
from orchestrator.records.experiment import SAFE_ID, experiment_of
from orchestrator.results import claims
from orchestrator.results.contents import StoredRun, last_start
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows, rows
from orchestrator.results.table.rows import Value

# Words of `ignore`. ALL permits every difference of environment. Only OWNER permits a folder of another user.
ALL, OWNER = "all", "owner"

# Facts that only a node of a cluster knows. Instead of these facts, the executors of the runs are compared.
_OF_A_NODE = ("host", "system", "cpu", "cpu_count", "driver", "driver_cuda", environment.GPU)
_EXECUTOR = "executor"

_SHOWN = 4
# Runs with a repeat that is this much above twice the number of runs are damaged, even if runs were removed.
_MOST_REMOVED = 1000
# Sources of a comparison may round the starts of its runs to whole seconds.
_SAME_START_S = 1.5

# A function that returns the environment that a run of the experiment would have here and now.
Here = Callable[[Experiment], Mapping[str, Value]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """An experiment that can run again, the store of its folder, and the repeats to run, in their order.

    `experiment.repeats` is raised to the number of the last of these repeats. `run_s` is the duration of the longest run. If no run
    has ended ok, `run_s` is the time limit, or None if there is no limit. The new runs start warm if the earlier ones did.
    """

    store: Store
    experiment: Experiment
    repeats: tuple[int, ...]
    run_s: float | None = None
    starts_warm: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A side that is not run. `why` is the rest of a sentence that begins with the name of the side."""

    why: str


def readiness(
    entry: Entry,
    *,
    runs: int,
    seen: Sequence[Run],
    ignore: Collection[str] = (),
    here: Here | None = None,
    site: Site | None = None,
) -> Ready | Refused:
    """Return Ready if a side can make `runs` more runs, else Refused with the reason.

    `seen` are the runs in the comparison. Runs that were made after the comparison reduce the number of new runs. `site` is the
    cluster whose nodes would carry out the runs; None means this machine.
    """
    here = here or this_machine
    if entry.folder is None or entry.id is None or not Path(entry.folder).is_absolute():
        return Refused(why="its numbers are not from a results folder of tunebench, so it cannot be run again")
    try:
        return _readiness(
            experiment_of(entry.id), Path(entry.folder), runs=runs, seen=seen, ignore=ignore, here=here, site=site
        )
    except (OrchestratorError, OSError) as error:
        return Refused(why=str(error))


def _readiness(
    name: str, folder: Path, *, runs: int, seen: Sequence[Run], ignore: Collection[str], here: Here, site: Site | None
) -> Ready | Refused:
    if not SAFE_ID.fullmatch(name):
        return Refused(why=f"{quoted(name, longest=200)} is not the id of an experiment")
    store = Store.resume(folder)
    if OWNER not in ignore and not _is_own([folder, folder / "experiments", folder / "experiments" / name]):
        return Refused(
            why=f"{folder} belongs to another user, whose commands would run here; permit this with --ignore {OWNER}"
        )
    experiment = store.experiment(name)
    machine, executor = (provenance.this_machine(), LOCAL) if site is None else (node_of(site), SLURM)
    trainer = trainers.get(experiment.trainer)
    reason = experiment.skip or placement.cannot_run_here(experiment, trainer, machine, executor=executor)
    if reason is not None:
        return Refused(why=reason.text)
    if other_files := _other_files(experiment):
        return Refused(why=other_files)
    stored = store.runs(name)
    known = {run.repeat: run for run in seen}
    ok = [run for run in stored if run.record is not None and run.record.status is Status.OK]
    before = [run for run in ok if not _is_new(run, known)]
    changes = _changes(experiment, before or ok, here)
    was_warm = last_start(before or ok) is Start.WARM
    starts_warm = site is None and was_warm and not isinstance(environment_of(experiment), str)
    if starts_warm:
        changes = [change for change in changes if change.name != environment.START]
    if site is not None:
        changes = [*_other_executor(before or ok), *(one for one in changes if not _is_of_a_node(one.name))]
    changes = [change for change in changes if not {ALL, change.name} & {*ignore}]
    if changes:
        return Refused(why=_changes_text(changes))
    repeats = due_repeats(store, experiment, stored, runs=runs, known=known)
    took = [run.record.wall_s for run in ok if run.record is not None]
    raised = with_repeats(experiment, max(repeats, default=0))
    took_s = max(took, default=experiment.timeout_s)
    return Ready(store=store, experiment=raised, repeats=repeats, run_s=took_s, starts_warm=starts_warm)


def _other_files(experiment: Experiment) -> str | None:
    """Return a sentence if a new run would use other files than the earlier runs. Return None otherwise."""
    unknown = () if experiment.sources else tuple(sources.Sources().of(experiment))
    if unknown:
        names = sources.listed(unknown)
        return f"an older version of Tunebench did not record the content of {names}; make a new campaign"
    back = "put the old file back" if len(sources.changed(experiment)) == 1 else "put the old files back"
    return sources.why_changed(experiment, f"since its runs; {back}, then repeat this command, or make a new campaign")


def _is_own(paths: Iterable[Path]) -> bool:
    return all(path.stat().st_uid == os.geteuid() for path in paths) if hasattr(os, "geteuid") else True


def with_repeats(experiment: Experiment, repeats: int) -> Experiment:
    """Return the experiment with at least this number of repeats, ready to run here."""
    rule = experiment.adaptive
    adaptive = replace(rule, min=max(rule.min, repeats), max=max(rule.max, repeats)) if rule else None
    repeats = max(experiment.repeats, repeats)
    return replace(experiment, repeats=repeats, adaptive=adaptive, cannot_run_here=None)


def due_repeats(
    store: Store, experiment: Experiment, stored: Sequence[StoredRun], *, runs: int, known: Mapping[int, Run]
) -> tuple[int, ...]:
    """Return the repeats that are still due: `runs` repeats, minus the runs that were made since the comparison.

    Repeats that are due anyway, such as lost ones, come first. Then come new repeats.

    A run counts as made if it has ended ok since the comparison, or is in progress. A run that has failed since the comparison does
    not count; a new repeat replaces it.
    """
    last = {run.job.repeat: run for run in stored if run.job.repeat <= 2 * len(stored) + _MOST_REMOVED}
    made = sum(_is_new(run, known) for run in last.values())
    more = max(0, runs - made)
    enough = replace(experiment, repeats=max(last, default=0) + more, adaptive=None, cannot_run_here=None)
    return tuple(job.repeat for job in store.plan([enough]))[:more]


def _is_new(run: StoredRun, known: Mapping[int, Run]) -> bool:
    """Return whether a run is none of those known.

    If a side has several folders, the same run has another number there, and exactly the same start.
    """
    if run.state in (JobState.RUNNING, JobState.SILENT):
        return True
    if run.record is None or run.record.status is not Status.OK:
        return False
    if run.record.started_at in (one.started_at for one in known.values()):
        return False
    before = known.get(run.job.repeat)
    if before is None or before.started_at is None:
        return before is None
    return abs(before.started_at - run.record.started_at) > _SAME_START_S


def _changes(experiment: Experiment, ok: Sequence[StoredRun], here: Here) -> list[Difference]:
    """Return the differences between the environment of the last of these runs and the environment now.

    A fact that was not recorded is not a difference. Packages are an exception. If any packages were recorded, their list was
    complete, so a package that is not in the list is a difference.
    """
    record = ok[-1].record if ok else None
    row = foreign_rows.run_row(experiment, ok[-1].job, record, []) if record is not None else None
    if row is None or record is None:
        return []
    then, now = _facts(row.measured, record), here(experiment)
    packages = rows.PACKAGES if record.provenance.get("packages") else ()
    names = [*then, *(name for name in packages if name in now and name not in then)]
    differences = [Difference(name=name, base=then.get(name), new=now.get(name)) for name in names]
    return [difference for difference in differences if difference.base != difference.new]


def _is_of_a_node(name: str) -> bool:
    return name in _OF_A_NODE or name.startswith(f"{environment.GPU}_")


def _other_executor(ok: Sequence[StoredRun]) -> Iterator[Difference]:
    """Yield a difference if the last of these runs was not made on a cluster."""
    claim = claims.read_claim(ok[-1].job.run_dir) if ok else None
    if claim is not None and claim.executor != SLURM:
        yield Difference(name=_EXECUTOR, base=claim.executor, new=SLURM)


def _facts(cells: Mapping[str, Value], record: RunRecord) -> dict[str, Value]:
    """Return the environment without the facts that only a worker records, since no worker has run yet."""
    own = {name: value for name, value in cells.items() if not name.startswith(environment.WORKERS)}
    return environment.of_cells({**own, **environment.gpu_cells(record.provenance.get("gpus"))})


def this_machine(experiment: Experiment) -> Mapping[str, Value]:
    """Return the environment that a run of the experiment would record on this machine."""
    num_gpus = experiment.num_gpus if experiment.device is Device.CUDA else 0
    return _this_machine(experiment.python, num_gpus, provenance.python_path(experiment.env))


@cache
def _this_machine(python: str | None, num_gpus: int, python_path: str | None) -> Mapping[str, Value]:
    gpus = provenance.visible_gpus()[:num_gpus]
    machine, now = provenance.collect(python, gpus, {"PYTHONPATH": python_path}), time.time()
    record = RunRecord(
        experiment_id="", repeat=1, attempt=1, status=Status.OK, started_at=now, wall_s=0.0, provenance=machine
    )
    empty = Experiment(id="", scenario="", model="", num_gpus=1, device=Device.CPU, trainer="", arguments={})
    facts = _facts(rows.of_run(empty, record).measured, record)
    return {environment.NEIGHBOURS: 0, environment.START: Start.COLD.value, **facts}


def _changes_text(changes: Sequence[Difference]) -> str:
    parts = [f"{change.name} was {_word(change.base)}, here it is {_word(change.new)}" for change in changes[:_SHOWN]]
    more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
    return (
        f"it was measured in another environment ({', '.join(parts)}{more}), so new runs would not be like its runs; "
        f"permit this with --ignore {','.join(change.name for change in changes)}"
    )


def _word(value: Value) -> str:
    return "not there" if value is None else f"{one_line(value, longest=80)}"
