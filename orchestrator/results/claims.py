"""The claim, the owner and the state of a run. The state follows from the files of the run folder.

A process claims a run: it prepares the run folder under another name and renames it. If several processes try this, only one
succeeds. `run-one` then describes its own process in `owner.json`. The state is never stored, because it depends on whether
the process of `run-one` is still running.

A process on another host or in another container cannot be looked up. Therefore every `run-one` touches a heartbeat file. A process
that takes over a silent run needs the file server's time: it makes a file, reads the file's date, and removes the file. A process
that only reads the state uses its own clock and writes nothing. A silent run may still be running, but cut off from the file
server. So its state is `silent`, never `lost`.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from orchestrator.files import reading, writing
from orchestrator.machine import process_identity as identity
from orchestrator.machine.child_environment import checked_marker
from orchestrator.measure.steps import LATEST
from orchestrator.records import Job, JobState, RunFolder, load

# Seconds between two touches of the heartbeat.
HEARTBEAT_S = 30.0
# A run with an older heartbeat is silent. The limit is long because file servers show changes late.
SILENT_AFTER_S = 300.0

# The name of a folder in which a claim is prepared: a dot and the marker. Only such a folder is ever removed.
_ASIDE = re.compile(r"\.[0-9a-f]{32}")
# The files that a killed process may have left in such a folder.
_IN_ASIDE = re.compile(r"job\.json|\.(job\.json\.)?[0-9a-f]{32}")

# A function that gets a folder and returns the present time in seconds since the epoch, or None if the time is unknown.
Clock = Callable[[Path], float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """A process that owns a run. The fields identify it: later, or on another host, a process may have the same number."""

    host: str
    boot_id: str
    pid: int
    start_time: float
    pid_namespace: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.pid < 2**31:
            raise ValueError("no process has this number")

    def is_here(self) -> bool:
        """Return whether this process can find out if the owner is running.

        It can for an owner from this boot and this container, even if the host's name has changed, unless the system hides the
        processes of other users. It also can for an owner from an earlier boot of this host: this owner has ended.
        """
        if self.boot_id == identity.boot_id() and self.pid_namespace:
            return self.pid_namespace == identity.pid_namespace() and not self.is_hidden()
        return self.host == identity.host_name()

    def place(self) -> str:
        """Return where the owner runs, in words: on a host, or in another container of this host that has its name."""
        is_here = (self.host, self.boot_id) == (identity.host_name(), identity.boot_id())
        if is_here and self.pid_namespace not in ("", identity.pid_namespace()):
            return "in another container of this host"
        return f"on {self.host}"

    def is_hidden(self) -> bool:
        """Return whether the owner may be a process of another user on this machine, and the system hides that user's processes."""
        here = (self.boot_id, self.pid_namespace) == (identity.boot_id(), identity.pid_namespace())
        return here and identity.is_hidden(self.pid)

    def lives(self) -> bool:
        """Return whether the owner is running; False if `is_here` is false."""
        return (
            self.is_here() and self.boot_id == identity.boot_id() and identity.start_time(self.pid) == self.start_time
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """The content of `job.json`: the run, the process that claimed it, and the marker in the environment of the run's processes."""

    experiment_id: str
    repeat: int
    attempt: int
    marker: str
    executor: str
    claimed_at: float
    owner: Owner
    details: Mapping[str, Any]

    def __post_init__(self) -> None:
        checked_marker(self.marker)
        if not 0 <= self.claimed_at < LATEST:
            raise ValueError("no run was claimed at this time")


def this_process() -> Owner:
    """Return the calling process as an owner."""
    pid = os.getpid()
    return Owner(
        host=identity.host_name(),
        boot_id=identity.boot_id(),
        pid=pid,
        start_time=identity.start_time(pid) or 0.0,
        pid_namespace=identity.pid_namespace(),
    )


def claim(job: Job, *, executor: str, details: Mapping[str, Any] | None = None) -> Claim | None:
    """Claim the job for this process: make its folder with `job.json`. Return None if another process has claimed it."""
    mine = Claim(
        experiment_id=job.experiment_id,
        repeat=job.repeat,
        attempt=job.attempt,
        marker=uuid.uuid4().hex,
        executor=executor,
        claimed_at=min(max(time.time(), 0.0), LATEST - 1),  # a wrong clock must not prevent a run
        owner=this_process(),
        details=dict(details or {}),
    )
    aside = job.run_dir.parent / f".{mine.marker}"
    aside.mkdir(parents=True)
    try:
        writing.replace(RunFolder(aside).claim, json.dumps(asdict(mine), indent=2) + "\n")
        os.rename(aside, job.run_dir)  # fails if a folder with content already has this name
    except OSError:
        if not job.run_dir.exists():
            raise
        return None
    finally:
        _remove_aside(aside)
    writing.sync_folder(job.run_dir.parent)
    written = read_claim(job.run_dir)
    return mine if written is not None and written.marker == mine.marker else None


def remove_unfinished(runs: Path) -> None:
    """Remove the unfinished claims of processes that were killed during `claim`. No run has begun in the folder of such a claim.

    Leave every other folder, and every link: a user may keep `.git` or notes here.
    """
    for aside in runs.glob(".*") if runs.is_dir() else ():
        if not _ASIDE.fullmatch(aside.name) or aside.is_symlink() or not aside.is_dir():
            continue
        written = read_claim(aside)
        if written is not None:
            is_dead = written.owner.is_here() and not written.owner.lives()
        else:
            is_dead = (silence_s(aside, file_servers_clock) or 0) > SILENT_AFTER_S
        if is_dead:
            _remove_aside(aside)


def _remove_aside(aside: Path) -> None:
    """Remove the folder of an unfinished claim. Leave it if it contains a file that `claim` does not write."""
    with suppress(OSError):
        files = list(aside.iterdir())
        if all(_IN_ASIDE.fullmatch(path.name) for path in files):
            for path in files:
                path.unlink()
            aside.rmdir()


def take_over(run_dir: Path) -> None:
    """Write into `owner.json` that this process runs the job from now on."""
    writing.replace(RunFolder(run_dir).owner, json.dumps(asdict(this_process()), indent=2) + "\n")


def note_neighbours(run_dir: Path, experiment_ids: Sequence[str]) -> None:
    """Append a line to a file in the run's folder: the experiments of the runs that share this machine from now on."""
    with suppress(OSError):
        writing.append(RunFolder(run_dir).neighbours, " ".join(experiment_ids) + "\n")


def neighbours(run_dir: Path) -> tuple[tuple[str, ...], int]:
    """Return two values: the experiments whose runs shared the machine with this run, and the most such runs at once."""
    try:
        text = reading.read_text(RunFolder(run_dir).neighbours, limit=reading.CLAIM_BYTES)
    except (OSError, ValueError):
        return (), 0
    lines = [line.split() for line in text.splitlines()]
    return tuple(dict.fromkeys(name for line in lines for name in line)), max(map(len, lines), default=0)


def beat(run_dir: Path) -> None:
    """Touch the heartbeat. A full or missing disk must not end a run, so errors are ignored."""
    with suppress(OSError):
        RunFolder(run_dir).heartbeat.touch()


def silence_s(run_dir: Path, clock: Clock) -> float | None:
    """Return the seconds since the heartbeat, `owner.json` or `job.json` of the run last changed; None if they are unknown.

    A date in the future says nothing about the run: a clock was wrong, or the files were copied.
    """
    folder = RunFolder(run_dir)
    changes = [_modified(path) for path in (folder.heartbeat, folder.owner, folder.claim)]
    if all(change is None for change in changes):
        changes = [_modified(run_dir)]
    now = clock(run_dir)
    if now is None:
        return None
    past = [moment for moment in changes if moment is not None and moment <= now + SILENT_AFTER_S]
    return max(0.0, now - max(past)) if past else None


def _modified(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def our_clock(_folder: Path) -> float:
    """Return the time of this machine. The clock of the file server, which dates the files, may differ."""
    return time.time()


def file_servers_clock(folder: Path) -> float | None:
    """Return the time of a folder's file server. Make a new file, read its date, and remove it."""
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
    """Return the content of `job.json`; None if it is missing or not a claim."""
    with suppress(OSError, ValueError):
        return load(Claim, reading.read_bytes(RunFolder(run_dir).claim, limit=reading.CLAIM_BYTES))
    return None


def read_owner(run_dir: Path) -> Owner:
    """Return the content of `owner.json`. Raise OSError if it is missing, or ValueError if it does not describe a process."""
    return load(Owner, reading.read_bytes(RunFolder(run_dir).owner, limit=reading.CLAIM_BYTES))


def owners(run_dir: Path) -> tuple[Owner, ...]:
    """Return a tuple with the owner: `run-one`, or the claiming process until `run-one` starts. An unknown owner is left out."""
    with suppress(OSError, ValueError):
        return (read_owner(run_dir),)
    written = read_claim(run_dir)
    return () if written is None else (written.owner,)


def state(run_dir: Path, *, clock: Clock = our_clock) -> JobState:
    """Return the state of the run. A run with a record has ended; a run without a folder is pending.

    Any other run is running while its owner lives, else lost. An owner on another host or in another container cannot be looked up:
    its run is silent if, by `clock`, the heartbeat is older than SILENT_AFTER_S or more than SILENT_AFTER_S in the future.
    Otherwise, the run's state is `running`.
    """
    record = RunFolder(run_dir).record
    if record.exists():
        return JobState.ENDED
    if not run_dir.is_dir():
        return JobState.PENDING
    known = owners(run_dir)
    if any(owner.lives() for owner in known):
        return JobState.RUNNING
    # Look again: an owner writes the record just before it ends, so the record may exist by now.
    if record.exists():
        return JobState.ENDED
    here = all(owner.is_here() for owner in known)
    if here and all(owner.boot_id == identity.boot_id() for owner in known):
        return JobState.LOST
    age_s = silence_s(run_dir, clock)
    if here:  # an owner from an earlier boot, unless files changed since this boot: then another host has the same name
        unsure_s = min(SILENT_AFTER_S, time.time() - psutil.boot_time())
        return JobState.RUNNING if age_s is not None and age_s < unsure_s else JobState.LOST
    return JobState.SILENT if age_s is None or age_s > SILENT_AFTER_S else JobState.RUNNING
