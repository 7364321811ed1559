"""The files of submitted arrays. A batch is one array: its folder is `RESULTS/slurm/<number>/`.

The submitter writes `batch.json`, the intent, before it calls sbatch, and `submitted.json` with Slurm's number of the job after
it. So a submitter that is killed between the two finds the job again by its name. The name contains the results folder and the
number of the batch, so it belongs to one batch only. A copy of a results folder has the files of the original's batches, but not
the batches: its commands do not touch the original's jobs.

Each element writes marks into `elements/`: empty files whose names say the element, the number of its restarts and what happened.
The marks and the records of the runs are the truth about a batch. What squeue says is a hint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.errors import ResultsError
from orchestrator.executors.slurm.client import ELEMENT_LOG, PREFIX
from orchestrator.executors.slurm.shapes import Shape
from orchestrator.files import reading, writing
from orchestrator.records import Job, dump, load
from orchestrator.results.store import Store

FOLDER = "slurm"
_NUMBER = re.compile(r"\d{4,}")
_RUN = re.compile(r"(?P<id>[^/]+)/r(?P<repeat>[1-9]\d*)-t(?P<attempt>[1-9]\d*)")


class Mark(StrEnum):
    """An event that an element marks. `STOPPED`: a signal ended it; Slurm may run it again or not."""

    STARTED = "started"
    DONE = "done"
    STOPPED = "stopped"


_MARK = re.compile(rf"(?P<element>\d+)\.(?P<restart>\d+)\.(?P<event>{'|'.join(Mark)})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """An array of allocations of one shape. Each element has the runs `<experiment id>/r<repeat>-t<attempt>` in their order.

    `throttle` is the number of elements that run at once. None: no limit. `place` and `inode` are the batch's folder and its number
    on the disk. None: unknown, as in a folder by an older version.
    """

    name: str
    shape: Shape
    time_s: float | None
    elements: tuple[tuple[str, ...], ...]
    created_at: float
    throttle: int | None = None
    place: str | None = None
    inode: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """Slurm's number of the job, and the time at which it was known."""

    job_id: int
    at: float


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """The folder of one batch."""

    path: Path

    @property
    def script(self) -> Path:
        return self.path / "job.sh"

    @property
    def results(self) -> Path:
        return self.path.parents[1]

    def batch(self) -> Batch | None:
        """Return the batch; None if its file is missing or damaged, or if it is a copy of the file of another folder."""
        batch = self._read()
        return None if batch is None or self._is_copied(batch) else batch

    def is_copy(self) -> bool:
        """Return whether the jobs of this batch belong to another results folder, and this one is a copy of it."""
        batch = self._read()
        return batch is not None and self._is_copied(batch)

    def _read(self) -> Batch | None:
        with suppress(OSError, ValueError):
            batch = load(Batch, reading.read_bytes(self.path / "batch.json", limit=reading.RECORD_BYTES))
            return batch if re.fullmatch(rf"{PREFIX}[0-9a-f]{{8}}\.{self.path.name}", batch.name) else None
        return None

    def _is_copied(self, batch: Batch) -> bool:
        # A folder that was restored keeps its path, and one that was moved its inode. A copy has neither. The snapshot of a file
        # system has the inode, but the original is still there.
        if batch.place is None or batch.place == str(self.path):
            return False
        with suppress(OSError):
            return self.path.stat().st_ino != batch.inode or not self.path.samefile(batch.place)
        return False

    def submitted(self) -> Submitted | None:
        """Return Slurm's answer to the submission; None if it is unknown."""
        with suppress(OSError, ValueError):
            return load(Submitted, reading.read_bytes(self.path / "submitted.json", limit=reading.CLAIM_BYTES))
        return None

    def note_submitted(self, job_id: int) -> None:
        writing.replace(self.path / "submitted.json", dump(Submitted(job_id=job_id, at=time.time())))

    def note_cancelled(self) -> None:
        """Note that Tunebench cancelled the batch. Its runs that never began are submitted again when they are due."""
        (self.path / "cancelled").touch()

    def is_cancelled(self) -> bool:
        return (self.path / "cancelled").exists()

    def log(self, element: int) -> Path:
        """Return the file with the output of an element's script."""
        return self.path / ELEMENT_LOG.format(element)

    def mark(self, element: int, restart: int, event: Mark) -> None:
        folder = self.path / "elements"
        (folder / f"{element}.{restart}.{event}").touch()
        writing.sync_folder(folder)

    def marks(self) -> dict[int, dict[int, set[Mark]]]:
        """Return element → restart → marks."""
        found: dict[int, dict[int, set[Mark]]] = {}
        with suppress(OSError):
            for entry in os.scandir(self.path / "elements"):
                match = _MARK.fullmatch(entry.name)
                if match:
                    restarts = found.setdefault(int(match["element"]), {})
                    restarts.setdefault(int(match["restart"]), set()).add(Mark(match["event"]))
        return found

    def jobs(self, runs: Sequence[str]) -> list[Job]:
        """Return the runs of an element as jobs of this results folder. Raise ResultsError for a name that is not a run's."""
        store, jobs = Store(self.results), []
        for run in runs:
            match = _RUN.fullmatch(run)
            if match is None:
                raise ResultsError(f"{self.path / 'batch.json'}: {run!r} is not the name of a run")
            numbers = {"repeat": int(match["repeat"]), "attempt": int(match["attempt"])}
            jobs.append(store.job(match["id"], **numbers))
        return jobs


def run_name(job: Job) -> str:
    """Return the name of a run in a batch."""
    return f"{job.experiment_id}/{job.name}"


def batch_folders(results: Path) -> Iterator[BatchFolder]:
    """Yield the folders of all batches of a results folder, the oldest first."""
    folder = results / FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for name in sorted((name for name in names if _NUMBER.fullmatch(name)), key=int):
        yield BatchFolder(folder / name)


def new_batch(
    results: Path, shape: Shape, elements: Sequence[Sequence[Job]], *, time_s: float | None, throttle: int | None = None
) -> BatchFolder:
    """Make the folder of a new batch, and write the intent to submit it. Sync both, so that they survive a power cut."""
    folder = _next_folder(results)
    batch = Batch(
        name=f"{PREFIX}{_campaign(results)}.{folder.path.name}",
        shape=shape,
        time_s=time_s,
        elements=tuple(tuple(run_name(job) for job in element) for element in elements),
        created_at=time.time(),
        throttle=throttle,
        place=str(folder.path),
        inode=folder.path.stat().st_ino,
    )
    (folder.path / "elements").mkdir()
    writing.replace(folder.path / "batch.json", dump(batch))
    writing.sync_folder(folder.path.parent)
    return folder


def _next_folder(results: Path) -> BatchFolder:
    """Make a folder with the next number. Another submitter may make one at the same time; each gets its own."""
    parent = results / FOLDER
    parent.mkdir(exist_ok=True)
    last = max((int(folder.path.name) for folder in batch_folders(results)), default=0)
    while True:
        last += 1
        with suppress(FileExistsError):
            path = parent / f"{last:04}"
            path.mkdir()
            return BatchFolder(path)


def _campaign(results: Path) -> str:
    """Return a short name that no other results folder has, also not a copy of this folder in another place."""
    created = Store(results).suite().get("created")
    return hashlib.sha256(json.dumps([str(results), created]).encode()).hexdigest()[:8]


def is_done(marks: Mapping[int, set[Mark]]) -> bool:
    return bool(marks) and Mark.DONE in marks[max(marks)]


def is_over(folder: BatchFolder) -> bool:
    """Return whether every element of a batch has marked its end. A damaged batch is over."""
    batch, marks = folder.batch(), folder.marks()
    return batch is None or all(is_done(marks.get(number, {})) for number in range(len(batch.elements)))


def unconfirmed(results: Path) -> int:
    """Return how many submissions of a results folder have no number from Slurm: their jobs may be in the queue, or not."""
    return sum(not is_over(folder) and not folder.submitted() for folder in batch_folders(results))
