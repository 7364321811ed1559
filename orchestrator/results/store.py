"""The results folder: where everything lies, what was asked for, what was recorded. The only module that writes results.

State is derived from the files on disk, never stored twice; reading writes nothing, tolerates files that a crash left
half-written, and names them. Does not start anything (`executors`), nor decide which runs are due (`due_runs`, `benchmark`).

    RESULTS/suite.json · experiments/<id>/experiment.json · experiments/<id>/runs/r<repeat>-t<attempt>/…
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import ResultsError
from orchestrator.files import reading, writing
from orchestrator.files.printable_text import is_utf8, with_bytes
from orchestrator.files.redaction import redact
from orchestrator.records import SCHEMA_VERSION, Experiment, Job, RunFolder, RunRecord, Status, dump, load
from orchestrator.records.experiment import TAME
from orchestrator.records.run_folder import EXPERIMENT_FILE
from orchestrator.results import experiment_file
from orchestrator.results import requested as asked
from orchestrator.results.claims import Clock, our_clock, read_claim, remove_unfinished, state
from orchestrator.results.contents import Contents, StoredExperiment, StoredRun
from orchestrator.results.due_runs import NO_RETRY, Retry, owed_runs, owing
from orchestrator.results.folder import SUITE_FILE, TOOL, is_ours, read_suite, refuse_foreign

_RUN_NAME = re.compile(r"r([1-9]\d*)-t([1-9]\d*)")


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
        if not is_utf8(str(root)):
            said = "the path holds bytes that are no UTF-8, which no record can hold; name another folder"
            raise ResultsError(f"{with_bytes(str(root))}: {said}")
        refuse_foreign(root)
        suite = {"tool": TOOL, "schema": SCHEMA_VERSION, "created": _now(), "seed": seed, "asked": dict(asked)}
        try:
            root.mkdir(parents=True, exist_ok=True)
            placed = writing.place_once(root / SUITE_FILE, redact(json.dumps(suite, indent=2, default=str)) + "\n")
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
            raise ResultsError(f"{root}: there is no such results folder; `tunebench run` makes one")
        if not is_ours(root):
            raise ResultsError(f"{root} is not a results folder of tunebench: it holds no {SUITE_FILE} of ours")
        return Store(root)

    def suite(self) -> dict[str, Any]:
        """What `suite.json` says."""
        return read_suite(self.root) or {}

    def run_dir(self, experiment_id: str, repeat: int, attempt: int) -> Path:
        return self.root.joinpath("experiments", experiment_id, "runs", f"r{repeat}-t{attempt}")

    def job(self, experiment_id: str, *, repeat: int, attempt: int) -> Job:
        run_dir = self.run_dir(experiment_id, repeat, attempt)
        return Job(experiment_id=experiment_id, repeat=repeat, attempt=attempt, run_dir=run_dir)

    def add(self, experiments: Iterable[Experiment]) -> None:
        """Writes each `experiment.json`, and the order in `suite.json`.

        Limits, repeats and tags of an experiment may change when a folder is resumed; what is measured may not: the
        same id with other content is a ResultsError, and so is a secret in its arguments or variables, or what no file can hold.
        """
        order = []
        for experiment in experiments:
            self._add_one(experiment)
            order.append(experiment.id)
        suite = self.suite()
        known = suite.get("experiments", [])
        merged = list(dict.fromkeys([*known, *order]))
        if merged != known:
            writing.replace(self.root / SUITE_FILE, json.dumps({**suite, "experiments": merged}, indent=2) + "\n")

    def _add_one(self, experiment: Experiment) -> None:
        path = self.root / "experiments" / experiment.id / EXPERIMENT_FILE
        text = experiment_file.text_of(experiment)
        if path.exists():
            try:
                known = experiment_file.read(path)
            except ValueError:
                known = None  # half-written by a crash long ago: what is owed is known, so it is written anew
            if known is not None and not experiment_file.measure_alike(known, experiment):
                raise ResultsError(
                    f"{path} holds another experiment under the id {experiment.id}; use another results folder"
                )
            if known == experiment:
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        writing.replace(path, text)

    def experiment(self, experiment_id: str) -> Experiment:
        """The experiment of that id. Raises ResultsError when it is not there or can't be read."""
        path = self.root / "experiments" / experiment_id / EXPERIMENT_FILE
        try:
            found = experiment_file.read(path)
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

    def runs(self, experiment_id: str, *, clock: Clock = our_clock) -> tuple[StoredRun, ...]:
        """The runs of an experiment, by repeat and attempt; a record that can't be read is None."""
        return tuple(self._runs(experiment_id, [], clock=clock))

    def _runs(self, experiment_id: str, warnings: list[str], *, clock: Clock = our_clock) -> Iterator[StoredRun]:
        folder = self.root / "experiments" / experiment_id / "runs"
        names = (_RUN_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        for repeat, attempt in sorted((int(match[1]), int(match[2])) for match in names if match):
            job = self.job(experiment_id, repeat=repeat, attempt=attempt)
            yield StoredRun(job=job, state=state(job.run_dir, clock=clock), record=_read_record(job, warnings))

    def remove_unfinished_claims(self) -> None:
        """Sweeps what claimants left that were killed in the midst of claiming."""
        for folder in (self.root / "experiments").glob("*/runs"):
            remove_unfinished(folder)

    def contents(self) -> Contents:
        """Everything that was recorded, in the order asked for; what can't be read is left out and named."""
        warnings: list[str] = []
        found = []
        for experiment_id in self.ids():
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

    def ids(self) -> list[str]:
        """The names of all experiments: in the order asked for, then those that nobody asked for."""
        folder = self.root / "experiments"
        paths = folder.iterdir() if folder.is_dir() else ()
        there = {path.name for path in paths if os.path.lexists(path / EXPERIMENT_FILE)}
        known = self.suite().get("experiments")
        order = [name for name in known if isinstance(name, str) and name in there] if isinstance(known, list) else []
        order = list(dict.fromkeys(order))
        return [*order, *sorted(there.difference(order))]

    def write_text(self, name: str, text: str) -> Path:
        """Writes what is derived from the records (`benchmarks.csv`…), whole or not at all, over an older one."""
        return self.write_bytes(name, text.encode("utf-8", "surrogateescape"))

    def write_bytes(self, name: str, content: bytes) -> Path:
        """`write_text` for a file that is none (Parquet)."""
        path = self.root / name
        try:
            writing.replace(path, content)
        except OSError as error:
            raise ResultsError(
                f"{path}: cannot be written: {error.strerror}; the records it is made of are untouched"
            ) from error
        return path

    def plan(self, experiments: Sequence[Experiment], *, retry: Retry = NO_RETRY) -> tuple[Job, ...]:
        """Every owed run as a job, round after round, each round shuffled by the folder's seed: see `due_runs`."""
        runs = {one.id: self.runs(one.id) for one in owing(experiments)}
        found = owed_runs(experiments, runs, seed=self.suite().get("seed", 0), retry=retry)
        return tuple(self.job(one.experiment_id, repeat=one.repeat, attempt=one.attempt) for one in found)


def write_record(run_dir: Path, record: RunRecord) -> bool:
    """Puts `record.json` in place, the last act of a run. False when there is one already: the first one stands."""
    return writing.place_once(RunFolder(run_dir).record, redact(dump(record)))


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
        tail=redact(_own_log(job.folder)) or None,
        started_at=started_at,
        wall_s=max(0.0, time.time() - started_at),
    )


def _own_log(folder: RunFolder) -> str:
    """What `run-one` itself complained about, if it did."""
    try:
        return redact(reading.read_tail(folder.run_one_log, limit=64 * 1024))[-4000:]
    except (OSError, ValueError):
        return ""


def _read_record(job: Job, warnings: list[str]) -> RunRecord | None:
    path = job.folder.record
    try:
        record = load(RunRecord, reading.read_bytes(path, limit=reading.RECORD_BYTES))
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


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
