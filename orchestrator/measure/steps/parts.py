"""Says where the time of a run's steady steps went: data, passes, optimizer, waits for ranks; and how far the host set the pace.

The training process divides each step (`workers/instrument/phases.py`); the step's line has the parts. A time is a mean per step.
A run's time is the mean over its ranks, so the times of a run add up to its mean step. The waits for other ranks are not known in
every step; their mean is over the steps in which they are known. A time that is not known has a reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from orchestrator.measure.rank_files import Cells, Worker
from orchestrator.measure.steps import Step

# Maps the parts in a step's line to metrics.
_TIMES = {
    "data": "data_time_s",
    "forward": "forward_time_s",
    "backward": "backward_time_s",
    "optimizer": "optimizer_time_s",
}
_WAITS = {"forward_comm": "forward_comm_time_s", "backward_comm": "backward_comm_time_s"}
BETWEEN_TIME, WAIT_TIME, HOST_SHARE = "between_time_s", "exposed_comm_time_s", "host_bound_share"
# The sum of a step's parts may exceed the step by this share, since their times are rounded.
_EXCESS = 0.001


def read(windows: Mapping[int, Sequence[Step]], workers: Sequence[Worker]) -> tuple[Cells, dict[str, str]]:
    """Return two values: the times of a run, and the reason for each time that is missing. `windows` has each rank's steady steps.

    Both are empty if the training process does not divide its steps: a program without a Trainer, or an older instrument.
    """
    if not windows or any("undivided" not in worker for worker in workers):
        return {}, {}
    ranks = [of_rank(window) for window in windows.values()]
    known = [name for name in ranks[0] if all(name in own for own in ranks)]
    times = {name: fmean(own[name] for own in ranks) for name in known}
    return times, dict(_reasons(times, windows, workers))


def of_rank(window: Sequence[Step]) -> dict[str, float]:
    """Return the known times of one rank."""
    if not window or not all(step.parts for step in window) or _too_long(window):
        return {}
    times = {
        metric: _mean(window, part) for part, metric in _TIMES.items() if all(part in step.parts for step in window)
    }
    waits = [step.wait_s for step in window if step.wait_s is not None]
    if "data_time_s" in times and len(waits) == len(window):
        times[BETWEEN_TIME] = max(0.0, fmean(waits) - times["data_time_s"])
    watched = [step for step in window if _WAITS.keys() <= step.parts.keys()]
    if watched:
        times |= {metric: _mean(watched, part) for part, metric in _WAITS.items()}
        times[WAIT_TIME] = sum(times[metric] for metric in _WAITS.values())
    if all("host" in step.parts for step in window):
        total = sum(step.seconds for step in window)
        times |= {HOST_SHARE: min(1.0, sum(step.parts["host"] for step in window) / total)} if total else {}
    return times


def _mean(window: Sequence[Step], part: str) -> float:
    return fmean(step.parts[part] for step in window)


def _too_long(window: Sequence[Step]) -> bool:
    parts = sum(step.parts.get(part, 0.0) for step in window for part in _TIMES)
    return parts > (1 + _EXCESS) * sum(step.seconds for step in window)


def _reasons(
    times: Cells, windows: Mapping[int, Sequence[Step]], workers: Sequence[Worker]
) -> Iterator[tuple[str, str]]:
    """Yield the reason for each time that is missing."""
    why = next((str(worker["undivided"]) for worker in workers if worker["undivided"]), None)
    if why is None and any(_too_long(window) for window in windows.values()):
        why = "the parts of the steps are longer than the steps"
    own_step = "the training step does not call the Trainer's, so its passes are not known"
    own_fetch = "the Trainer does not fetch its batches with get_batch_samples"
    own = dict.fromkeys(_TIMES.values(), own_step) | dict.fromkeys(("data_time_s", BETWEEN_TIME), own_fetch)
    own |= {
        WAIT_TIME: workers[0].get("waits_unknown") or "the waits were not marked in any steady step",
        HOST_SHARE: "on a CPU, the host does the work" if workers[0].get("clock") == "host" else own_step,
    }
    yield from ((name, why or str(reason)) for name, reason in own.items() if name not in times)
