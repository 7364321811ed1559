"""Finds traces: the one that a word on the command line means, and the one of an experiment of a comparison."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import ResultsError, SelectionError
from orchestrator.files.printable_text import shell_word
from orchestrator.files.reading import resolved
from orchestrator.records import Experiment, Job, RunRecord, Status
from orchestrator.records.experiment import SAFE_ID, experiment_of
from orchestrator.results import requested
from orchestrator.results.experiment_file import measure_alike
from orchestrator.results.folder import read_suite
from orchestrator.results.naming import NothingNamed, find
from orchestrator.results.store import Store

# The folder of the traces in a run's folder.
RUN_FOLDER = "profile"
# From a results folder down to its traces, from an experiment's folder, from a run's folder, and in the folder of the traces.
_BELOW = ("experiments/*/runs/*/profile/", "runs/*/profile/", "profile/", "")
_MOST_NAMED = 5
# The end of the name of a folder for profiled runs, which is next to the results folder. Its runs are not compared.
_PROFILES_END = ".profiles"


def next_to(results: Path) -> Path:
    """Return the folder for the profiled runs of a results folder's experiments."""
    folder = resolved(results)
    return folder.with_name(folder.name + _PROFILES_END)


def has_profiled_runs(folder: Path) -> bool:
    """Return whether `rerun --profile` made this folder. Its `suite.json` has no request, unlike that of `tunebench run`."""
    suite = read_suite(folder)
    if suite is None or suite.get("asked") or not resolved(folder).name.endswith(_PROFILES_END):
        return False
    return requested.current(folder) is None


class Profiled(NamedTuple):
    """A trace of rank 0, and the run that made it."""

    trace: Path
    experiment: Experiment
    job: Job
    record: RunRecord


def profiled(results: Path, experiment_id: str) -> Iterator[Profiled]:
    """Yield the traces of an experiment, then of the same experiment with a monitor that profiles, the last run first.

    They are searched in the results folder, then in the folder next to it. Only runs that ended ok count.
    """
    name = experiment_of(experiment_id)
    for store, experiment in _alike(results, name) if results.is_absolute() and SAFE_ID.fullmatch(name) else ():
        for run in store.runs(experiment.id)[::-1]:
            if run.record is None or run.record.status is not Status.OK:
                continue
            for trace in _traces(run.job.run_dir):
                if _rank(trace) == 0:
                    yield Profiled(trace, experiment, run.job, run.record)


def _alike(results: Path, name: str) -> Iterator[tuple[Store, Experiment]]:
    """Yield an experiment and its store, then the experiments that differ from it only in their monitors."""
    own = Store(results)
    try:
        experiment = own.experiment(name)
    except ResultsError:
        return
    yield own, experiment
    for store in (own, Store(next_to(results))):
        for folder in sorted(store.root.glob(f"experiments/{name.rpartition('-')[0]}-*/runs/")):
            try:
                other = store.experiment(folder.parent.name)
            except ResultsError:
                continue
            is_itself = store is own and other.id == name
            if not is_itself and measure_alike(replace(other, id=name), experiment):
                yield store, other


class Kind(NamedTuple):
    """A kind of file in a run's folder `profile/`: what it is called, its name, and the monitor that asks for it."""

    noun: str
    name: str
    monitor: str


TRACE = Kind("trace", r"rank(\d{1,6})\.json(\.gz)?", "torch_profiler")
SNAPSHOT = Kind("memory snapshot", r"rank(\d{1,6})-memory\.pickle", "memory_snapshot")


# Gets a results folder, an experiment's id, the monitor, and the results folder of the profiled run. Returns the command of this
# run, or None if it is not known.
CommandOf = Callable[[Store, str, str, str], str | None]


def trace_of(
    word: str, *, results: Path, rank: int, kind: Kind = TRACE, command_of: CommandOf = lambda *_: None
) -> Path:
    """Return the trace of a rank. Of several runs of an experiment, the last one counts.

    Raise SelectionError if there is none. Its sentence has the command that makes a trace, if `command_of` knows it.
    """
    named = Path(word)
    if named.is_file():
        return named
    if named.is_dir():
        folder = named
    else:
        store = Store.resume(results)
        folder = _folder_of(store, word, has_traces=bool(_traces(results, kind)))
    traces = _traces(folder, kind)
    if not traces:
        cure = _how_to_profile(word, results, kind, command_of)
        if kind == TRACE and _traces(next_to(folder)):
            cure = f"`rerun --profile` wrote some into {next_to(folder)}: name this folder"
        raise SelectionError(f"{word}: no run here has a {kind.noun}; {cure}")
    experiments = {_experiment(trace): trace for trace in traces}
    if len(experiments) > 1:
        names = ", ".join([*experiments][:_MOST_NAMED])
        raise SelectionError(f"{word}: {len(experiments)} experiments have {kind.noun}s; name one of them: {names}")
    last = _run(traces[-1])
    of_run = {number: trace for trace in traces if _run(trace) == last and (number := _rank(trace, kind)) is not None}
    if rank not in of_run:
        known = ", ".join(map(str, sorted(of_run)))
        raise SelectionError(
            f"--rank {rank}: rank {rank} has no {kind.noun} in {last}; ranks with a {kind.noun}: {known}"
        )
    return of_run[rank]


def _folder_of(store: Store, word: str, *, has_traces: bool) -> Path:
    """Return the folder of the experiment that a word means, or the results folder if that has no trace.

    Then the word may mean several experiments: each of them would have none, and the message says so first.
    """
    try:
        name = find(store, word)
    except ResultsError as error:
        if has_traces or isinstance(error, NothingNamed):
            raise
        return store.root
    return store.root / "experiments" / name if has_traces else store.root


def _how_to_profile(word: str, results: Path, kind: Kind, command_of: CommandOf) -> str:
    """Return the command that profiles the experiment that a word means, or what to write into a scenario."""
    profiled_results, text = f"{results}-profiled", None
    with suppress(ResultsError):
        store = Store.resume(results)
        text = command_of(store, find(store, word), kind.monitor, profiled_results)
    if text is None:
        return f"write `monitors: [{kind.monitor}]` into the scenario of a training, and run it again"
    option = " --snapshot" if kind == SNAPSHOT else ""
    if any(_experiment(trace) in text.split() for trace in _traces(Path(profiled_results), kind)):
        return f"{profiled_results} has one: tunebench profile {shell_word(profiled_results)}{option}"
    return f"this makes and shows one: {text} && tunebench profile {shell_word(profiled_results)}{option}"


def _traces(folder: Path, kind: Kind = TRACE) -> list[Path]:
    for below in _BELOW:
        found = [path for path in folder.glob(f"{below}rank*") if _rank(path, kind) is not None]
        if found:
            return sorted(found, key=lambda path: (_order(_run(path).name), path.name))
    return []


def _rank(trace: Path, kind: Kind = TRACE) -> int | None:
    match = re.fullmatch(kind.name, trace.name, re.ASCII)
    return int(match[1]) if match else None


def _run(trace: Path) -> Path:
    return trace.parent.parent if trace.parent.name == RUN_FOLDER else trace.parent


def _experiment(trace: Path) -> str:
    run = _run(trace)
    return run.parent.parent.name if run.parent.name == "runs" else run.name


def _order(run: str) -> tuple[int, ...]:
    """Return the numbers in a run's name, so that r10-t1 comes after r9-t2."""
    return tuple(map(int, re.findall(r"\d+", run)))
