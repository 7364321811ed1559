"""The reason for which Slurm ended a run's allocation. The allocation's log has it before Slurm signals the processes."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from orchestrator.files import reading
from orchestrator.results.claims import Claim

_END = re.compile(
    r"error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT (?P<at>[\dT:-]{19})(?: DUE TO (?P<why>[A-Z ]+\b))? \*\*\*"
)
_AGAIN = "repeat the command to run it again"
_STARTS = f"if Slurm does not start the job again, {_AGAIN}"
# Slurm's words for the reason → the cause of the run's end.
_CAUSES: Mapping[str | None, str] = {
    "TIME LIMIT": f"the time limit of its job in Slurm ended it; {_AGAIN}, with more time in `time:` of the site file",
    "PREEMPTION": f"Slurm preempted its job; {_STARTS}",
    "JOB REQUEUE": f"Slurm requeued its job; {_STARTS}",
    "NODE FAILURE": f"a node of its job failed; {_STARTS}",
    None: f"its job was cancelled in Slurm; {_AGAIN}",
}
# The log has whole seconds, and the clocks of the nodes differ.
_EARLY_S = 5.0
_LAST_BYTES = 64 * 1024


def cause(claim: Claim | None, results: Path) -> str | None:
    """Return why Slurm ended the allocation of a claimed run; None if it did not end it, or if its log does not say so."""
    details = claim.details.get("slurm") if claim else None
    if claim is None or not isinstance(details, Mapping) or not isinstance(details.get("log"), str):
        return None
    try:
        found = [*_END.finditer(reading.read_tail(results / details["log"], limit=_LAST_BYTES))]
        # An earlier start of the allocation may have written into the log, too.
        if not found or time.mktime(time.strptime(found[-1]["at"], "%Y-%m-%dT%H:%M:%S")) < claim.claimed_at - _EARLY_S:
            return None
    except (OSError, ValueError, OverflowError):
        return None
    return _CAUSES.get(found[-1]["why"], _CAUSES[None])
