"""One element of an array, on its node: it carries out the runs of the element, one after the other.

The element claims each run here, so a run whose element is submitted twice is carried out once. Slurm may start the element again:
after a preemption, or because the node was lost. Then the runs of the earlier start without a record are lost. The element writes
these records and makes the next attempts. The earlier start may still work on a node that Slurm cannot reach. It finds the mark of
the later start and takes no further run. Its records come second, and the first record of a run stays.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import LaunchError, ResultsError
from orchestrator.executors.local import LocalExecutor
from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.batches import FOLDER, BatchFolder, Mark
from orchestrator.executors.slurm.judging import word
from orchestrator.machine import cgroup, process_identity
from orchestrator.records import Job, JobState, RunRecord, Status
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record
from orchestrator.results.unfinished_record import unfinished_record

EXECUTOR = "slurm"
# A run must end this long before its allocation, so that its processes end and its record is written.
_GOODBYE_S = 45.0
# A further run starts only if this share of the longest run so far still fits.
_ROOM = 1.2


@dataclass(frozen=True, kw_only=True, slots=True)
class Allocation:
    """The allocation of an element: its place in the array, Slurm's number, how often it was started before, and its limits."""

    batch: str
    element: int
    job_id: int
    restart: int
    node: str
    ends_at: float | None = None
    memory_mb: int | None = None

    def details(self) -> dict[str, Any]:
        """Return what the claim of a run says about the allocation. The path of its log begins at the results folder."""
        words = {"batch": self.batch, "element": self.element, "job_id": self.job_id, "restart": self.restart}
        words |= {} if self.memory_mb is None else {"memory_mb": self.memory_mb}
        log = f"{FOLDER}/{self.batch.rpartition('.')[2]}/{client.ELEMENT_LOG.format(self.element)}"
        until = {} if self.ends_at is None else {"until": self.ends_at - _GOODBYE_S}
        return {"slurm": {**words, "node": self.node, "log": log}, **until}


def carry_out(folder: BatchFolder, element: int) -> None:
    """Carry out the runs of an element, and mark its start and its end. Raise ResultsError if there is no such element."""
    batch = folder.batch()
    if batch is None or not 0 <= element < len(batch.elements):
        raise ResultsError(f"{folder.path}: it has no element {element}, or its batch.json is damaged")
    own = _allocation(batch.name, element, os.environ)
    folder.mark(element, own.restart, Mark.STARTED)
    longest_s = 0.0
    try:
        for job in folder.jobs(batch.elements[element]):
            if _is_replaced(folder, own) or _is_too_late(own, longest_s):
                break
            began = time.monotonic()
            _run(_next_attempt(job, own), own)
            longest_s = max(longest_s, time.monotonic() - began)
    except KeyboardInterrupt:
        folder.mark(element, own.restart, Mark.STOPPED)
        raise
    folder.mark(element, own.restart, Mark.DONE)


def _run(job: Job | None, own: Allocation) -> None:
    """Carry out a run. Do nothing if another process has claimed it."""
    if job is None:
        return
    killed_before = cgroup.memory_kills_around()
    with closing(LocalExecutor(name=EXECUTOR, details=own.details()).run([job])) as ended:  # type: ignore[type-var]
        for one, state in ended:
            if state is JobState.LOST and not one.folder.record.exists():
                record = unfinished_record(one)
                if record.status is Status.LOST and cgroup.memory_kills_around() > killed_before:
                    end = word("OUT_OF_MEMORY", memory_mb=own.memory_mb)
                    record = replace(record, status=end.status, kind=end.kind, cause=end.cause)
                write_record(one.run_dir, record)


def _next_attempt(job: Job, own: Allocation) -> Job | None:
    """Return the run, or its next attempt if an earlier start of this element has begun it. Return None if it is not ours."""
    while job.run_dir.is_dir():
        claim = claims.read_claim(job.run_dir)
        if claim is None or not _is_earlier_start(claim.details.get("slurm"), own):
            return None
        write_record(job.run_dir, _interrupted(job, own))
        record = Store(job.folder.results).run(job).record
        if record is None or record.status not in (Status.LOST, Status.CANCELLED):
            return None
        job = Store(job.folder.results).job(job.experiment_id, repeat=job.repeat, attempt=job.attempt + 1)
    return job


def _is_earlier_start(details: Any, own: Allocation) -> bool:
    if not isinstance(details, Mapping):
        return False
    same = details.get("batch") == own.batch and details.get("element") == own.element
    restart = details.get("restart")
    return same and isinstance(restart, int) and restart < own.restart


def _interrupted(job: Job, own: Allocation) -> RunRecord:
    record = unfinished_record(job)
    if record.status is not Status.LOST:
        return record  # the run had written its record, but could not place it
    return replace(
        record, cause=f"Slurm ended its allocation and started it again (restart {own.restart} of {own.job_id})"
    )


def _is_replaced(folder: BatchFolder, own: Allocation) -> bool:
    return max(folder.marks().get(own.element, {}), default=0) > own.restart


def _is_too_late(own: Allocation, longest_s: float) -> bool:
    """Return whether the allocation ends too soon for another run as long as the longest so far. The first run always starts."""
    return bool(longest_s) and own.ends_at is not None and time.time() + _ROOM * longest_s + _GOODBYE_S > own.ends_at


def _allocation(batch: str, element: int, variables: Mapping[str, str]) -> Allocation:
    """Return the allocation of this process, as Slurm's variables describe it."""

    def number(name: str) -> int:
        text = variables.get(name, "")
        return int(text) if re.fullmatch(r"\d{1,12}", text) else 0

    job_id = number("SLURM_ARRAY_JOB_ID")
    if not job_id:
        raise LaunchError(
            "run-array: there is no SLURM_ARRAY_JOB_ID; only a batch script of Tunebench starts this command"
        )
    known_end = number("SLURM_JOB_END_TIME")
    return Allocation(
        batch=batch,
        element=element,
        job_id=job_id,
        restart=number("SLURM_RESTART_COUNT"),
        node=variables.get("SLURMD_NODENAME") or process_identity.host_name(),
        ends_at=float(known_end) if known_end else _asked_end(f"{job_id}_{element}"),
        memory_mb=_memory_mb(number) or None,
    )


def _memory_mb(number: Callable[[str], int]) -> int:
    """Return the memory of the allocation on this node, or 0 if Slurm does not limit it. `number` reads a variable."""
    for_each = number("SLURM_MEM_PER_CPU") * number("SLURM_CPUS_ON_NODE")
    return number("SLURM_MEM_PER_NODE") or for_each or number("SLURM_MEM_PER_GPU") * number("SLURM_GPUS_ON_NODE")


def _asked_end(job: str) -> float | None:
    """Return the end of the allocation, for which older Slurms set no variable. None: it has no limit, or Slurm does not answer."""
    with suppress(LaunchError, ValueError, OverflowError):
        return time.mktime(time.strptime(client.end_of_allocation(job), "%Y-%m-%dT%H:%M:%S"))
    return None
