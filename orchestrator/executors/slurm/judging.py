"""The meaning of Slurm's states for a run that has no record. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.executors.slurm.client import Row
from orchestrator.records import Status

# The job has ended, and Slurm does not start it again. A state that is neither here nor known otherwise changes nothing.
_ENDED = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    )
)
_WAITING = ("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
# Reasons that go away by themselves: the job waits for its turn, for resources or for a limit.
_NORMAL_REASONS = (
    *(
        "None",
        "Priority",
        "Resources",
        "BeginTime",
        "Cleaning",
        "Dependency",
        "JobArrayTaskLimit",
        "Licenses",
        "Prolog",
    ),
    *("Assoc", "QOSMax", "QOSGrp", "QOSJobLimit", "Reservation", "SchedDefer", "WaitingForScheduling", "BurstBuffer"),
)
# The end of an element's log says it, in the words of several versions, if Slurm ended the element for its memory.
_OUT_OF_MEMORY = re.compile(
    r"^slurmstepd\S*: error: .*(exceeded (job |step )?memory limit|oom-kill event|hit memory(\+swap)? limit)",
    re.IGNORECASE | re.MULTILINE,
)
# Reasons that look like these, but stay: a limit of a single job, and an account whose time is used up. Minutes of running jobs are
# freed when these jobs end.
_STAYS = re.compile(r"PerJob|NeverSatisfied|Grp\w*(?<!Run)Minutes|GrpWall")


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """The end of a run as Slurm tells it. `sure`: Slurm named the end. `listed`: Slurm listed the job as ended."""

    status: Status
    kind: str
    cause: str
    sure: bool = True
    listed: bool = True

    @property
    def is_taken_away(self) -> bool:
        """Return whether Slurm took the allocation away although the user did not ask for it."""
        return self.sure and self.status is Status.LOST


def has_ended(state: str) -> bool:
    """Return whether a job in this state has ended for good."""
    return state in _ENDED


def is_waiting(state: str) -> bool:
    """Return whether a job in this state waits for its start."""
    return state in _WAITING


def word(state: str | None, reason: str = "", *, log: str = "", memory_mb: int | None = None) -> Word:
    """Return the end of a run without a record whose job is in this state. None: Slurm does not list the job any more.

    `log` is the end of the element's log. `memory_mb` is the memory of its allocation, if it is known. The log counts, too: without
    control groups, Slurm ends a job for its memory and calls it FAILED; and Slurm forgets jobs.
    """
    if state in (None, "FAILED", "COMPLETED") and _OUT_OF_MEMORY.search(log):
        state = "OUT_OF_MEMORY"
    match state:
        case "TIMEOUT":
            cause = "Slurm ended its allocation at the time limit; give `time:` in the site file more time"
            return Word(status=Status.TIMEOUT, kind="timeout", cause=cause)
        case "DEADLINE":
            return Word(status=Status.TIMEOUT, kind="timeout", cause="Slurm ended its allocation at the job's deadline")
        case "OUT_OF_MEMORY":
            cause = f"its memory ran out; {more_memory(memory_mb)}"
            return Word(status=Status.FAILED, kind="oom_host", cause=cause)
        case "CANCELLED":
            return Word(status=Status.CANCELLED, kind="cancelled", cause="its job was cancelled in Slurm")
        case "NODE_FAIL" | "BOOT_FAIL":
            return _lost("its node failed", state)
        case "PREEMPTED":
            return _lost("its allocation was preempted, and Slurm did not start it again", state)
        case None:
            cause = "Slurm does not list its job any more"
            return Word(status=Status.LOST, kind="lost", cause=cause, sure=False, listed=False)
    why = f", {reason}" if reason not in ("", "None") else ""
    return Word(
        status=Status.LOST, kind="lost", cause=f"its job ended without a record (Slurm: {state}{why})", sure=False
    )


def more_memory(memory_mb: int | None) -> str:
    """Return what to do about an allocation whose memory ran out, and how much it had, if that is known."""
    had = "" if memory_mb is None else f"its allocation had {memory_mb} MiB: "
    return f"{had}give it more by `mem_per_gpu:`, or `--mem` in `lines:`, in the site file"


def _lost(text: str, state: str) -> Word:
    return Word(status=Status.LOST, kind="lost", cause=f"{text} (Slurm: {state})")


def is_normal(reason: str) -> bool:
    """Return whether a waiting job's reason goes away by itself. An unknown reason does not, nor does a limit of a single job."""
    return reason.startswith(_NORMAL_REASONS) and not _STAYS.search(reason)


def is_held(row: Row) -> bool:
    """Return whether a job waits for a reason that does not go away by itself."""
    return is_waiting(row.state) and not is_normal(row.reason)
