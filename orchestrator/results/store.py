"""The results folder: its paths, its experiments, its records. This is the only module that writes results.

The state of a run is derived from the files on disk and never stored. A read changes no file. Files that a crash left
half-written do not stop a read; warnings name them. `due_runs` decides which runs are due, and an executor starts them.

    RESULTS/suite.json · experiments/<id>/experiment.json · experiments/<id>/runs/r<repeat>-t<attempt>/…
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import ResultsError
from orchestrator.files import reading, writing
from orchestrator.files.printable_text import is_utf8, quoted, with_bytes
from orchestrator.files.redaction import redact, redact_file
from orchestrator.measure import memory_logs
from orchestrator.measure.gpu_timeline import sampler_file
from orchestrator.records import SCHEMA_VERSION, Experiment, Job, Measurement, RunFolder, RunRecord, dump, load
from orchestrator.records.experiment import SAFE_ID
from orchestrator.records.price import Price
from orchestrator.records.run_folder import EXPERIMENT_FILE
from orchestrator.results import experiment_file, requested
from orchestrator.results.claims import Clock, our_clock, remove_unfinished, state
from orchestrator.results.contents import Contents, StoredExperiment, StoredRun
from orchestrator.results.due_runs import NO_RETRY, Retry, can_run, due_runs
from orchestrator.results.folder import (
    SUITE_FILE,
    TOOL,
    is_ours,
    may_exist,
    plain_path,
    read_suite,
    refuse_damaged,
    refuse_foreign,
    with_dated_name,
)

# The largest number of ids in a message.
_RUN_NAME = re.compile(r"r([1-9]\d*)-t([1-9]\d*)")


class Store:
    """A results folder. `create` makes a new folder, `resume` opens an existing one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def create(root: Path, asked: Mapping[str, Any], *, seed: int = 0) -> Store:
        """Make a new results folder, with the request `asked` in `suite.json`. Raise ResultsError if the folder has content."""
        root = plain_path(root)
        if is_ours(root):
            raise ResultsError(f"{root}: the folder has results already; move the folder aside or resume it")
        if not is_utf8(str(root)):
            place = with_bytes(str(root))
            raise ResultsError(f"{place}: the path is not UTF-8, so records cannot contain it; name another folder")
        refuse_foreign(root)
        suite = {"tool": TOOL, "schema": SCHEMA_VERSION, "created": _now(), "seed": seed, "asked": dict(asked)}
        try:
            root.mkdir(parents=True, exist_ok=True)
            placed = writing.place_once(root / SUITE_FILE, redact(json.dumps(suite, indent=2, default=str)) + "\n")
            (root / "experiments").mkdir(exist_ok=True)
        except OSError as error:
            why = "it is a link to nothing; remove the link" if root.is_symlink() else error.strerror
            raise ResultsError(f"{root}: no results folder can be made here: {why}") from error
        if not placed:
            raise ResultsError(f"{root}: another tunebench has just made this folder; resume it")
        return Store(root)

    @staticmethod
    def resume(root: Path) -> Store:
        """Open a results folder. Raise ResultsError if it is missing or another kind of folder."""
        if not root.is_dir():
            raise ResultsError(f"{root}: there is no such folder; name a results folder, which `tunebench run` made")
        if not is_ours(root):
            refuse_damaged(root)
            raise ResultsError(
                f"{root}: this is not a results folder: it has no {SUITE_FILE} of tunebench; name another folder"
            )
        return Store(plain_path(root))

    def suite(self) -> dict[str, Any]:
        """Return the content of `suite.json`."""
        return read_suite(self.root) or {}

    def run_dir(self, experiment_id: str, repeat: int, attempt: int) -> Path:
        return self.root.joinpath("experiments", experiment_id, "runs", f"r{repeat}-t{attempt}")

    def job(self, experiment_id: str, *, repeat: int, attempt: int) -> Job:
        run_dir = self.run_dir(experiment_id, repeat, attempt)
        return Job(experiment_id=experiment_id, repeat=repeat, attempt=attempt, run_dir=run_dir)

    def add(self, experiments: Iterable[Experiment]) -> None:
        """Write each `experiment.json`. Also write the order of the experiments into `suite.json`.

        Limits, repeats and tags of an experiment may change when a folder is resumed. Raise ResultsError if the folder has
        another measurement with the same id, or if an experiment contains a secret or is not UTF-8.
        """
        experiments = list(experiments)
        for experiment in experiments:
            self._add_one(experiment)
        suite, known = self.suite(), self._listed()
        merged = list(dict.fromkeys([*known, *(experiment.id for experiment in experiments)]))
        if merged != known:
            writing.replace(self.root / SUITE_FILE, json.dumps({**suite, "experiments": merged}, indent=2) + "\n")

    def refuse_if_hidden(self, job: Job) -> None:
        """Raise ResultsError if this process may not read the run's record, or cannot read it now. The record may be a good one."""
        try:
            reading.read_bytes(job.folder.record, limit=reading.RECORD_BYTES)
        except FileNotFoundError:
            pass
        except OSError as error:
            cure = "make it readable for you, and repeat the command"
            raise ResultsError(f"{job.folder.record}: it cannot be read: {error.strerror}; {cure}") from error
        except ValueError:  # it is damaged
            pass

    def note_price(self, price: Price) -> None:
        """Write the price of the machine's time into `suite.json`. It replaces an earlier price."""
        suite = self.suite()
        if suite.get("price") != str(price):
            writing.replace(self.root / SUITE_FILE, json.dumps({**suite, "price": str(price)}, indent=2) + "\n")

    def _add_one(self, experiment: Experiment) -> None:
        path = self.root / "experiments" / experiment.id / EXPERIMENT_FILE
        text = experiment_file.text_of(experiment)
        if path.exists():
            try:
                known = experiment_file.read(path)
            except ValueError:
                known = None  # a crash left the file half-written, so write it again
            if known is not None and not experiment_file.measure_alike(known, experiment):
                raise ResultsError(
                    f"{path}: the folder has another experiment with the id {experiment.id}; use another results folder"
                )
            if known == experiment:
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        writing.replace(path, text)

    def experiment(self, experiment_id: str) -> Experiment:
        """Return the experiment with this id. Raise ResultsError if it is missing or cannot be read."""
        path = self.root / "experiments" / experiment_id / EXPERIMENT_FILE
        try:
            experiment = experiment_file.read(path)
        except (OSError, ValueError) as error:
            raise ResultsError(f"{path}: cannot be read as an experiment: {_first_line(error)}") from error
        if experiment.id != experiment_id:
            raise ResultsError(
                f"{path}: its id {quoted(experiment.id, longest=200)} is not its folder's name; the experiment is left out"
            )
        return experiment

    def run(self, job: Job) -> StoredRun:
        """Return a run as its folder shows it now."""
        return StoredRun(job=job, state=state(job.run_dir), record=_read_record(job, []))

    def runs(self, experiment_id: str, *, clock: Clock = our_clock) -> tuple[StoredRun, ...]:
        """Return the runs of an experiment, sorted by repeat and attempt. A record that cannot be read is None."""
        return tuple(self._runs(experiment_id, [], clock=clock))

    def _runs(self, experiment_id: str, warnings: list[str], *, clock: Clock = our_clock) -> Iterator[StoredRun]:
        folder = self.root / "experiments" / experiment_id / "runs"
        names = (_RUN_NAME.fullmatch(path.name) for path in folder.iterdir()) if folder.is_dir() else ()
        for repeat, attempt in sorted((int(match[1]), int(match[2])) for match in names if match):
            job = self.job(experiment_id, repeat=repeat, attempt=attempt)
            yield StoredRun(job=job, state=state(job.run_dir, clock=clock), record=_read_record(job, warnings))

    def remove_unfinished_claims(self) -> None:
        """Remove the unfinished claims of processes that were killed while they claimed a run."""
        for folder in (self.root / "experiments").glob("*/runs"):
            remove_unfinished(folder)

    def contents(self) -> Contents:
        """Return all experiments and runs in the order of the plan. Files that cannot be read become warnings."""
        warnings: list[str] = []
        experiments = []
        present = self.ids()
        for experiment_id in present:
            if not SAFE_ID.fullmatch(experiment_id):
                name = quoted(experiment_id, longest=200)
                warnings.append(
                    f"{self.root / 'experiments'}: {name} is left out, because it is not the id of an experiment"
                )
                continue
            try:
                experiment = self.experiment(experiment_id)
            except ResultsError as error:
                warnings.append(str(error))
                continue
            runs = tuple(self._runs(experiment_id, warnings))
            experiments.append(StoredExperiment(experiment=experiment, runs=runs))
        wanted = requested.current(self.root)
        ids = frozenset(stored.experiment.id for stored in experiments)
        removed = ids - (ids if wanted is None else wanted)
        warnings += self.missing(present).values()
        return Contents(experiments=tuple(experiments), warnings=tuple(warnings), removed=removed)

    def missing(self, present: Sequence[str]) -> dict[str, str]:
        """Return id → sentence for each requested experiment that is gone. `present` is the result of `ids`."""
        wanted = requested.current(self.root)
        gone = [name for name in self._listed() if name not in present and (wanted is None or name in wanted)]
        folders = {name: self.root / "experiments" / name for name in gone}
        lost = "the file is missing, and the runs of this folder are left out; repeat `tunebench run`"
        return {
            name: f"{at / EXPERIMENT_FILE}: {lost}"
            if at.is_dir()
            else f"{at}: the folder of this experiment is missing"
            for name, at in folders.items()
        }

    def ids(self) -> list[str]:
        """Return the ids of all experiments: first those in `suite.json`, in its order, then all remaining ids.

        Raise ResultsError if `suite.json` lists experiments, but the folder has none of them.
        """
        folder, listed = self.root / "experiments", self._listed()
        paths = folder.iterdir() if folder.is_dir() else ()
        present = {path.name for path in paths if may_exist(path / EXPERIMENT_FILE)}
        if listed and not present:
            raise ResultsError(
                f"{folder}: {SUITE_FILE} lists {len(listed)} experiments, and none of them is there; mount the disk of this "
                "folder, or restore the folder"
            )
        order = [name for name in listed if name in present]
        return [*order, *sorted(present.difference(order))]

    def _listed(self) -> list[str]:
        known = self.suite().get("experiments")
        names = known if isinstance(known, list) else []
        return list(dict.fromkeys(name for name in names if isinstance(name, str)))

    def write(self, name: str, content: str | bytes) -> Path:
        """Write a file that is made from the records, such as `benchmarks.csv`. Replace an older file, and return the path."""
        path = self.root / name
        try:
            if path.parent != self.root:  # a results folder that was renamed meanwhile is not made again
                path.parent.mkdir(exist_ok=True)
            writing.replace(path, content)
        except OSError as error:
            raise ResultsError(
                f"{path}: cannot be written: {error.strerror}; the records of the runs are unchanged"
            ) from error
        return path

    def plan(self, experiments: Sequence[Experiment], *, retry: Retry = NO_RETRY) -> tuple[Job, ...]:
        """Return the due runs as jobs, in the order of `due_runs`. The seed in `suite.json` shuffles each round."""
        runs = {experiment.id: self.runs(experiment.id) for experiment in can_run(experiments)}
        due = due_runs(experiments, runs, seed=self.suite().get("seed", 0), retry=retry)
        return tuple(self.job(experiment_id, repeat=repeat, attempt=attempt) for experiment_id, repeat, attempt in due)


def write_record(run_dir: Path, record: RunRecord, *, reserved: Path | None = None) -> bool:
    """Create `record.json`. This is the last step of a run. If the file already exists, leave it unchanged and return False.

    The run's command may have removed the run's folder, or made it read-only: undo this. Move aside a `record.json` that cannot
    be read. If the record cannot be placed because the disk is full, it stays in the file `reserved`. Also redact the run's files,
    which `run-one` cannot do if it was killed. Raise ValueError if the record is too large to be read.
    """
    if not run_dir.is_dir() and is_ours(RunFolder(run_dir).results):
        for folder in (run_dir.parents[1], run_dir.parent, run_dir):
            if os.path.lexists(folder) and not folder.is_dir():
                with_dated_name(folder)
        run_dir.mkdir(parents=True)
    writing.make_writable(run_dir.parent)
    writing.make_writable(run_dir)
    set_record_aside(run_dir)
    files = RunFolder(run_dir)
    redact_files(files)
    text = redact(dump(record))
    if (size := len(text.encode("utf-8", "surrogatepass"))) > reading.RECORD_BYTES:  # no one could read it
        most = reading.RECORD_BYTES / 2**20
        raise ValueError(
            f"it has {size / 2**20:.1f} MiB, and at most {most:.0f} are read; shorten the names of its numbers"
        )
    placed = writing.place_once(files.record, text, reserved=reserved)
    with suppress(OSError):
        files.kept_record.unlink(missing_ok=True)
    return placed


def redact_files(files: RunFolder) -> None:
    """Redact the files with messages: of the ranks' errors, of NVML and of `nvidia-smi`. A message may contain a token."""
    for path in files.all_workers().values():
        redact_file(path, limit=reading.RECORD_BYTES)
    for folder in (files.path, *files.nodes.glob("*")):
        sampler_file.mask_texts(folder / sampler_file.SAMPLES)
        memory_logs.mask_texts(folder / memory_logs.SAMPLES)


def set_record_aside(run_dir: Path, *, unless: Callable[[RunRecord], bool] = lambda record: True) -> str | None:
    """Give `record.json` a dated name if it cannot be read, or if `unless` does not accept its record.

    Return the new name, if any.
    """
    path = RunFolder(run_dir).record
    try:
        if unless(load(RunRecord, reading.read_bytes(path, limit=reading.RECORD_BYTES))):
            return None
    except OSError:
        return None  # there is no record, or one that may be valid although this read failed
    except ValueError:
        pass
    return with_dated_name(path).name


def _read_record(job: Job, warnings: list[str]) -> RunRecord | None:
    path = job.folder.record
    try:
        record = load(RunRecord, reading.read_bytes(path, limit=reading.RECORD_BYTES))
        if (record.experiment_id, record.repeat, record.attempt) != (job.experiment_id, job.repeat, job.attempt):
            raise ValueError("it is another run's")
        if not (math.isfinite(record.started_at) and math.isfinite(record.wall_s)):
            raise ValueError("its times are invalid")
        if record.schema_version > SCHEMA_VERSION:
            versions = f"(schema {record.schema_version}, this one knows {SCHEMA_VERSION})"
            warnings.append(f"{path}: it was written by a newer version {versions}: its new fields are left out")
        return _within_floats(record)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        warnings.append(f"{path}: cannot be read as a record and is left out: {_first_line(error)}")
        return None


def _within_floats(record: RunRecord) -> RunRecord:
    """Return the record with infinity for whole numbers beyond all floats. Readers take numbers that are `finite` only."""

    def is_beyond(one: Measurement) -> bool:
        return isinstance(one.value, int) and abs(one.value) > sys.float_info.max

    if not any(map(is_beyond, record.measurements)):
        return record
    within = (replace(one, value=math.inf) if is_beyond(one) else one for one in record.measurements)
    return replace(record, measurements=tuple(within))


def _first_line(error: OSError | ValueError) -> str:
    return next(iter(reading.reason(error).splitlines()), type(error).__name__)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
