"""Slurm's client programs: sbatch, squeue, scancel and scontrol. Each call has a time limit.

A controller that does not answer says nothing about the jobs. So a call that fails raises LaunchError, and the caller leaves
everything as it was.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.errors import LaunchError, NoAnswer
from orchestrator.machine import process

TIMEOUT_S = 20.0
# The file with the output of an element's script, next to the script.
ELEMENT_LOG = "element-{}.log"
# Slurm's default, if the controller does not say its own.
DEFAULT_MAX_ARRAY = 1001
# A submitter that is itself in a job must not pass that job's variables on: sbatch and srun would read them as options.
_LEAKS = (
    *("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "SLURM_*", "SLURMD_*", "SBATCH_*"),
    *("SQUEUE_*", "SCANCEL_*", "SRUN_*", "SALLOC_*"),
)
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
_FORMAT = "%F|%K|%T|%r|%S|%j"
_INDICES = re.compile(r"\[?(?P<ranges>\d{1,7}(-\d{1,7}(:\d{1,7})?)?(,\d{1,7}(-\d{1,7}(:\d{1,7})?)?)*)(%\d+)?\]?")
_STATE = re.compile(r"[A-Z_]+")
# Longer digits are not the number of a job.
_JOB_ID = re.compile(r"\d{1,18}", re.ASCII)
# No cluster has larger arrays.
_MOST_ELEMENTS = 1_000_000
# The names of Tunebench's jobs begin with this.
PREFIX = "tb-"
# sbatch refuses a job for these reasons until other jobs have ended.
_FULL = re.compile(
    r"submit limit|MaxSubmitJob|QOSMaxSubmit|AssocMaxSubmit|MaxJobCount|temporarily unable", re.IGNORECASE
)
_EXIT = re.compile(r"^sbatch: ended with exit code \d+: (sbatch: )?(error: )?(Batch job submission failed: )?")
# The controller got no submission, or may have got it.
_UNREACHABLE = re.compile(r"Unable to contact slurm controller|Connection refused", re.IGNORECASE)
_UNKNOWN = re.compile(r"timed out|Zero Bytes were transmitted|communication", re.IGNORECASE)


class QueueFull(LaunchError):
    """Slurm accepts no more jobs of this user now, or no array of this size."""


class Unreachable(LaunchError):
    """Slurm's controller cannot be reached, so it has not accepted the job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One element of an array in the queue. `start` is the expected or real start as Slurm writes it."""

    name: str
    job_id: int
    element: int
    state: str
    reason: str
    start: str


def require() -> None:
    """Raise LaunchError if this machine does not have Slurm's client programs."""
    if missing := [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]:
        raise LaunchError(
            f"{missing[0]}: this machine does not have this program of Slurm; start the campaign on a login node of the cluster"
        )


def submit(script: Path) -> int:
    """Submit a batch script, and return the number of the job. Slurm runs it in the script's folder, and writes the logs there.

    Raise QueueFull if Slurm accepts no more jobs now, or Unreachable. Raise NoAnswer if Slurm does not answer; it may have accepted
    the job. Raise LaunchError for any other refusal.
    """
    try:
        folder = str(script.parent)
        # Slurm replaces `%j` in the whole path, and `%a` by the number of the element.
        output = f"{folder.replace('%', '%%')}/{ELEMENT_LOG.format('%a')}"
        answer = _called(["sbatch", "--parsable", f"--chdir={folder}", f"--output={output}", str(script)])
    except NoAnswer:
        raise
    except LaunchError as error:
        kinds = {QueueFull: _FULL, Unreachable: _UNREACHABLE, NoAnswer: _UNKNOWN}
        kind = next((kind for kind, pattern in kinds.items() if pattern.search(str(error))), LaunchError)
        raise kind(_EXIT.sub("", str(error))) from error
    words = [re.sub(r";\S+$", "", line.strip()) for line in answer.splitlines()]
    if numbers := [word for word in words if _JOB_ID.fullmatch(word)]:
        return int(numbers[-1])
    raise NoAnswer(f"sbatch: the answer {answer.strip()[:200]!r} is not the number of a job")


def queue() -> list[Row]:
    """Return every element of this user's arrays by Tunebench that Slurm still lists, ended ones too.

    Raise LaunchError if Slurm does not answer, or if a line of the answer is damaged.
    """
    answer = _called(
        ["squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}", f"--format={_FORMAT}"]
    )
    # For a chosen cluster (SLURM_CLUSTERS), squeue prints a heading.
    lines = [line for line in answer.splitlines() if line.strip() and not line.startswith("CLUSTER: ")]
    return [row for line in lines for row in _rows(line)]


def _rows(line: str) -> list[Row]:
    """Return the rows of a line. A job of another program, or one that is not an array, has none.

    A line for several elements has one for each.
    """
    fields = line.strip().split("|", 5)
    if len(fields) != 6 or not _JOB_ID.fullmatch(fields[0]) or not _STATE.fullmatch(fields[2]):
        raise LaunchError(f"squeue: the line {line.strip()[:200]!r} cannot be read")
    if fields[1] == "N/A" or not fields[5].startswith(PREFIX):
        return []
    job_id, state, reason, start, name = int(fields[0]), *fields[2:]
    return [
        Row(name=name, job_id=job_id, element=element, state=state, reason=reason, start=start)
        for element in indices(fields[1])
    ]


def indices(text: str) -> list[int]:
    """Return the elements that Slurm's short form names: `7`, `[3-9:2]`, `[1,4]`, `0-99%5`. Raise LaunchError for another text."""
    match = _INDICES.fullmatch(text)
    if match is None:
        raise LaunchError(f"squeue: {text[:200]!r} does not name elements of an array")
    ranges = []
    for part in match["ranges"].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        ranges.append(range(int(first), int(last or first) + 1, int(step or 1) or 1))
    if sum(map(len, ranges)) > _MOST_ELEMENTS:
        raise LaunchError(f"squeue: {text[:200]!r} names more elements than any array has")
    return [element for one in ranges for element in one]


def has_jobs() -> bool:
    """Return whether this user has jobs that wait or run. Raise LaunchError if Slurm does not answer."""
    return bool(_called(["squeue", "--noheader", f"--user={os.getuid()}", "--format=%A"]).strip())


def cancel(name: str, elements: Sequence[tuple[int, int]] = ()) -> None:
    """Cancel a job, or only these elements of it: pairs of the job's number and the element's. Raise LaunchError if that fails.

    The name must match, too, because Slurm may give the same number to another job.
    """
    ids = [f"{job_id}_{element}" for job_id, element in elements]
    _called(["scancel", "--quiet", f"--user={os.getuid()}", f"--jobname={name}", *ids])


def throttle(job_id: int, limit: int) -> None:
    """Change the number of elements of a job that run at once. 0 means no limit. Raise LaunchError if that fails."""
    _called(["scontrol", "update", f"JobId={job_id}", f"ArrayTaskThrottle={limit}"])


def max_array_size() -> int:
    """Return the largest number of elements of an array on this cluster."""
    try:
        match = re.search(r"^MaxArraySize\s*=\s*(\d{1,9})\b", _called(["scontrol", "show", "config"]), re.MULTILINE)
    except LaunchError:
        match = None
    return max(1, int(match[1])) if match else DEFAULT_MAX_ARRAY


def end_of_allocation(job: str) -> str:
    """Return the time at which an allocation ends, as Slurm writes it. `job` is `<number>_<element>`."""
    return _called(["squeue", "--noheader", f"--jobs={job}", "--Format=EndTime:40"]).strip()


def _called(argv: Sequence[str]) -> str:
    return process.capture(argv, TIMEOUT_S, env=dict.fromkeys(leaks(os.environ)))


def leaks(variables: Mapping[str, str]) -> list[str]:
    """Return the names of the variables that a job must not inherit from its submitter."""
    return [name for name in variables if name not in _KEPT and any(fnmatchcase(name, pattern) for pattern in _LEAKS)]
