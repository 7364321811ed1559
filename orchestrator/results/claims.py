"""Who has a run: claims by rename, owners by process, and the state that follows from the files of the run folder.

A run folder is claimed by preparing it aside and renaming it to its name, which only one of several claimants can do.
`run-one` then says in `owner.json` which process it is. Whether that process lives is looked up, never remembered; on another
host, or in another container, it can't be, and a heartbeat tells: a file that `run-one` touches. Who takes a run over by its age
asks the clock of the file server, by a file that is made and removed; who only looks takes his own, and writes nothing. One that
is silent may be cut off and still be at work: it is unknown, never taken for dead.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from orchestrator.files import reading, writing
from orchestrator.records import Job, JobState, RunFolder

HEARTBEAT_S = 30.0
"""How often `run-one` touches its heartbeat."""

SILENT_AFTER_S = 300.0
"""A heartbeat that is older is no sign of life; file servers show a change late."""


Clock = Callable[[Path], float | None]
"""The time in seconds since the epoch, for the files of a folder; None where it can't be told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A process, so that it is not mistaken for a later one with the same number, or the same number elsewhere."""

    host: str
    boot_id: str
    pid: int
    start_time: float
    pid_namespace: str = ""

    def is_here(self) -> bool:
        """Whether its process can be seen from here, or could be if it lived: an earlier boot of this host is gone for good."""
        if self.host != socket.gethostname():
            return False
        return self.boot_id != _boot_id() or self.pid_namespace in ("", _pid_namespace())

    def lives(self) -> bool:
        """Whether the process runs, for one that `is_here`."""
        return self.is_here() and self.boot_id == _boot_id() and _start_time(self.pid) == self.start_time


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What `job.json` says: which run this is, who claimed it, and the marker that its processes carry."""

    experiment_id: str
    repeat: int
    attempt: int
    marker: str
    executor: str
    claimed_at: float
    owner: Owner
    details: Mapping[str, Any]


def this_process() -> Owner:
    """The process that asks, as an owner."""
    start = _start_time(os.getpid())
    return Owner(
        host=socket.gethostname(),
        boot_id=_boot_id(),
        pid=os.getpid(),
        start_time=start or 0.0,
        pid_namespace=_pid_namespace(),
    )


@cache
def _pid_namespace() -> str:
    """Tells apart containers of one host that have its name: the same number is another process in each."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _start_time(pid: int) -> float | None:
    """When the process started; None when there is none, or only its remains. In Linux's ticks: no clock moves them."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else float(fields[19])
    except FileNotFoundError:
        pass
    except (OSError, IndexError, ValueError):
        return None
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time(), 1)
    except psutil.Error:
        return None


def claim(job: Job, *, executor: str, details: Mapping[str, Any] | None = None) -> Claim | None:
    """Takes the job for this process: makes its folder, with `job.json` in it. None when somebody else has it."""
    mine = Claim(
        experiment_id=job.experiment_id,
        repeat=job.repeat,
        attempt=job.attempt,
        marker=uuid.uuid4().hex,
        executor=executor,
        claimed_at=time.time(),
        owner=this_process(),
        details=dict(details or {}),
    )
    aside = job.run_dir.parent / f".{mine.marker}"
    aside.mkdir(parents=True)
    try:
        writing.replace(RunFolder(aside).claim, json.dumps(asdict(mine), indent=2) + "\n")
        os.rename(aside, job.run_dir)  # refused where a folder with anything in it has the name
    except OSError:
        if not job.run_dir.exists():
            raise
        return None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    writing.sync_folder(job.run_dir.parent)
    written = read_claim(job.run_dir)
    return mine if written is not None and written.marker == mine.marker else None


def remove_unfinished(runs: Path) -> None:
    """Removes what claimants left that were killed before their claim had its name; nothing was run there."""
    for aside in runs.glob(".*") if runs.is_dir() else ():
        written = read_claim(aside)
        left = (
            written.owner.is_here() and not written.owner.lives()
            if written
            else (silence_s(aside, file_servers_clock) or 0) > SILENT_AFTER_S
        )
        if left:
            shutil.rmtree(aside, ignore_errors=True)


def take_over(run_dir: Path) -> None:
    """Says in `owner.json` that this process runs the job from now on."""
    writing.replace(RunFolder(run_dir).owner, json.dumps(asdict(this_process()), indent=2) + "\n")


def note_neighbour(run_dir: Path, experiment_id: str) -> None:
    """Says in a run's folder that a run of this experiment has begun beside it."""
    with suppress(OSError), RunFolder(run_dir).neighbours.open("a", encoding="utf-8") as file:
        file.write(experiment_id + "\n")


def neighbours(run_dir: Path) -> tuple[str, ...]:
    """The experiments whose runs went on beside this one, a word for each such run."""
    try:
        return tuple(reading.read_text(RunFolder(run_dir).neighbours, limit=reading.CLAIM_BYTES).split())
    except (OSError, ValueError):
        return ()


def beat(run_dir: Path) -> None:
    """Touches the heartbeat. A disk that is full or away is no reason to end a run."""
    with suppress(OSError):
        RunFolder(run_dir).heartbeat.touch()


def silence_s(run_dir: Path, clock: Clock) -> float | None:
    """Seconds since the last sign of life in the folder; None where it can't be told."""
    folder = RunFolder(run_dir)
    heard = [_modified(path) for path in (folder.heartbeat, folder.owner, folder.claim)]
    heard += [] if any(heard) else [_modified(run_dir)]
    now = clock(run_dir)
    known = [moment for moment in heard if moment is not None]
    return None if now is None or not known else max(0.0, now - max(known))


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def our_clock(_folder: Path) -> float:
    """This machine's clock: it may differ from that of the file server, which says when files were changed."""
    return time.time()


def file_servers_clock(folder: Path) -> float | None:
    """The clock of whoever keeps the folder's files: it sets the time of a file that is made for that, and removed again."""
    probe = folder / f".{uuid.uuid4().hex}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    except OSError:
        return None
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def read_claim(run_dir: Path) -> Claim | None:
    """What `job.json` says; None when it is missing or is not ours."""
    fields = _read_object(RunFolder(run_dir).claim)
    try:
        return Claim(**{**fields, "owner": _owner(fields["owner"])})
    except (KeyError, TypeError):
        return None


def owners(run_dir: Path) -> tuple[Owner, ...]:
    """Who may be at work on the run: the process that runs it and the one that claimed it."""
    found = []
    fields = _read_object(RunFolder(run_dir).owner)
    if fields:
        with suppress(TypeError):
            found.append(_owner(fields))
    elif written := read_claim(run_dir):  # the claimant's life counts until `run-one` has taken over
        found.append(written.owner)
    return tuple(found)


def _owner(fields: Mapping[str, Any]) -> Owner:
    """Raises TypeError where a field is of another type: the process number becomes a path below /proc."""
    owner = Owner(**fields)
    if type(owner.pid) is not int or not all(isinstance(text, str) for text in (owner.host, owner.boot_id)):
        raise TypeError("no process is called that")
    return owner


def _read_object(path: Path) -> dict[str, Any]:
    try:
        fields = reading.read_json(path, limit=reading.CLAIM_BYTES)
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def state(run_dir: Path, *, clock: Clock = our_clock) -> JobState:
    """Where the run stands: ended (has a record), running (a living owner), lost (a dead one), silent (one elsewhere of which
    nothing was heard for long, by `clock`), pending (no claim)."""
    record = RunFolder(run_dir).record
    if record.exists():
        return JobState.ENDED
    if not run_dir.is_dir():
        return JobState.PENDING
    known = owners(run_dir)
    if any(owner.lives() for owner in known):
        return JobState.RUNNING
    if any(not owner.is_here() for owner in known) and not record.exists():
        age_s = silence_s(run_dir, clock)
        return JobState.SILENT if age_s is None or age_s > SILENT_AFTER_S else JobState.RUNNING
    # Looked at again: the record is written before its owner ends, so it may have come between the two looks.
    return JobState.ENDED if record.exists() else JobState.LOST
