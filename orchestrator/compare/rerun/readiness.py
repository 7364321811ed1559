"""Whether one side of an open pair can be run again here and now, and which of its repeats that would be.

More runs are only worth something beside the earlier ones if they are made as these were: a side that was measured on another
host or GPU, under another driver, with other packages or at another commit is left alone, with a sentence. What a comparison
says of a folder is somebody's word; what counts is what stands in the folder, and that it is this user's own. Starts and writes
nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from orchestrator import trainers
from orchestrator.compare.comparison import Difference, Entry, Run
from orchestrator.compare.sides import environment
from orchestrator.errors import OrchestratorError
from orchestrator.machine import provenance
from orchestrator.plan import placement
from orchestrator.records import Device, Experiment, JobState, RunRecord, Status
from orchestrator.records.experiment import SAFE_ID
from orchestrator.results.contents import StoredRun
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows, rows
from orchestrator.results.table.rows import Value

ALL, OWNER = "all", "owner"
"""Words for `ignore`: every difference of environment; that a folder is another user's, which `all` does not hold."""

_SHOWN = 4
_SEEN_BY_WORKERS = "provenance_worker_versions_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """An experiment that can run again: its folder's store, and the repeats that are to be run, in their order.

    `experiment` owes them: its `repeats` are raised to the last of them. `run_s` is what a run of it took at most, or may take;
    None where nobody knows.
    """

    store: Store
    experiment: Experiment
    repeats: tuple[int, ...]
    run_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A side that is left alone, and why: the end of a sentence that begins with which side it is."""

    why: str


Here = Callable[[Experiment], Mapping[str, Value]]
"""What the environment of a run of the experiment would be, if it were made here and now."""


def readiness(
    entry: Entry, *, runs: int, seen: Sequence[Run], ignore: Collection[str] = (), here: Here | None = None
) -> Ready | Refused:
    """`seen` are the runs that the comparison knew: what was made since then counts among the `runs` more."""
    if entry.folder is None or entry.id is None or not Path(entry.folder).is_absolute():
        return Refused(why="its numbers are not from a results folder of tunebench, so it cannot be run again")
    try:
        return _readiness(entry.id, Path(entry.folder), runs=runs, seen=seen, ignore=ignore, here=here or this_machine)
    except (OrchestratorError, OSError) as error:
        return Refused(why=str(error))


def _readiness(
    name: str, folder: Path, *, runs: int, seen: Sequence[Run], ignore: Collection[str], here: Here
) -> Ready | Refused:
    if not SAFE_ID.fullmatch(name):
        return Refused(why=f"{name!r:.200} is no experiment's id")
    store = Store.resume(folder)
    if OWNER not in ignore and not _is_own([folder, folder / "experiments", folder / "experiments" / name]):
        return Refused(why=f"{folder} is another user's, and what stands in it is run; --ignore {OWNER} does that")
    experiment = store.experiment(name)
    reason = experiment.skip or placement.cannot_run_here(
        experiment, trainers.get(experiment.trainer), provenance.this_machine()
    )
    if reason is not None:
        return Refused(why=reason.text)
    stored = store.runs(name)
    known = {one.repeat: one for one in seen}
    ok = [run for run in stored if run.record is not None and run.record.status is Status.OK]
    before = [run for run in ok if not _is_new(run, known.get(run.job.repeat))]
    told = [] if ALL in ignore else [one for one in _changed(experiment, before or ok, here) if one.name not in ignore]
    if told:
        return Refused(why=_says(told, folder))
    repeats = _owed(store, experiment, stored, runs=runs, known=known)
    took = [run.record.wall_s for run in ok if run.record is not None]
    raised = _raised(replace(experiment, cannot_run_here=None), max(repeats, default=0))
    return Ready(store=store, experiment=raised, repeats=repeats, run_s=max(took, default=experiment.timeout_s))


def _is_own(paths: Iterable[Path]) -> bool:
    return all(path.stat().st_uid == os.geteuid() for path in paths) if hasattr(os, "geteuid") else True


def _raised(experiment: Experiment, repeats: int) -> Experiment:
    """The experiment owing at least so many repeats."""
    rule = experiment.adaptive
    adaptive = replace(rule, min=max(rule.min, repeats), max=max(rule.max, repeats)) if rule else None
    return replace(experiment, repeats=max(experiment.repeats, repeats), adaptive=adaptive)


def _owed(
    store: Store, experiment: Experiment, stored: Sequence[StoredRun], *, runs: int, known: Mapping[int, Run]
) -> tuple[int, ...]:
    """The repeats by which `runs` more will have been made since the comparison: those that were never run first, then new ones.

    What ended well since, or is at work now, counts; what failed since does not, and is not tried again but by a new repeat.
    """
    last = {run.job.repeat: run for run in stored}
    made = sum(_is_new(run, known.get(repeat)) for repeat, run in last.items())
    more = max(0, runs - made)
    asked = replace(experiment, repeats=max(last, default=0) + more, adaptive=None, cannot_run_here=None)
    return tuple(job.repeat for job in store.plan([asked]))[:more]


def _is_new(run: StoredRun, before: Run | None) -> bool:
    if run.state in (JobState.RUNNING, JobState.SILENT):
        return True
    if run.record is None or run.record.status is not Status.OK:
        return False
    if before is None or before.started_at is None:
        return before is None
    return abs(before.started_at - run.record.started_at) > _SAME_START_S


_SAME_START_S = 1.5
"""Sources of a comparison may have cut its runs' starts to whole seconds."""


def _changed(experiment: Experiment, ok: Sequence[StoredRun], here: Here) -> list[Difference]:
    """What is not as it was for the last of these runs. What was not noted then is no difference, but for packages: where
    any were noted, the others were not there."""
    record = ok[-1].record if ok else None
    row = foreign_rows.run_row(experiment, ok[-1].job, record, []) if record is not None else None
    if row is None or record is None:
        return []
    then, now = _facts(row.measured, record), here(experiment)
    names = [
        *then,
        *(name for name in rows.PACKAGES if name in now and name not in then and record.provenance.get("packages")),
    ]
    return [
        Difference(name=one, base=then.get(one), new=now.get(one)) for one in names if then.get(one) != now.get(one)
    ]


def _facts(cells: Mapping[str, Value], record: RunRecord) -> dict[str, Value]:
    """Less what a worker saw for itself: before a run there is no worker to ask."""
    own = {name: value for name, value in cells.items() if not name.startswith(_SEEN_BY_WORKERS)}
    return environment.of_cells({**own, **environment.gpu_cells(record.provenance.get("gpus"))})


def this_machine(experiment: Experiment) -> Mapping[str, Value]:
    """What a run of the experiment would note of this machine, in the words of a comparison."""
    return _this_machine(experiment.python, experiment.num_gpus if experiment.device is Device.CUDA else 0)


@cache
def _this_machine(python: str | None, num_gpus: int) -> Mapping[str, Value]:
    gpus = provenance.visible_gpus()[:num_gpus]
    record = RunRecord(
        experiment_id="",
        repeat=1,
        attempt=1,
        status=Status.OK,
        started_at=time.time(),
        wall_s=0.0,
        provenance=provenance.collect(python, gpus),
    )
    nothing = Experiment(id="", scenario="", model="", num_gpus=1, device=Device.CPU, trainer="", arguments={})
    return {environment.NEIGHBOURS: 0, **_facts(rows.of_run(nothing, record).measured, record)}


def _says(told: Sequence[Difference], folder: Path) -> str:
    parts = ", ".join(f"{one.name} was {_word(one.base)}, here it is {_word(one.new)}" for one in told[:_SHOWN])
    more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    names = ",".join(one.name for one in told)
    return (
        f"it was measured in another environment ({parts}{more}), and {folder} would hold runs of two; "
        f"--ignore {names} runs it all the same"
    )


def _word(value: Value) -> str:
    return "not there" if value is None else f"{value!s:.80}"
