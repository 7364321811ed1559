"""The results folder: where everything lies, what is owed, what was recorded. The only module that writes results.

State is derived from the files on disk, never stored twice; reading tolerates files that a crash left half-written and
names them. Does not start anything (`executors`), nor decide what to try again how often (`benchmark`).

    RESULTS/suite.json · experiments/<id>/experiment.json · experiments/<id>/runs/r<repeat>-t<attempt>/…
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

from orchestrator import asked, atomic, untrusted
from orchestrator.claims import RECORD_FILE, read_claim, remove_unfinished, state
from orchestrator.errors import ResultsError
from orchestrator.identity import TAME
from orchestrator.records import SCHEMA_VERSION, Experiment, Job, JobState, RunRecord, Status, dump, load
from orchestrator.redact import holds_secret, in_words, is_secret_name, redact
from orchestrator.repeats import wanted
from orchestrator.results_folder import SUITE_FILE, TOOL, is_ours, move_aside, read_suite, refuse_foreign

__all__ = [
    "Contents",
    "Store",
    "StoredExperiment",
    "StoredRun",
    "is_ours",
    "move_aside",
    "unfinished_record",
    "write_record",
]

EXPERIMENT_FILE, RUN_ONE_LOG = "experiment.json", "run-one.log"
_RUN_NAME = re.compile(r"r([1-9]\d*)-t([1-9]\d*)")
_PLACEHOLDER = re.compile(r"\{\w+\}")
_MAY_CHANGE = (
    *("repeats", "adaptive", "busy_gpus", "timeout_s", "startup_timeout_s", "stall_timeout_s", "keep", "tags"),
    *("skip", "cannot_run_here", "data", "data_path", "monitors"),
)
"""What an experiment's id is not made of: limits, tags, places."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """Which failed runs are owed once more: none, those of some kinds, or all (`kinds` empty)."""

    failed: bool
    kinds: tuple[str, ...] = ()

    def asks_for(self, record: RunRecord) -> bool:
        return self.failed and record.status in FAILURES and (not self.kinds or record.kind in self.kinds)


NO_RETRY = Retry(failed=False)
FAILURES = (Status.FAILED, Status.TIMEOUT, Status.STALLED, Status.INVALID)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRun:
    """A run as its folder shows it; `record` is None until it ended."""

    job: Job
    state: JobState
    record: RunRecord | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredExperiment:
    """An experiment and its runs, by repeat and attempt."""

    experiment: Experiment
    runs: tuple[StoredRun, ...]

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(run.record for run in self.runs if run.record is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What a results folder holds, in the order asked for, and a sentence for each file that can't be read.

    `removed` are the ids of experiments that no call wants any more: they stay in the store and leave the report.
    """

    experiments: tuple[StoredExperiment, ...]
    warnings: tuple[str, ...]
    removed: frozenset[str] = frozenset()


class Store:
    """One results folder of ours. Made by `create`, found again by `resume`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def create(root: Path, asked: Mapping[str, Any], *, seed: int = 0) -> Store:
        """A new results folder with what was asked of it in `suite.json`. Raises ResultsError where something stands"""
        root = root.absolute()
        if is_ours(root):
            raise ResultsError(f"{root} holds results already; move them aside or resume into them")
        refuse_foreign(root)
        suite = {"tool": TOOL, "schema": SCHEMA_VERSION, "created": _now(), "seed": seed, "asked": dict(asked)}
        try:
            root.mkdir(parents=True, exist_ok=True)
            placed = atomic.place_once(root / SUITE_FILE, redact(json.dumps(suite, indent=2, default=str)) + "\n")
            (root / "experiments").mkdir(exist_ok=True)
        except OSError as error:
            raise ResultsError(f"{root}: no results folder can be made here: {error.strerror}") from error
        if not placed:
            raise ResultsError(f"{root} was made by another run of tunebench just now; resume into it")
        return Store(root)

    @staticmethod
    def resume(root: Path) -> Store:
        """The results folder that stands there. Raises ResultsError when it is missing or is not ours."""
        root = root.absolute()
        if not root.is_dir():
            raise ResultsError(f"{root}: there is no such results folder; run without resuming to make it")
        if not is_ours(root):
            raise ResultsError(f"{root} is not a results folder of tunebench: it holds no {SUITE_FILE} of ours")
        return Store(root)

    def suite(self) -> dict[str, Any]:
        """What `suite.json` says."""
        return read_suite(self.root) or {}

    def run_dir(self, experiment_id: str, repeat: int, attempt: int) -> Path:
        return self.root / "experiments" / experiment_id / "runs" / f"r{repeat}-t{attempt}"

    def job(self, experiment_id: str, *, repeat: int, attempt: int) -> Job:
        run_dir = self.run_dir(experiment_id, repeat, attempt)
        return Job(experiment_id=experiment_id, repeat=repeat, attempt=attempt, run_dir=run_dir)

    def add(self, experiments: Iterable[Experiment]) -> None:
        """Writes each `experiment.json`, and the order in `suite.json`.

        Limits, repeats and tags of an experiment may change when a folder is resumed; what is measured may not: the
        same id with other content is a ResultsError, and so is a secret in its arguments or variables.
        """
        order = []
        for experiment in experiments:
            self._add_one(experiment)
            order.append(experiment.id)
        suite = self.suite()
        known = suite.get("experiments", [])
        merged = list(dict.fromkeys([*known, *order]))
        if merged != known:
            atomic.replace(self.root / SUITE_FILE, json.dumps({**suite, "experiments": merged}, indent=2) + "\n")

    def _add_one(self, experiment: Experiment) -> None:
        _refuse_secrets(experiment)
        path = self.root / "experiments" / experiment.id / EXPERIMENT_FILE
        text = dump(experiment)
        if path.exists():
            try:
                known = _read_experiment(path)
            except ValueError:
                known = None  # half-written by a crash long ago: what is owed is known, so it is written anew
            if known is not None and _measured(known) != _measured(experiment):
                raise ResultsError(
                    f"{path} holds another experiment under the id {experiment.id}; use another results folder"
                )
            if known == experiment:
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.replace(path, text)

    def experiment(self, experiment_id: str) -> Experiment:
        """The experiment of that id. Raises ResultsError when it is not there or can't be read."""
        path = self.root / "experiments" / experiment_id / EXPERIMENT_FILE
        try:
            found = _read_experiment(path)
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path}: cannot be read as an experiment: {_first_line(error)}") from error
        if found.id != experiment_id:
            raise ResultsError(
                f"{path}: calls itself {found.id!r:.200}, which is not its folder's name; it is left out"
            )
        return found

    def run(self, job: Job) -> StoredRun:
        """One run as its folder shows it now."""
        return StoredRun(job=job, state=state(job.run_dir), record=_read_record(job, []))

    def runs(self, experiment_id: str) -> tuple[StoredRun, ...]:
        """The runs of an experiment, by repeat and attempt; a record that can't be read is None."""
        return tuple(self._runs(experiment_id, []))

    def _runs(self, experiment_id: str, warnings: list[str]) -> Iterator[StoredRun]:
        folder = self.root / "experiments" / experiment_id / "runs"
        names = (_RUN_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        for repeat, attempt in sorted((int(match[1]), int(match[2])) for match in names if match):
            job = self.job(experiment_id, repeat=repeat, attempt=attempt)
            yield StoredRun(job=job, state=state(job.run_dir), record=_read_record(job, warnings))

    def remove_unfinished_claims(self) -> None:
        """Sweeps what claimants left that were killed in the midst of claiming."""
        for folder in (self.root / "experiments").glob("*/runs"):
            remove_unfinished(folder)

    def contents(self) -> Contents:
        """Everything that was recorded, in the order asked for; what can't be read is left out and named."""
        warnings: list[str] = []
        found = []
        for experiment_id in self._ids():
            if not TAME.fullmatch(experiment_id):
                warnings.append(f"{self.root / 'experiments'} holds {experiment_id!r:.200}, no name of ours: left out")
                continue
            try:
                experiment = self.experiment(experiment_id)
            except ResultsError as error:
                warnings.append(str(error))
                continue
            found.append(StoredExperiment(experiment=experiment, runs=tuple(self._runs(experiment_id, warnings))))
        wanted = asked.current(self.root)
        removed = frozenset[str]() if wanted is None else frozenset(one.experiment.id for one in found) - wanted
        return Contents(experiments=tuple(found), warnings=tuple(warnings), removed=removed)

    def _ids(self) -> list[str]:
        folder = self.root / "experiments"
        paths = folder.iterdir() if folder.is_dir() else ()
        there = {path.name for path in paths if os.path.lexists(path / EXPERIMENT_FILE)}
        known = self.suite().get("experiments")
        order = [name for name in known if isinstance(name, str) and name in there] if isinstance(known, list) else []
        order = list(dict.fromkeys(order))
        return [*order, *sorted(there.difference(order))]

    def write_text(self, name: str, text: str) -> Path:
        """Writes what is derived from the records (`benchmarks.csv`…), whole or not at all, over an older one."""
        path = self.root / name
        try:
            atomic.replace(path, text)
        except OSError as error:
            raise ResultsError(
                f"{path}: cannot be written: {error.strerror}; the records it is made of are untouched"
            ) from error
        return path

    def plan(self, experiments: Sequence[Experiment], *, retry: Retry = NO_RETRY) -> tuple[Job, ...]:
        """Every owed run, round after round, each round shuffled by the folder's seed and the round's number.

        Owed is a repeat without a run, or whose last run was lost or cancelled, failed for a reason that is not the
        experiment's (a port that was taken), or failed as `retry` asks. Skipped experiments owe nothing; one
        with adaptive repeats owes what `repeats.wanted` says by the records that are there.
        """
        seed = self.suite().get("seed", 0)
        due = sorted(
            (one for one in experiments if one.skip is None and one.cannot_run_here is None), key=attrgetter("id")
        )
        last = {experiment.id: {run.job.repeat: run for run in self.runs(experiment.id)} for experiment in due}
        jobs: list[Job] = []
        owed = {one.id: wanted(one, [run.record for run in last[one.id].values() if run.record]) for one in due}
        for repeat in range(1, max(owed.values(), default=0) + 1):
            this_round = [experiment for experiment in due if owed[experiment.id] >= repeat]
            random.Random(f"{seed}:{repeat}").shuffle(this_round)
            for experiment in this_round:
                run = last[experiment.id].get(repeat)
                if run is None:
                    jobs.append(self.job(experiment.id, repeat=repeat, attempt=1))
                elif _is_owed(run, retry):
                    jobs.append(self.job(experiment.id, repeat=repeat, attempt=run.job.attempt + 1))
        return tuple(jobs)


def write_record(run_dir: Path, record: RunRecord) -> bool:
    """Puts `record.json` in place, the last act of a run. False when there is one already: the first one stands."""
    return atomic.place_once(run_dir / RECORD_FILE, redact(dump(record)))


def unfinished_record(job: Job, status: Status = Status.LOST) -> RunRecord:
    """The record of a run whose process is gone without having written one: lost, or cancelled with its executor."""
    claim = read_claim(job.run_dir)
    started_at = claim.claimed_at if claim else job.run_dir.stat().st_mtime
    lost = "the process that ran it is gone without a record (killed, or the machine went down)"
    return RunRecord(
        experiment_id=job.experiment_id,
        repeat=job.repeat,
        attempt=job.attempt,
        status=status,
        kind=status.value,
        cause=lost if status is Status.LOST else "the benchmark was interrupted before the run had begun",
        tail=redact(_own_log(job.run_dir)) or None,
        started_at=started_at,
        wall_s=max(0.0, time.time() - started_at),
    )


def _own_log(run_dir: Path) -> str:
    """What `run-one` itself complained about, if it did."""
    try:
        return redact(untrusted.read_tail(run_dir / RUN_ONE_LOG, limit=64 * 1024))[-4000:]
    except (OSError, ValueError):
        return ""


def _read_record(job: Job, warnings: list[str]) -> RunRecord | None:
    path = job.run_dir / RECORD_FILE
    try:
        record = load(RunRecord, untrusted.read_bytes(path, limit=untrusted.RECORD_BYTES))
        if record.schema_version > SCHEMA_VERSION:
            newer = (
                f"it was written by a newer version (schema {record.schema_version}, this one knows {SCHEMA_VERSION})"
            )
            warnings.append(f"{path}: {newer}: what is new in it is left out")
        return record
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        warnings.append(f"{path}: cannot be read as a record and is left out: {_first_line(error)}")
        return None


def _read_experiment(path: Path) -> Experiment:
    return load(Experiment, untrusted.read_bytes(path, limit=untrusted.RECORD_BYTES))


def _is_owed(run: StoredRun, retry: Retry) -> bool:
    if run.state is not JobState.ENDED:
        return run.state is JobState.LOST
    if run.record is None:
        return False  # a record that can't be read: what it says may be right, so it is not measured again unasked
    if run.record.status in (Status.LOST, Status.CANCELLED) or run.record.kind == "port_in_use":
        return True
    return retry.asks_for(run.record)


def _measured(experiment: Experiment) -> dict[str, Any]:
    """The experiment as its file holds it, less what may change under one id."""
    fields: dict[str, Any] = json.loads(dump(experiment))
    framework = {"framework": experiment.framework.digest if experiment.framework else None}
    return {name: value for name, value in fields.items() if name not in _MAY_CHANGE} | framework


def _refuse_secrets(experiment: Experiment) -> None:
    named = [name for name, value in experiment.env.items() if value and is_secret_name(name)]
    named += [name for name, value in experiment.arguments.items() if value and is_secret_name(name)]
    words = experiment.custom.command if experiment.custom else ()
    named += [name for place, begin, name in in_words(words) if not _PLACEHOLDER.fullmatch(words[place][begin:])]
    held = holds_secret(dump(experiment))
    if held and not named:
        named = [held]
    if named:
        raise ResultsError(
            f"scenario {redact(experiment.scenario)!r} sets {named[0]}, which would be written into the results folder; take "
            "it out and export it in the shell instead: the runs inherit it"
        )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
